"""A cache of token counts.

A task counts the tokens of the same text several times: when a tool result arrives, when it is recorded, when it
appears in the view, and when a compaction computes the remaining size. The token count of a text never changes, so the
newest counts are cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 512
"""A full cache has at least KEPT token counts and at most twice as many.

One cached count takes about 150 bytes, for a text of any length.
"""


class Memo:
    """Wraps the function `count` with a cache, so that the tokens of a text are counted only once while the count is
    cached.

    The key of a cached count is a 64-bit hash of the text, which differs from process to process; the text itself is
    not stored. Two texts with the same hash would get the same count; this happens about once in 10**13 texts. A Memo
    may be called from several threads.
    """

    __slots__ = ("_count", "_new", "_old")

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}  # the KEPT counts that were cached before those in `_new`

    def __call__(self, text: str) -> int:
        key = hash(text)
        found = self._new.get(key)
        if found is not None:
            return found
        found = self._old.get(key)
        if found is None:
            found = self._count(text)
        if len(self._new) >= KEPT:
            self._old, self._new = self._new, {}
        self._new[key] = found
        return found
