"""Finds the person who asked for the work on an issue or merge request: the person who last set the label or assigned
the bot.  The module also determines whether a person without permission edited the title or text after the request, and
who ended a task.

GitLab stores label changes as resource events, and assignments and edits as system notes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.edits_after_request import said_altered, said_unasked
from agent.forge.gitlab.notes import ACTIVITY, EDITS
from agent.forge.gitlab.projects import number, username
from agent.forge.host_client import PATIENT, QUICK

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from agent.forge.base import Act, Labels
    from agent.forge.gitlab.http import GitLabWire
    from agent.forge.gitlab.projects import Project, Projects
    from agent.forge.gitlab.task_items import TaskItems
    from agent.values import TaskKey


def who_asked(
    wire: GitLabWire,
    places: Projects,
    project: Project,
    kind: str,
    item: dict[str, Any],
    label: str | None,
    *,
    patience: float,
) -> tuple[Any, bool]:
    """(account, whether GitLab shows the request): the account (`id`, `username`) that added `label`, or that assigned
    the bot if `label` is None; None when GitLab does not report that account.

    If the newest event removes the label or the assignment of an issue that has it, GitLab does not show yet the event
    by which the label or the assignment was set again."""
    path = f"{project.path}/{kind}/{item['iid']}"
    if label is None:
        return _assigned_by(wire, places, path, patience)
    actor, is_shown = who_labelled(wire, path, label, patience=patience)
    if actor and is_shown:
        shown = {name: actor[name] for name in ("id", "username", "bot") if name in actor}
        wire.facts.put(_fact(path, label), shown)  # `reviewer_of`, in a worker, reads this fact and not the events
    return actor, is_shown


def who_labelled(wire: GitLabWire, path: str, label: str, *, patience: float) -> tuple[Any, bool]:
    """(the account that last added `label` to the issue or merge request with the API path `path`, whether the newest
    event about `label` adds it); the account is None if GitLab does not report it."""
    actor, is_added = None, False
    # GitLab refuses if its version has no label events, or the account may not read them; the result is (None, False).
    with suppress(ForgeRefused, ForgeAccessRefused):
        for event in wire.pages(f"{path}/resource_label_events", patience=patience):
            if (event.get("label") or {}).get("name") == label:
                is_added = event.get("action") == "add"
                actor = event.get("user") if is_added else actor
    return actor, is_added


def _fact(path: str, label: str) -> str:
    return f"{path} was asked for by {label}"


def _assigned_by(wire: GitLabWire, places: Projects, path: str, patience: float) -> tuple[Any, bool]:
    """(the account that last assigned the bot, whether the newest system note about the bot assigns it); (None, False)
    if GitLab shows no such note."""
    is_shown = True
    # If the account may not read the system notes, GitLab refuses, and the result is (None, False).
    with suppress(ForgeRefused, ForgeAccessRefused):
        for note in _activity(wire, path, patience):
            meant = assigned(str(note.get("body") or ""), places.own()[1])
            if meant is True:
                return note.get("author"), is_shown
            is_shown = is_shown and meant is None
    return None, False


def assigned_again(wire: GitLabWire, places: Projects, path: str, labels: Labels) -> tuple[str, Any] | None:
    """(id of the system note, account that assigned) of the newest assignment of the issue to the bot; None if there is
    none, or if a label that shows the end of a task was added at the same time or later."""
    notes = (note for note in _activity(wire, path, QUICK))
    newest = next((one for one in notes if assigned(str(one.get("body") or ""), places.own()[1]) is True), None)
    if newest is None:
        return None
    ended = [
        clock.parse(str(event["created_at"]))
        for event in wire.pages(f"{path}/resource_label_events", patience=QUICK)
        if event.get("action") == "add" and labels.ended((str((event.get("label") or {}).get("name") or ""),))
    ]
    if ended and max(ended) >= clock.parse(str(newest["created_at"])):
        return None
    return str(newest["id"]), newest.get("author")


def altered(
    wire: GitLabWire,
    places: Projects,
    project: Project,
    kind: str,
    item: dict[str, Any],
    label: str,
    *,
    since: str = "",
    patience: float,
) -> str:
    """The reason why the title or text is not the one for which a person with permission asked, "" if it is (see
    `Forge.altered`).

    GitLab's system notes report the edits of title and text. People below the Developer role can edit an issue too;
    only an edit by an account without permission can be the reason.
    """
    path = f"{project.path}/{kind}/{item['iid']}"

    def counts(who: Any) -> bool:
        return places.is_own(who) or places.is_agents(who) or places.may_ask(project, who, patience=patience)

    notes = list(_activity(wire, path, patience))
    edits = [
        (clock.parse(str(note["created_at"])), username(note.get("author")))
        for note in notes
        if str(note.get("body") or "").startswith(EDITS) and not counts(note.get("author"))
    ]
    if not edits:
        return ""
    asked = times_of_requests(wire, places, project, path, item, label, since=since, patience=patience, notes=notes)
    # `asked` is empty, for example, if the issue was moved from another project and the label of that project was
    # deleted; then every edit without permission counts.
    return said_altered(edits, max(asked)) if asked else said_unasked(edits)


def times_of_requests(
    wire: GitLabWire,
    places: Projects,
    project: Project,
    path: str,
    item: dict[str, Any],
    label: str,
    *,
    since: str = "",
    patience: float = PATIENT,
    notes: Iterable[dict[str, Any]] | None = None,
) -> list[datetime]:
    """The times at which people with permission asked for the work, by a label, by an assignment, or by a comment
    (`since` is the time of that comment). If GitLab does not show the label events, the creation of the issue counts as
    a request.

    `path` is the issue's path in the API; `notes` are the issue's system notes; if `notes` is None, they are requested
    from GitLab.
    """
    asked = [clock.parse(since)] if since else []
    asked += [
        clock.parse(str(note["created_at"]))
        for note in (_activity(wire, path, patience) if notes is None else notes)
        if assigned(str(note.get("body") or ""), places.own()[1]) is True
        and not places.is_self_assignment(note.get("author"))
        and places.may_ask(project, note.get("author"), patience=patience)
    ]
    try:
        asked += [
            clock.parse(str(event["created_at"]))
            for event in wire.pages(f"{path}/resource_label_events", patience=patience)
            if event.get("action") == "add"
            and (event.get("label") or {}).get("name") == label
            and places.may_ask(project, event.get("user"), patience=patience)
        ]
    # GitLab has no label events in this version, or the account may not read them.
    except (ForgeRefused, ForgeAccessRefused):
        if item.get("created_at"):
            # Without label events the author of the issue counts as the person who asked, and the creation of the issue
            # as the time of the request.
            asked.append(clock.parse(str(item["created_at"])))
    return asked


def taken_away(wire: GitLabWire, places: Projects, path: str, label: str) -> bool:
    """Whether the bot was unassigned from the issue after `label` (the processing label) was last added, and not
    assigned again since."""
    name = places.own()[1]
    words = [
        (clock.parse(str(note["created_at"])), meant)
        for note in _activity(wire, path, QUICK)
        if (meant := assigned(str(note.get("body") or ""), name)) is not None
    ]
    if not words or words[0][1]:
        return False
    began = [
        clock.parse(str(event["created_at"]))
        for event in wire.pages(f"{path}/resource_label_events", patience=QUICK)
        if event.get("action") == "add" and (event.get("label") or {}).get("name") == label
    ]
    return bool(began) and words[0][0] >= began[-1]


def who_ended(wire: GitLabWire, places: Projects, path: str, labels: Labels, act: Act) -> str:
    """The account that last ended the task in the way `act`: removed the label that asks for work or the one of a
    running or paused task, set the stopped label, or unassigned the bot; "" if that account is unknown, or if it is an
    own account that no person uses."""
    who: Any = None

    def is_agent(user: Any) -> bool:
        return places.is_own(user) and not places.is_person()

    if act == "unassigned":
        notes = _activity(wire, path, QUICK)
        taken = (note["author"] for note in notes if assigned(str(note.get("body") or ""), places.own()[1]) is False)
        who = next(taken, None)
    else:
        action, names = (
            ("add", {labels.stopped}) if act == "labelled" else ("remove", {labels.queued, *labels.in_use()})
        )
        for event in wire.pages(f"{path}/resource_label_events", patience=QUICK):
            agent = is_agent(event.get("user"))
            if event.get("action") == action and (event.get("label") or {}).get("name") in names and not agent:
                who = event.get("user")
    return "" if who is None or is_agent(who) else username(who)


def assigned(body: str, name: str) -> bool | None:
    """The effect of a system note on the account `name`: True if the note assigns the account, False if it unassigns
    it, None if the note does neither.

    A system note about assignments has the form `assigned to @a and @b and unassigned @c`, in this order.
    """
    gained, _, lost = re.sub(r"^assigned to ", "", body).partition("unassigned ")
    me = re.compile(rf"@{re.escape(name)}(?![\w.-])")
    if body.startswith("assigned to ") and me.search(gained):
        return True
    return False if me.search(lost) else None


def _activity(wire: GitLabWire, path: str, patience: float) -> Any:
    """The system notes of an issue or merge request (`path`), newest first."""
    return (note for note in wire.pages(f"{path}/notes", query=ACTIVITY, patience=patience) if note.get("system"))


def reviewer_of(items: TaskItems, key: TaskKey, project: Project) -> int | None:
    """The id of the person who asked for the work, to make that person the reviewer; None if the person has no
    permission, or if the account is that of this program.

    The bot label that started the task may be off the issue already, but GitLab still lists the event by which the
    label was added. If GitLab lists no event by which the bot label was added, the author of the issue counts as the
    person who asked.
    """
    path = items.path(key, project)
    who = items.wire.facts.find(_fact(path, items.labels.queued))
    if who is None:
        who, _ = who_labelled(items.wire, path, items.labels.queued, patience=PATIENT)
    if who is None:
        who = items.get(key)[1].get("author")
    return number(who) if not items.places.is_own(who) and items.places.may_ask(project, who) else None
