"""Limits the size of tool results: bytes of one result, and tokens of all results of one answer together.

A limit per result is not enough: ten results within the limit can exceed the window. All results of one answer
therefore share a budget, in tokens of the window in use. Each call of an answer gets an equal part of the rest of the
budget, so that the first call cannot use the budget up, and the tokens that a small result does not need are available
to the following calls. `Toolbox` has the one result budget of a task. Until `Toolbox.limit_tokens` is
called, tokens have no limit, and the bytes of a result have a fixed one. After it, the tokens of all results of one
answer together, and the bytes of each result, are limited by shares of the present window.
"""

from __future__ import annotations

from typing import Protocol

CAP = 16_000
LEAST = 1000
SMALLEST = 160
"""The minimum number of bytes of a shortened text; the statement about the omitted part alone needs about as many
bytes."""

LEAST_SHARE = 64
"""The share of an answer's budget, in tokens, that each result gets at least, even if the answer has so many calls that
the budget is exceeded.

If the results of one answer together are too large for the window, the results are shortened when the next request is
planned (`window/trimming.py`).
"""

PER_RESULT = 4
"""The number of tokens that the message of one result needs in addition to its text."""


def room_of(window: int) -> int:
    """The maximum bytes of one result for a window of `window` tokens: about an eighth of the window, at least LEAST
    and at most CAP."""
    return min(CAP, max(LEAST, window * 3 // 8))


class ResultWindow(Protocol):
    """The two sizes of the window of the task's model that limit tool results."""

    @property
    def tokens(self) -> int:
        """The size of the window in tokens."""
        ...

    @property
    def results(self) -> int:
        """The maximum number of tokens for all results of one answer together."""
        ...

    def count(self, text: str) -> int:
        """The number of tokens of `text` for the task's model."""
        ...


class ResultBudget:
    """`most` is the maximum bytes of one result; unless `fixed` is set, it follows the size of the window.  Until
    `limit_tokens` is called there is no token budget."""

    def __init__(self, most: int, *, fixed: bool = False) -> None:
        self.most = max(LEAST, most)
        self.fixed = fixed
        self._window: ResultWindow | None = None
        self._left = 0
        self._calls = 0

    def limit_tokens(self, window: ResultWindow) -> None:
        """From now on, compute the limits of results from `window` anew for each answer of the model."""
        self._window, self._calls = window, 0

    def start_answer(self, calls: int) -> None:
        """Begin the budget for the results of an answer with `calls` calls."""
        self._calls = max(1, calls)
        if self._window is not None:
            self._left = self._window.results
            if not self.fixed:
                self.most = room_of(self._window.tokens)

    @property
    def tokens(self) -> int | None:
        """The maximum tokens of the next result; None if tokens have no limit."""
        if self._window is None:
            return None
        if not self._calls:
            self.start_answer(1)
        return max(LEAST_SHARE, self._left // self._calls)

    def spend(self, text: str) -> None:
        """Subtract the tokens of a finished result from the budget."""
        if self._window is not None and self._calls:
            self._left = max(0, self._left - self._window.count(text) - PER_RESULT)
            self._calls -= 1

    def count(self, text: str) -> int:
        """The tokens of `text`; 0 if no token budget is set."""
        return self._window.count(text) if self._window is not None else 0

    @property
    def page_bytes(self) -> int:
        """The maximum bytes of one page of a file."""
        # A tenth of the bytes is reserved, since masking secrets may lengthen a text a little.
        return self.most * 9 // 10

    def meter(self, head: int = 40) -> Meter:
        """A meter for a page of lines in the next tool result, which also has a head of about `head` tokens."""
        tokens = self.tokens
        # An eighth of the tokens is reserved, since masking secrets may lengthen the page, and the sum of the tokens of
        # its lines is not exactly the tokens of the page.
        return Meter(self, None if tokens is None else max(1, tokens * 7 // 8 - head - PER_RESULT))


class Meter:
    """Accepts lines of a page as long as the token budget has tokens left."""

    def __init__(self, room: ResultBudget, tokens: int | None) -> None:
        self.room = room
        self.left = tokens

    def add_line(self, line: str) -> bool:
        """Subtract the tokens of one more line of the page; returns whether the line fits into the token budget."""
        if self.left is None:
            return True
        self.left -= self.room.count(line) + 1
        return self.left >= 0
