"""A set of 64-bit hashes in 16 bytes each, where a Python set takes 80: the call ids of a long view.

Only for "was this seen?".  Two ids of one hash would cost a needless new name for one of them, nothing else.
"""

from __future__ import annotations

from array import array

_MASK = (1 << 64) - 1


class HashSet:
    """Open addressing in a table that is at most half full."""

    __slots__ = ("_count", "_table")

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 * 64))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        return self._table[self._slot(self._table, _hash(text))] != 0

    def add(self, text: str) -> None:
        """Remember `text`."""
        value = _hash(text)
        slot = self._slot(self._table, value)
        if self._table[slot]:
            return
        self._table[slot] = value
        self._count += 1
        if 2 * self._count > len(self._table):
            larger = array("Q", bytes(16 * len(self._table)))
            for old in self._table:
                if old:
                    larger[self._slot(larger, old)] = old
            self._table = larger

    @staticmethod
    def _slot(table: array[int], value: int) -> int:
        """Where `value` stands, or the free place where it would."""
        last = len(table) - 1
        slot = value & last
        while table[slot] not in (0, value):
            slot = (slot + 1) & last
        return slot


def _hash(text: str) -> int:
    """A number from 1 to 2^64 - 1; 0 marks a free place."""
    return hash(text) & _MASK or 1
