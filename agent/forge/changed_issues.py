"""Finds the issues of a list that changed since the last poll, for the forges that can list changes
(`Forge.changed_since`).

One list per repository is enough, even if the repository has many ended tasks.  The address of the list stays the same
until something changes, so that a conditional request gets a 304.  The adapter has no state; the position is in a
cursor that the caller stores.  The cursor is JSON text, with an entry for each list: `t` is the newest change; `d` maps
number → time of change, for the issues near `t`; `a` has the issues to report once more, since a second change within
the same second does not show.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import ForgeAccessRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from agent.values import TaskKey

OVERLAP = timedelta(seconds=5)
"""Tolerance for changes that the forge lists late or in another order."""


def changed_of(
    watched: Mapping[TaskKey, str | None],
    cursor: str,
    changed: Callable[[str, str, ChangeCursor], dict[str, str]],
    number_in: Callable[[str | None], str | None],
) -> tuple[dict[TaskKey, str], str]:
    """Implements `Forge.changed_since` for a forge with one list per repository, where issues and pull requests share
    their numbers.

    `changed(owner, repository, cursor)` reads the list of a repository: number → time of the last change.  `number_in`
    gives the number of a pull request in its address.  A repository that alone refuses is passed over, since the poll
    for waiting issues reports it; if all refuse, ForgeAccessRefused is raised.
    """
    changes, found = ChangeCursor.parse(cursor), {}
    repositories = sorted({(key.owner, key.repo) for key in watched})
    refused: list[ForgeAccessRefused] = []
    for owner, repo in repositories:
        try:
            new = changed(owner, repo, changes)
        except ForgeAccessRefused as error:
            refused.append(error)
            continue
        for key, url in watched.items():
            times = [new[number] for number in (key.task_id, number_in(url)) if number in new]
            if times and (key.owner, key.repo) == (owner, repo):
                found[key] = max(times)
    if refused and len(refused) == len(repositories):
        raise refused[0]
    return found, changes.text()


class ChangeCursor:
    """The position in the lists of one forge.  `begin`: the start time for a list that was not read before."""

    def __init__(self, begin: str, lists: dict[str, Any]) -> None:
        self.begin = begin
        self.lists = lists

    @classmethod
    def parse(cls, cursor: str) -> ChangeCursor:
        """Make a cursor from a result of `text()`, or from a time to begin at.  Raises ValueError for anything else."""
        if not cursor.startswith("{"):
            return cls(clock.stamp(clock.parse(cursor)), {})
        found = orjson.loads(cursor)
        return cls(str(found["begin"]), dict(found["lists"]))

    def text(self) -> str:
        """The cursor as one line of JSON."""
        return orjson.dumps({"begin": self.begin, "lists": self.lists}, option=orjson.OPT_SORT_KEYS).decode()

    def since(self, name: str) -> datetime:
        """The start time for the next request of the list."""
        return clock.parse(self.lists.get(name, {}).get("t") or self.begin) - OVERLAP

    def update(self, name: str, items: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Record a list of (number, time of change); returns number → time of the issues that changed since the last
        poll."""
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
