"""Posts the program's comments on an issue: each comment is posted only once, and is shortened if the forge refuses it
as too long.

This module posts the comments about the progress and the end of a task, and replies on the issue.
"""

from __future__ import annotations

import http
from typing import TYPE_CHECKING

from agent.errors import ForgeRefused
from agent.forge.markers import marker, with_markers
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.base import Forge
    from agent.values import Effects, Json, TaskKey

MARGIN = 300
"""The number of characters of a comment that are reserved for the markers, for the line `SIGNATURE` in comments through
a person's account (`markers.signed`), and for a note that the text was cut."""

SHORT = 4000
"""If a proxy refuses a comment as too long, the comment is shortened and posted again, unless it has at most SHORT
characters."""


def truncate(text: Public, forge: Forge, uuid: str) -> Public:
    """`text`, cut to the length that the forge allows for one comment."""
    return _cut(text, forge.max_comment - MARGIN, uuid)


def _cut(text: Public, room: int, uuid: str) -> Public:
    cut = f"{text[:room]}\n\n… cut; the whole text is in the folder of task {uuid}."
    return text if len(text) <= room else Public(cut)


def post_once(
    forge: Forge,
    key: TaskKey,
    uuid: str,
    name: str,
    body: Callable[[], Public],
    effects: Effects | None,
    signed: Callable[[Public], Public] | None = None,
    *,
    is_new: bool = False,
) -> str:
    """Post a comment of the task with the text of `body`, unless the marker with `name` shows that the comment was
    already posted; returns the id of the comment.

    `effects` records in the task's folder that the comment was posted; if `effects` is None, since the task has no
    folder, only the marker prevents a second post. `signed` is a function that adds the markers to the text, if the
    comment has more than one marker. `is_new`: the caller knows that no other process has posted the comment
    (`Effects.once`).
    """
    mark = marker(uuid, name)

    def look_up() -> Json | None:
        found = forge.find_comment(key, mark)
        return None if found is None else {"id": found}

    def post() -> Json:
        text = body()
        while True:
            try:
                return {"id": forge.post_comment(key, signed(text) if signed is not None else with_markers(text, mark))}
            # Status 413 means that a proxy in front of the forge accepts shorter comments than the forge.
            except ForgeRefused as refused:
                if refused.status != http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE or len(text) <= SHORT:
                    raise
                text = _cut(text, max(SHORT // 2, len(text) // 4), uuid)

    receipt = (look_up() or post()) if effects is None else effects.once(name, look_up, post, is_new=is_new)
    return str(receipt["id"])


def held_text(text: Public, check_held: Callable[[], None]) -> Public:
    """`text`, as the `body` of `post_once` for a task of this process: the search for the comment takes time, in which
    another host may have taken over the task. Raises the error of `check_held`, Fenced, if so."""
    check_held()
    return text
