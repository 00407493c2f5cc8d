"""Comments of ours: made fit for a forge, and posted once.

The one way by which a task's comment gets on an issue, whoever posts it: the progress, the end, or the daemon for a
task that nobody works on.
"""

from __future__ import annotations

import http
from typing import TYPE_CHECKING

from agent.errors import ForgeRefused
from agent.forge.marks import marked, marker
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.base import Forge
    from agent.values import Effects, Json, TaskKey

MARGIN = 200
"""Characters of a comment kept for the marker and the word that it was cut."""

SHORT = 4000
"""A comment of so many characters is not made shorter, whatever a proxy says."""


def fit(text: Public, forge: Forge, uuid: str) -> Public:
    """At most what one comment may hold."""
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
) -> str:
    """The id of the comment `name` of the task: the one that its marker finds, else what `body` says, posted.

    `effects` remembers it; None when the task has no folder, then the marker alone does.  `signed` adds the markers,
    where there are more than that one.
    """
    mark = marker(uuid, name)

    def look_up() -> Json | None:
        found = forge.find_comment(key, mark)
        return None if found is None else {"id": found}

    def post() -> Json:
        text = body()
        while True:
            try:
                return {"id": forge.post_comment(key, signed(text) if signed is not None else marked(text, mark))}
            except ForgeRefused as refused:  # 413: a proxy before the forge takes less than the forge does
                if refused.status != http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE or len(text) <= SHORT:
                    raise
                text = _cut(text, max(SHORT // 2, len(text) // 4), uuid)

    receipt = (look_up() or post()) if effects is None else effects.once(name, look_up, post)
    return str(receipt["id"])
