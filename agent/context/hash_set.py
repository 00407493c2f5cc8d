"""A set of 64-bit hashes of texts that needs 16 to 32 bytes for each hash, where a Python set needs 80; it has the
hashes of the call ids of a long view.

The set is used for membership tests only. If two different ids have the same hash, one of the two calls gets a new id
needlessly; there is no other effect.
"""

from __future__ import annotations

from array import array

_MASK = (1 << 64) - 1


class HashSet:
    """A hash table with open addressing that is at most half full."""

    __slots__ = ("_count", "_table")

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 * 64))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        return self._table[self._slot(self._table, _hash(text))] != 0

    def add(self, text: str) -> None:
        """Add `text`."""
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
        """The slot of the table that has `value`, or the free slot for it."""
        last = len(table) - 1
        slot = value & last
        while table[slot] not in (0, value):
            slot = (slot + 1) & last
        return slot


def _hash(text: str) -> int:
    """The hash of a text, a number from 1 to 2^64 - 1; 0 marks a free slot."""
    return hash(text) & _MASK or 1
