"""Finds the person who asked for the work on an issue of GitHub.

The module determines which account set the label or assigned the bot, whether the text of the issue was edited
afterwards, and which account to ask for a review.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.edits_after_request import said_altered, said_unasked
from agent.forge.github.repositories import is_bot, login
from agent.forge.github.task_items import issue_number
from agent.forge.task_getter import changed_just_now
from agent.observe import log

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from agent.forge.base import Act
    from agent.forge.github.adapter_interface import GitHubAdapter
    from agent.forge.github.repositories import Project
    from agent.values import TaskKey


EDITS = """query Edits($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issueOrPullRequest(number: $number) {
      ... on Issue { userContentEdits(first: 100) { nodes { editedAt editor { login type: __typename } } } }
      ... on PullRequest { userContentEdits(first: 100) { nodes { editedAt editor { login type: __typename } } } }
    }
  }
}"""
"""The GraphQL query for the newest edits of an issue's text.

The query uses GraphQL because GitHub's REST API reports neither the time of an edit nor its author.  The time of the
last edit (`lastEditedAt`) alone is not enough: if somebody with permission ticks a box in a task list, this last edit
would hide an earlier edit by somebody else.
"""


def events_of(forge: GitHubAdapter, project: Project, number: Any) -> list[dict[str, Any]]:
    """The events of an issue, oldest first."""
    return list(forge.wire.pages(f"{project.path}/issues/{number}/events"))


def last_actor(forge: GitHubAdapter, project: Project, events: Iterable[dict[str, Any]], *, labelled: bool) -> Any:
    """The account of the newest event that asks for work (with `labelled` the addition of the bot label, otherwise an
    assignment of the bot).

    Returns None if no event of the issue asks for work, {} if the account that asked was deleted. An event that the own
    account caused counts as a request for work only if that account has permission to ask for work.
    """
    actor = None
    for event in events:
        who = _requesting_account(forge, event, labelled=labelled)
        if who is not None and not (forge.places.is_own(who) and not forge.places.may_ask(project, who)):
            actor = who
    return actor


def assigned_again(forge: GitHubAdapter, events: Iterable[dict[str, Any]]) -> tuple[str, Any] | None:
    """(id, account) of the newest assignment of the issue to the bot, if that assignment is newer than the newest label
    that shows the end of a task; else None."""
    found = None
    for event in events:
        label = forge.items.own_name((event.get("label") or {}).get("name"))
        if event.get("event") == "labeled" and forge.labels.ended((label,)):
            found = None
        elif (who := _requesting_account(forge, event, labelled=False)) is not None:
            found = str(event["id"]), who
    return found


def who_asked(forge: GitHubAdapter, project: Project, events: Iterable[dict[str, Any]]) -> Any:
    """The account that last asked for the work on an issue with the events `events`, by the label, or else by an
    assignment; None if no account did. If the account that set the label was deleted, the assignment counts; if the
    account that assigned the bot was deleted, the result is {}."""
    listed = list(events)
    return last_actor(forge, project, listed, labelled=True) or last_actor(forge, project, listed, labelled=False)


def keep_asker(forge: GitHubAdapter, project: Project, number: Any, events: list[dict[str, Any]]) -> Any:
    """The account that last asked for the work (`who_asked`).  `keep_asker` stores the account and other facts of the
    events for the other processes of this machine (`known_asker`)."""
    actor = who_asked(forge, project, events)
    shown = None if actor is None else {name: actor[name] for name in ("login", "type", "node_id") if name in actor}
    is_assigned = any(forge.places.is_own(event.get("assignee")) for event in events if event.get("assignee"))
    fact = {"actor": shown, "came": _was_transferred(events), "assigned": is_assigned}
    forge.wire.facts.put(_fact(project, number), fact)
    return actor


def known_asker(forge: GitHubAdapter, project: Project, number: Any) -> dict[str, Any] | None:
    """The facts that `keep_asker` has stored: `actor`, the account that asked (None if the events name none), `came`,
    whether the issue came from another repository, and `assigned`, whether the own account was ever assigned; None if
    they are unknown or too old.

    An issue that comes from another repository gets a new number, so `came` never changes."""
    found = forge.wire.facts.find(_fact(project, number))
    return found if isinstance(found, dict) and {"actor", "came", "assigned"} <= found.keys() else None


def _fact(project: Project, number: Any) -> str:
    return f"{project.full_name}#{number} was asked for"


def _was_transferred(events: Iterable[dict[str, Any]]) -> bool:
    """Whether an issue came from another repository."""
    return any(event.get("event") == "transferred" for event in events)


def is_asked(forge: GitHubAdapter, events: Iterable[dict[str, Any]], *, labelled: bool) -> bool:
    """Whether an event of any account asks for work, and no later event takes that request back.

    If an issue has the bot label and the newest event removes that label, GitHub does not show yet the event by which
    the label was set again."""
    asked = False
    for event in events:
        if _requesting_account(forge, event, labelled=labelled) is not None:
            asked = True
        elif _takes_back(forge, event, labelled=labelled):
            asked = False
    return asked


def _takes_back(forge: GitHubAdapter, event: dict[str, Any], *, labelled: bool) -> bool:
    """Whether an event removes the bot label, or without `labelled` an assignment of the bot."""
    if labelled:
        label = forge.items.own_name((event.get("label") or {}).get("name"))
        return event.get("event") == "unlabeled" and label == forge.labels.queued
    return event.get("event") == "unassigned" and forge.places.is_own(event.get("assignee"))


def _requesting_account(forge: GitHubAdapter, event: dict[str, Any], *, labelled: bool) -> Any:
    """The account that asks for work by the event `event`, {} if that account was deleted; None if the event does not
    ask for work."""
    if labelled and event.get("event") == "labeled":
        if forge.items.own_name((event.get("label") or {}).get("name")) == forge.labels.queued:
            return event.get("actor") or {}
    elif not labelled and event.get("event") == "assigned" and forge.places.is_own(event.get("assignee")):
        return event.get("assigner") or event.get("actor") or {}
    return None


def _asks_by_assignment(forge: GitHubAdapter, event: dict[str, Any]) -> Any:
    """The account that asks for work by an assignment; None if the event is no assignment of the bot, or if a person
    assigned the issue to themselves."""
    who = _requesting_account(forge, event, labelled=False)
    return None if who and forge.places.is_self_assignment(who) else who


def times_of_requests(
    forge: GitHubAdapter, project: Project, events: Iterable[dict[str, Any]], since: str = ""
) -> list[datetime]:
    """The times at which people with permission asked for the work, by a label, by an assignment, or by a comment
    (`since` is the time of that comment)."""
    asked = [clock.parse(since)] if since else []
    for event in events:
        who = _requesting_account(forge, event, labelled=True) or _asks_by_assignment(forge, event)
        if who and event.get("created_at") and forge.places.may_ask(project, who):
            asked.append(clock.parse(str(event["created_at"])))
    return asked


def was_unassigned(forge: GitHubAdapter, key: TaskKey, project: Project, item: dict[str, Any]) -> bool:
    """Whether the bot was removed from the assignees after the run of the task began.

    The events are read only after a change of the issue. The first call of a process for an issue reads no events if a
    poll has stored lately that the bot was never assigned (`known_asker`); a change since then is found at the next
    call.
    """
    if forge.places.is_assigned(item):
        return False
    changed, kept = str(item.get("updated_at") or ""), forge.states.get(key)
    known = known_asker(forge, project, item["number"]) if kept is None else None
    if known is not None and not known["assigned"]:
        kept = "", False
    elif kept is None or kept[0] != changed:
        # GitHub may show the event of the change some seconds after the change, and a second change within the same
        # second would not alter the time of the change
        is_settled = bool(changed) and not changed_just_now(item)
        kept = changed if is_settled else "", forge.items.was_unassigned(project, key)
    forge.states[key] = kept
    return kept[1]


def altered(forge: GitHubAdapter, key: TaskKey, since: str = "") -> str:
    """The reason why somebody must request the work again, "" if nobody must (see `Forge.altered`): an account without
    permission edited the title or text after the request, or edited them while no request by an account with permission
    is known."""
    may_ask = forge.places.may_ask
    project, item = forge.items.get(key)
    # GitHub allows edits of an issue by its author and by accounts with write access.  If the issue was transferred,
    # accounts with write access to the earlier repository may have edited it.
    is_theirs = may_ask(project, item.get("user"))
    known = known_asker(forge, project, item["number"])
    if known is not None and is_theirs and not known["came"]:
        forge.asked_by[key] = known["actor"]
        return ""
    events = events_of(forge, project, item["number"])
    forge.asked_by[key] = keep_asker(forge, project, item["number"], events)
    if is_theirs and not _was_transferred(events):
        return ""
    asked = times_of_requests(forge, project, events, since)
    renamed = [
        (clock.parse(str(event["created_at"])), event.get("actor"))
        for event in events
        if event.get("event") == "renamed" and event.get("created_at") and not may_ask(project, event.get("actor"))
    ]
    edits = renamed + [edit for edit in _edits_of_text(forge, project, item) if not may_ask(project, edit[1])]
    told = [(when, login(who)) for when, who in edits]
    if not told:
        return ""
    return said_altered(told, max(asked)) if asked else said_unasked(told)


def _edits_of_text(forge: GitHubAdapter, project: Project, item: dict[str, Any]) -> list[tuple[datetime, Any]]:
    """(time, account) of each edit of the issue's text, oldest first.

    GitHub lists the original text of an issue as its first edit; the result leaves the original text out.
    """
    owner, name = project.full_name.split("/", 1)
    answer = forge.wire.graph("repository", EDITS, {"owner": owner, "name": name, "number": int(item["number"])})
    history = ((answer or {}).get("issueOrPullRequest") or {}).get("userContentEdits") or {}
    found = [
        (clock.parse(str(node["editedAt"])), node.get("editor"))
        for node in history.get("nodes") or ()
        if node and node.get("editedAt")
    ]
    found.sort(key=lambda edit: edit[0])
    is_first = bool(found) and found[0][0] <= clock.parse(str(item["created_at"]))
    return found[1:] if is_first else found


def asker_of(forge: GitHubAdapter, key: TaskKey) -> Any:
    """The account that asked for the work: the one that `altered` has found in this process, else the one that another
    process has found lately, else the one that the events of the issue name now."""
    if key not in forge.asked_by:
        project, number = forge.places.project_of(key), issue_number(key)
        if (known := known_asker(forge, project, number)) is not None:
            forge.asked_by[key] = known["actor"]
        else:
            with forge.items.about(key):
                forge.asked_by[key] = keep_asker(forge, project, number, events_of(forge, project, number))
    return forge.asked_by[key]


def node_of_reviewer(forge: GitHubAdapter, key: TaskKey) -> str | None:
    """The node id of the account that asked for the work, None if it cannot review or has no node id."""
    actor = asker_of(forge, key)
    return str(actor["node_id"]) if _may_review(forge, actor) and actor.get("node_id") else None


def ask_for_review(forge: GitHubAdapter, key: TaskKey, pull: str) -> None:
    """Request a review from the account that asked for the work."""
    request_review(forge, forge.places.project_of(key), pull, asker_of(forge, key))


def _may_review(forge: GitHubAdapter, actor: Any) -> bool:
    """Whether an account can review a pull request of this program: a person who is not the own account."""
    return bool(actor and login(actor)) and not is_bot(actor) and not forge.places.is_own(actor)


def request_review(forge: GitHubAdapter, project: Project, pull: str, actor: Any) -> None:
    """Request a review from an account, also if it has reviewed before; do nothing for a machine account or the own
    account.

    If GitHub refuses the reviewer of a pull request, the refusal is logged and no error is raised."""
    if not _may_review(forge, actor):
        return
    try:
        path = f"{project.path}/pulls/{pull}/requested_reviewers"
        forge.wire.call("POST", path, body={"reviewers": [login(actor)]}, again=True)
    except (ForgeRefused, ForgeAccessRefused) as error:
        log.get("forge").warning("review_not_asked", pull=pull, who=login(actor), why=str(error))


def who_ended(forge: GitHubAdapter, project: Project, number: str, act: Act) -> str:
    """The account of the newest event by which a person ended a task, of the kind `act` (such as "closed"); "" if the
    issue has no such event. Events that the own account caused do not count, unless a person uses that account."""
    ours = {forge.labels.queued, forge.labels.processing, forge.labels.paused}
    for event in reversed(events_of(forge, project, number)):
        label = forge.items.own_name((event.get("label") or {}).get("name"))
        named = {
            "closed": event.get("event") == "closed",
            "labelled": event.get("event") == "labeled" and label == forge.labels.stopped,
            "unlabelled": event.get("event") == "unlabeled" and label in ours,
            "unassigned": event.get("event") == "unassigned" and forge.places.is_own(event.get("assignee")),
        }
        who = event.get("assigner") or event.get("actor")
        if named[act] and (forge.places.is_person() or not forge.places.is_own(who)):
            return login(who)
    return ""
