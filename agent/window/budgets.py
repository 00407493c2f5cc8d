"""Divides the window into budgets in tokens of the model, one for each part of a request that can grow.

A limit for each single item is not enough: ten items within their limits could fill the window.  Every part of a
request that has no natural limit (comments, rules, the tool results of one answer, the carry-over of a compaction) has
one budget in this module, which all items of the part share.  `Shares.for_window` is the only function that divides the
window.  Each part is shortened to its budget by the code that fills the part. docs/window.md has a table of the
budgets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.window.limits import WindowLimits

MOST_COMMENTS = 20_000
"""The maximum number of tokens of comments that a compaction carries over unchanged, for a window of any size."""

LEAST = 64
"""The smallest budget in tokens: a text that is cut to fewer tokens has no meaning."""


def divide(room: int, wanted: Sequence[int]) -> list[int]:
    """Divide `room` tokens among items of the sizes `wanted`: small items get all that they need, the others get equal
    parts (water-filling)."""
    parts = [0] * len(wanted)
    left = max(0, room)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for position, item in enumerate(order):
        parts[item] = min(wanted[item], left // (len(order) - position))
        left -= parts[item]
    return parts


@dataclass(frozen=True, slots=True)
class Shares:
    """Budgets in tokens of the model, each for the sum of the items of one part.

    Parts of the first request: `rules` (all files of repository rules), `memory` (long-term memories),
    `earlier_comments` (comments in the briefing).

    Parts of every turn: `results` (all tool results of one answer), `comments_now` (comments that arrive together).

    Parts of the carry-over of a compaction: `comments` (comments of people), `state` (plan, lists of files, open
    question), `failures` (commands, failing tests, errors), `notes` (the model's own sentences), `files` (present
    content of the newest files), `summary` (the text of a summary).
    """

    rules: int
    memory: int
    earlier_comments: int
    results: int
    comments_now: int
    comments: int
    state: int
    failures: int
    notes: int
    files: int
    summary: int

    @classmethod
    def for_window(cls, limits: WindowLimits, head: int = 0) -> Shares:
        """The budgets for the window of `limits`.

        `head` is the number of tokens that no compaction removes: tools, system prompt and briefing. The parts of every
        turn and of the carry-over get shares of the tokens between `head` and the threshold at which a compaction
        starts, and most parts also have an upper limit that depends on the window.
        """
        window, mark = limits.window, limits.compress_at
        room = max(0, mark - head)

        def share(of_window: int, of_room: float, most: int | None = None) -> int:
            found = min(window // of_window, int(room * of_room))
            return max(LEAST, found if most is None else min(found, most))

        return cls(
            rules=max(LEAST, window // 8),
            memory=max(LEAST, window // 8),
            earlier_comments=max(LEAST, window // 4),
            results=max(LEAST, int(room * 0.5)),
            comments_now=max(LEAST, int(room * 0.4)),
            comments=share(8, 0.20, MOST_COMMENTS),
            state=share(16, 0.11),
            failures=share(16, 0.12),
            notes=share(24, 0.06),
            files=share(10, 0.07),
            summary=max(LEAST, min(limits.output, int(mark * 0.35), int(room * 0.25))),
        )

    def lean(self) -> Shares:
        """Smaller budgets for a request that does not fit otherwise: `comments_now` and each part of the carry-over
        except `summary` have a third of their tokens."""
        names = ("comments_now", "comments", "state", "failures", "notes", "files")
        return replace(self, **{name: max(LEAST, getattr(self, name) // 3) for name in names})
