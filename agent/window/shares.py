"""How the window is divided: one budget for each sum that can grow, in tokens of the model.

A limit for each item is not enough: ten items within their limits can fill a window.  Every part of a request that has
no natural end (comments, rules, tool results of one answer, what a compaction carries) has one budget here, for all of
its items together.  `Shares.of` is the only place that divides; who fills a part shortens it to its budget.  Users:
`run/briefing.py`, `tools`, `carried.py`, `summary.py`, `compressor.py`.  docs/window.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.window.limits import Limits

MOST_COMMENTS = 20_000
"""Tokens: more of what people said is not carried word for word, however large the window is."""

LEAST = 64
"""Tokens: the smallest budget; below it a shortened text says nothing."""


def divided(room: int, wanted: Sequence[int]) -> list[int]:
    """`room` divided among items that want so much each: small ones get all, the others the same (water-filling)."""
    parts = [0] * len(wanted)
    left = max(0, room)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for position, item in enumerate(order):
        parts[item] = min(wanted[item], left // (len(order) - position))
        left -= parts[item]
    return parts


@dataclass(frozen=True, slots=True)
class Shares:
    """Budgets in tokens of the model, each for the sum of its items.

    Of the first request: `rules` (all files of repository rules), `memory` (long-term memories), `told` (comments in
    the briefing).  Of every turn: `results` (all tool results of one answer), `comments_now` (comments that arrive
    together).  Carried by a compaction: `comments` (the words of people), `state` (plan, lists of files, open
    question), `failures` (commands, failing tests, errors), `notes` (the model's own sentences), `files` (present
    content of the newest files), `summary` (the text of a summary).
    """

    rules: int
    memory: int
    told: int
    results: int
    comments_now: int
    comments: int
    state: int
    failures: int
    notes: int
    files: int
    summary: int

    @classmethod
    def of(cls, limits: Limits, head: int = 0) -> Shares:
        """The division of the window of `limits`.  `head` is the tokens that no compaction takes away: tools, system
        prompt and briefing; what is carried shares what is left of the way to the mark."""
        window, mark = limits.window, limits.compress_at
        room = max(0, mark - head)

        def share(of_window: int, of_room: float, most: int | None = None) -> int:
            found = min(window // of_window, int(room * of_room))
            return max(LEAST, found if most is None else min(found, most))

        return cls(
            rules=max(LEAST, window // 8),
            memory=max(LEAST, window // 8),
            told=max(LEAST, window // 4),
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
        """With a third of each budget of what is carried, for a compaction after which the request must fit."""
        names = ("comments_now", "comments", "state", "failures", "notes", "files")
        return replace(self, **{name: max(LEAST, getattr(self, name) // 3) for name in names})
