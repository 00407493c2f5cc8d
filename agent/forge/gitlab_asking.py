"""Who asked for the work on an issue or merge request: who set the label, or assigned the bot, last.

GitLab keeps label changes as resource events and assignments as system notes.  Called by the getter, and when a merge
request is opened, whose reviewer that person is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused
from agent.forge.gitlab_wire import QUICK

if TYPE_CHECKING:
    from agent.forge.gitlab_places import Places, Project
    from agent.forge.gitlab_wire import GitLabWire


def who_asked(
    wire: GitLabWire,
    places: Places,
    project: Project,
    kind: str,
    item: dict[str, Any],
    label: str | None,
    *,
    patience: float,
) -> Any:
    """The account (`id`, `username`) that put `label` on, or with None assigned the bot; the author when GitLab does
    not say."""
    path = f"{project.path}/{kind}/{item['iid']}"
    try:
        actor = (
            _assigned_by(wire, places, path, patience) if label is None else _labelled_by(wire, path, label, patience)
        )
    except (ForgeRefused, ForgeAccessRefused):  # an old GitLab, or events that this account may not see
        actor = None
    return actor or item.get("author")


def _labelled_by(wire: GitLabWire, path: str, label: str, patience: float) -> Any:
    actor = None
    for event in wire.pages(f"{path}/resource_label_events", patience=patience):
        if event.get("action") == "add" and (event.get("label") or {}).get("name") == label:
            actor = event.get("user")
    return actor


def _assigned_by(wire: GitLabWire, places: Places, path: str, patience: float) -> Any:
    for note in _activity(wire, path, patience):
        if assigned(str(note.get("body") or ""), places.own()[1]) is True:
            return note.get("author")
    return None


def taken_away(wire: GitLabWire, places: Places, path: str, label: str) -> bool:
    """Whether somebody took the assignment from the bot since `label` (that of a running task) was put on last."""
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


def assigned(body: str, name: str) -> bool | None:
    """What a system note says of the account: True assigned, False unassigned, None nothing.

    `assigned to @a and @b and unassigned @c`, in this order.
    """
    gained, _, lost = re.sub(r"^assigned to ", "", body).partition("unassigned ")
    me = re.compile(rf"@{re.escape(name)}(?![\w.-])")
    if body.startswith("assigned to ") and me.search(gained):
        return True
    return False if me.search(lost) else None


def _activity(wire: GitLabWire, path: str, patience: float) -> Any:
    """System notes, newest first."""
    query = {"sort": "desc", "order_by": "created_at", "activity_filter": "only_activity"}
    return (note for note in wire.pages(f"{path}/notes", query=query, patience=patience) if note.get("system"))
