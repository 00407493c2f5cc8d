"""Shows at a request that it was seen: a reaction (👀), as soon as a poll reads the request.

The reaction is best effort: a refusal stops nothing, and is reported once by each process.  `intake/` calls this module
for the daemon, `worker/session.py` for a running task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.forge.base import ForgeReports

if TYPE_CHECKING:
    from agent.forge.base import Comment, Forge
    from agent.observe.events import Events
    from agent.values import TaskKey


class Acknowledgements:
    """The reactions of one process to the requests on one forge."""

    def __init__(self, forge: Forge, events: Events) -> None:
        self.forge = forge
        self.events = events
        self.told = False

    def show(self, key: TaskKey, comment: Comment | None = None) -> None:
        """Show that the comment was seen, or without one the issue; edits have been seen before."""
        if comment is not None and comment.is_edit:
            return
        try:
            ForgeReports(self.forge).acknowledge(key, comment)
        except ForgeError as error:
            if not self.told:
                self.told = True
                self.events.emit("effect_failed", effect="reaction", error=f"{key}: {error}")
