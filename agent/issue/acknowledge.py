"""Shows people that the program has read their request: adds a reaction (👀) to the comment or issue with the request.

If a reaction fails, the task continues, and each `Acknowledgements` object reports only the first failure.
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
    """Adds the reactions of one process to requests on one forge."""

    def __init__(self, forge: Forge, events: Events) -> None:
        self.forge = forge
        self.events = events
        self.told = False

    def show(self, key: TaskKey, comment: Comment | None = None) -> None:
        """Add the reaction 👀 to the comment, or to the issue if `comment` is None. An edited comment gets no reaction,
        since it got one before the edit; a review without a text gets none, since a host shows no reaction there."""
        if comment is not None and (comment.is_edit or not comment.body.strip()):
            return
        try:
            ForgeReports(self.forge).acknowledge(key, comment)
        except ForgeError as error:
            if not self.told:
                self.told = True
                self.events.emit("effect_failed", effect="reaction", error=f"{key}: {error}")
