"""Which issues of a list changed since the last look, for the forges that can list what changed (`Forge.stirred`).

One list per repository tells it, however many tasks ended there: the same address each time, until something happens,
so that a conditional request gets its 304.  An adapter keeps nothing; what is seen stands in a cursor that the caller
keeps, JSON text by name of the list: `t` the newest change, `d` number → change for those at that edge, `a` numbers
that are told once more, since a second change within the same second does not show.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

OVERLAP = timedelta(seconds=5)
"""What a forge writes late, or in another order."""


class Changes:
    """How far the lists of one forge were seen.  `begin`: from when on a list counts that was not looked at yet."""

    def __init__(self, begin: str, lists: dict[str, Any]) -> None:
        self.begin = begin
        self.lists = lists

    @classmethod
    def of(cls, cursor: str) -> Changes:
        """From what `text()` wrote, or from a time to begin at.  ValueError for anything else."""
        if not cursor.startswith("{"):
            return cls(clock.stamp(clock.parse(cursor)), {})
        found = orjson.loads(cursor)
        return cls(str(found["begin"]), dict(found["lists"]))

    def text(self) -> str:
        """One line of JSON."""
        return orjson.dumps({"begin": self.begin, "lists": self.lists}, option=orjson.OPT_SORT_KEYS).decode()

    def since(self, name: str) -> datetime:
        """From when on the list has to be asked for."""
        return clock.parse(self.lists.get(name, {}).get("t") or self.begin) - OVERLAP

    def see(self, name: str, items: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Take in a list of (number, when it changed); number → when, of those that changed since the last look."""
        known = self.lists.get(name, {})
        seen: dict[str, str] = known.get("d", {})
        again: dict[str, str] = known.get("a", {})
        found = {number: clock.stamp(clock.parse(when)) for number, when in items}
        newest = max([clock.stamp(clock.parse(known.get("t") or self.begin)), *found.values()])
        edge = clock.stamp(clock.parse(newest) - OVERLAP)
        new = {number: when for number, when in found.items() if seen.get(number) != when}
        kept = {number: when for number, when in found.items() if when >= edge}
        self.lists[name] = {"t": newest, "d": kept, "a": new}
        return again | new
