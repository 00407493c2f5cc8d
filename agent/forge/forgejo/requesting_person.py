"""Finds the person who asked for the work on an issue of Forgejo.

The module determines which account set the label or assigned the bot, whether the text of the issue was edited
afterwards, and which account to ask for a review.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.edits_after_request import said_altered, said_maybe_altered
from agent.forge.forgejo.repositories import is_bot, login
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from agent.forge.base import Act
    from agent.forge.forgejo.adapter_interface import ForgejoAdapter
    from agent.forge.forgejo.repositories import Project

TOLERANCE = timedelta(seconds=1)
"""Maximum difference between an issue's time of change and the time of the row in the timeline for the same change."""


def events_of(forge: ForgejoAdapter, project: Project, number: Any) -> list[dict[str, Any]]:
    """The rows of an issue's timeline, oldest first."""
    return forge.wire.whole(f"{project.path}/issues/{number}/timeline")


def last_actor(forge: ForgejoAdapter, project: Project, events: Iterable[dict[str, Any]], *, labelled: bool) -> Any:
    """The account of the newest event that asks for work (with `labelled` the addition of the bot label, otherwise an
    assignment of the bot).

    Returns None if no event of the issue asks for work. An event that the own account caused counts as a request for
    work only if that account has permission to ask for work.
    """
    actor = None
    for event in events:
        who = _requesting_account(forge, event, labelled=labelled)
        if who is not None and not (forge.places.is_own(who) and not forge.places.may_ask(project, who)):
            actor = who
    return actor


def assigned_again(forge: ForgejoAdapter, events: Iterable[dict[str, Any]]) -> tuple[str, Any] | None:
    """(id, account) of the newest assignment of the issue to the bot, if that assignment is newer than the newest label
    that shows the end of a task; else None."""
    found = None
    for event in events:
        is_label = event["type"] == "label" and event.get("body") == "1"
        if is_label and forge.labels.ended(((event.get("label") or {}).get("name") or "",)):
            found = None
        elif (who := _requesting_account(forge, event, labelled=False)) is not None:
            found = str(event["id"]), who
    return found


def _requesting_account(forge: ForgejoAdapter, event: dict[str, Any], *, labelled: bool) -> Any:
    """The account that asks for work by the row `event` of the timeline, {} if that account was deleted; None if the
    row does not ask for work.  In a row about a label the field `body` is `1` if the label was added."""
    if labelled and event["type"] == "label" and event.get("body") == "1":
        if (event.get("label") or {}).get("name") == forge.labels.queued:
            return event.get("user") or {}
        return None
    added = event["type"] == "assignees" and not event.get("removed_assignee")
    return event.get("user") or {} if not labelled and added and forge.places.is_own(event.get("assignee")) else None


def _asks_by_assignment(forge: ForgejoAdapter, event: dict[str, Any]) -> Any:
    """The account that asks for work by an assignment; None if the row of the timeline is no assignment of the bot, or
    if a person assigned the issue to themselves."""
    who = _requesting_account(forge, event, labelled=False)
    return None if who and forge.places.is_self_assignment(who) else who


def times_of_requests(
    forge: ForgejoAdapter, project: Project, events: Iterable[dict[str, Any]], since: str = ""
) -> list[datetime]:
    """The times at which people with permission asked for the work, by a label, by an assignment, or by a comment
    (`since` is the time of that comment)."""
    asked = [clock.parse(since)] if since else []
    for event in events:
        who = _requesting_account(forge, event, labelled=True) or _asks_by_assignment(forge, event)
        if who and forge.places.may_ask(project, who):
            asked.append(clock.parse(str(event["created_at"])))
    return asked


def altered(
    forge: ForgejoAdapter,
    project: Project,
    item: dict[str, Any],
    since: str = "",
    events: list[dict[str, Any]] | None = None,
) -> str:
    """The reason why the title or text is not, or may not be, the one for which a person with permission asked; "" if
    it is, if nobody with permission has asked, or if the author has permission (see `Forge.altered`).

    Forgejo's timeline has a row with the author for a new title, but no row for a new text, which only alters the
    issue's time of change. A time of change of an issue that is later than the last row of its timeline therefore
    counts as an edit of the text. If somebody without permission caused a row of the timeline after the request, an
    edit before that row cannot be excluded, since the row has altered the issue's time of change too.
    """
    may_ask = forge.places.may_ask
    # On Forgejo only the author and accounts with write access can edit an issue; if the author has permission, each
    # edit counts as permitted.
    if may_ask(project, item.get("user")):
        return ""
    events = events_of(forge, project, item["number"]) if events is None else events
    asked = times_of_requests(forge, project, events, since)
    if not asked:
        return ""
    last = max(asked)
    rows = [(clock.parse(str(event["created_at"])), event) for event in events]
    strangers = [(when, row) for when, row in rows if when > last and not _counts(forge, project, row)]
    titles = [(when, login(row.get("user"))) for when, row in strangers if row["type"] == "change_title"]
    if said := said_altered(titles, last):
        return said
    changed = clock.parse(str(item["updated_at"]))
    if changed > max([last, *(when for when, _ in rows)]) + TOLERANCE:
        return said_maybe_altered(last, changed, login(item.get("user")))
    if strangers:
        when, row = strangers[-1]
        return said_maybe_altered(last, when, login(row.get("user")))
    return ""


def _counts(forge: ForgejoAdapter, project: Project, event: dict[str, Any]) -> bool:
    """Whether a row of the timeline was made by an account with permission, by the own account or by the server
    itself."""
    who = event.get("user")
    return forge.places.is_own(who) or is_bot(who) or forge.places.may_ask(project, who)


def was_unassigned(forge: ForgejoAdapter, project: Project, number: str) -> bool:
    """Whether the bot was removed from the assignees after the run began (after the processing label was set)."""
    began = taken = None
    for event in events_of(forge, project, number):
        when = clock.parse(str(event["created_at"]))
        if event["type"] == "label" and event.get("body") == "1":
            if (event.get("label") or {}).get("name") == forge.labels.processing:
                began = when
        elif event["type"] == "assignees" and forge.places.is_own(event.get("assignee")):
            taken = when if event.get("removed_assignee") else None
    return began is not None and taken is not None and taken >= began


def ask_for_review(forge: ForgejoAdapter, project: Project, number: str, pull: str) -> None:
    """Request a review from the person who asked for the work."""
    known = forge.wire.facts.find(_fact(project, number))
    if known is None:
        known = keep_asker(forge, project, number, events_of(forge, project, number))
    request_review(forge, project, pull, known.get("actor"))


def keep_asker(forge: ForgejoAdapter, project: Project, number: Any, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The account that last asked for the work, by the label or else by an assignment, as the field `actor`.
    `keep_asker` stores the account for the other processes of this machine."""
    actor = last_actor(forge, project, events, labelled=True) or last_actor(forge, project, events, labelled=False)
    shown = {name: actor[name] for name in ("id", "login") if name in actor} if actor else None
    forge.wire.facts.put(_fact(project, number), {"actor": shown})
    return {"actor": shown}


def _fact(project: Project, number: Any) -> str:
    return f"{project.full_name}#{number} was asked for"


def request_review(forge: ForgejoAdapter, project: Project, pull: str, actor: Any) -> None:
    """Request a review from an account, also if it has reviewed before; do nothing for the own account or an account of
    the server.

    If Forgejo refuses the reviewer of a pull request, the refusal is logged and no error is raised."""
    if not login(actor) or is_bot(actor) or forge.places.is_own(actor):
        return
    try:
        path = f"{project.path}/pulls/{pull}/requested_reviewers"
        forge.wire.call("POST", path, body={"reviewers": [login(actor)]}, again=True)
    except (ForgeRefused, ForgeAccessRefused) as error:
        log.get("forge").warning("review_not_asked", pull=pull, who=login(actor), why=str(error))


def who_ended(forge: ForgejoAdapter, project: Project, number: str, act: Act) -> str:
    """The account that made the newest row of the timeline of the kind `act`, which ends a task (the issue was closed,
    for example); "" if there is no such row, if its account is unknown, or if it is an own account that no person
    uses."""
    ours = {forge.labels.queued, forge.labels.processing, forge.labels.paused}
    for event in reversed(events_of(forge, project, number)):
        label, is_added = (event.get("label") or {}).get("name"), event.get("body") == "1"
        named = {
            "closed": event["type"] in {"close", "commit_close", "pull_close", "merge_pull"},
            "labelled": event["type"] == "label" and is_added and label == forge.labels.stopped,
            "unlabelled": event["type"] == "label" and not is_added and label in ours,
            "unassigned": event["type"] == "assignees"
            and bool(event.get("removed_assignee"))
            and forge.places.is_own(event.get("assignee")),
        }
        if named[act]:
            by_agent = forge.places.is_own(event.get("user")) and not forge.places.is_person()
            return "" if by_agent else login(event.get("user"))
    return ""
