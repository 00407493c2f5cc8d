"""The room of tool results: bytes of one result, and tokens of all results of one answer together.

A limit for each result is not enough: ten results within it can be more than the window takes.  So the results of one
answer share a budget, in tokens of the window in force.  Each call gets an equal part of what is left, so that the
first cannot use it up and a small result leaves its rest to those that follow.  `Toolbox` owns the one of a task;
`Toolbox.follow` binds it to the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CAP = 16_000
LEAST = 1000
SMALLEST = 160
"""Bytes: a shortened text is never asked to be smaller; its statement alone has about as many."""

LEAST_SHARE = 64
"""Tokens: the smallest part of one result, however many calls an answer has.  What is too much then is shortened when
the next request is planned (`window/trimming.py`)."""

PER_RESULT = 4
"""Tokens around one result, as every message has them."""


def room_of(window: int) -> int:
    """Bytes of one result for a window of that many tokens: about an eighth of it, at most CAP."""
    return min(CAP, max(LEAST, window * 3 // 8))


class Room:
    """`most` is the bytes of one result.  Without `follow` there is no budget in tokens."""

    def __init__(self, most: int) -> None:
        self.most = max(LEAST, most)
        self._count: Callable[[str], int] | None = None
        self._results: Callable[[], int] = lambda: 0
        self._left = 0
        self._calls = 0

    def follow(self, results: Callable[[], int], count: Callable[[str], int]) -> None:
        """Take the budget of one answer from `results` (tokens), as it is when the answer comes."""
        self._results, self._count, self._calls = results, count, 0

    def expect(self, calls: int) -> None:
        """An answer with so many calls begins."""
        self._calls = max(1, calls)
        self._left = self._results()

    @property
    def tokens(self) -> int | None:
        """Of the next result; None for no limit."""
        if self._count is None:
            return None
        if not self._calls:
            self.expect(1)
        return max(LEAST_SHARE, self._left // self._calls)

    def spend(self, text: str) -> None:
        """A result was made."""
        if self._count is not None and self._calls:
            self._left = max(0, self._left - self._count(text) - PER_RESULT)
            self._calls -= 1

    def count(self, text: str) -> int:
        """Tokens of `text`; 0 where there is no budget."""
        return self._count(text) if self._count is not None else 0

    @property
    def page(self) -> int:
        """Bytes of one page of a file."""
        return self.most * 9 // 10  # masking may lengthen a text a little

    def meter(self, head: int = 40) -> Meter:
        """For a page that is the next result, under a line of about `head` tokens."""
        tokens = self.tokens
        # An eighth is left for what a count line by line and masking miss.
        return Meter(self, None if tokens is None else max(1, tokens * 7 // 8 - head - PER_RESULT))


class Meter:
    """Takes the lines of a page as long as there are tokens for them."""

    def __init__(self, room: Room, tokens: int | None) -> None:
        self.room = room
        self.left = tokens

    def take(self, line: str) -> bool:
        """Whether there is room for one more line; it is counted."""
        if self.left is None:
            return True
        self.left -= self.room.count(line) + 1
        return self.left >= 0
