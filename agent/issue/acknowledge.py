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


REMEMBERED = 1000
"""For how many comments a process remembers that they got a reaction."""


class Acknowledgements:
    """Adds the reactions of one process to requests on one forge, one to each comment."""

    def __init__(self, forge: Forge, events: Events) -> None:
        self.forge = forge
        self.events = events
        self.told = False
        self._shown: dict[tuple[TaskKey, str], None] = {}  # the newest comments that got a reaction or were refused one

    def show(self, key: TaskKey, comment: Comment | None = None) -> None:
        """Add the reaction 👀 to the comment, or to the issue if `comment` is None. An edited comment gets no reaction,
        since it got one before the edit; a review without a text gets none, since a host shows no reaction there."""
        if comment is not None:
            place = key, comment.id
            if comment.is_edit or not comment.body.strip() or place in self._shown:
                return
            if len(self._shown) >= REMEMBERED:
                del self._shown[next(iter(self._shown))]
            self._shown[place] = None
        try:
            ForgeReports(self.forge).acknowledge(key, comment)
        except ForgeError as error:
            if not self.told:
                self.told = True
                self.events.emit("effect_failed", effect="reaction", error=f"{key}: {error}")
