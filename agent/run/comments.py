"""Comments of ours: made fit for a forge, and posted once.

The one way by which a task's comment gets on an issue, whoever posts it: the progress, the end, or the daemon for a
task that nobody works on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.forge.marks import marked, marker, without_markers
from agent.security.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.base import Forge
    from agent.values import Effects, Json, Redact, TaskKey

MARGIN = 200
"""Characters of a comment kept for the marker and the word that it was cut."""


def fit(text: str, forge: Forge, uuid: str, redact: Redact) -> str:
    """Nothing a terminal obeys, secrets masked, markers taken out, at most what one comment may hold."""
    text = without_markers(redact(plain(text)))
    room = forge.max_comment - MARGIN
    if len(text) > room:
        text = f"{text[:room]}\n\n… cut; the whole text is in the folder of task {uuid}."
    return text


def post_once(
    forge: Forge, key: TaskKey, uuid: str, name: str, body: Callable[[], str], effects: Effects | None
) -> str:
    """The id of the comment `name` of the task: the one that its marker finds, else what `body` says, posted.

    `effects` remembers it; None when the task has no folder, then the marker alone does.
    """
    mark = marker(uuid, name)

    def look_up() -> Json | None:
        found = forge.find_comment(key, mark)
        return None if found is None else {"id": found}

    def post() -> Json:
        return {"id": forge.post_comment(key, marked(body(), mark))}

    receipt = (look_up() or post()) if effects is None else effects.once(name, look_up, post)
    return str(receipt["id"])
