"""Finds the issues of a list that changed since the last poll, for the forges that can list changes
(`Forge.changed_since`).

One list of changed issues per repository is requested, even if the repository has many ended tasks. The address of the
list of changed issues stays the same until an issue changes, so that the host can answer a conditional request with the
status 304 (not modified). The times up to which the lists of changed issues were read are in a cursor that the caller
stores. The cursor is JSON text: `begin` is the start time for a new list, and `lists` has an entry for each list: `t`
is the time of the newest change; `d` maps number → time of change, for the issues that changed in the last seconds
before `t`; `a` maps number → time of change, for the issues that the next call reports once more, since a second change
within the same second does not alter the time; `s` maps the numbers in `a` → time of this program at which the change
was first reported.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import ForgeAccessRefused
from agent.forge.comment_cursor import OVERLAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from agent.forge.base import Comment
    from agent.values import TaskKey

REPEATED = timedelta(seconds=2)
"""Each call reports a changed issue once more until this much time has passed since the change was first reported: the
times of GitHub and Forgejo are whole seconds, and several calls may be made within one second."""


def changed_of(
    watched: Mapping[TaskKey, str | None],
    cursor: str,
    changed: Callable[[str, str, ChangeCursor], dict[str, str]],
    number_in: Callable[[str | None], str | None],
) -> tuple[dict[TaskKey, str], str]:
    """Implements `Forge.changed_since` for a forge with one list per repository, where issues and pull requests share
    their numbers.

    `changed(owner, repository, cursor)` reads the list of a repository and returns issue number → time of the last
    change. `number_in` returns the number of a pull request from its address. A repository that refuses access is
    skipped, since the poll for waiting issues reports the refusal; if all repositories refuse, ForgeAccessRefused is
    raised.
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


def recent_of(
    lists: Iterable[tuple[str, ...]],
    cursor: str,
    listed: Callable[..., Iterable[tuple[TaskKey, Comment, str]]],
) -> tuple[dict[TaskKey, Comment], str]:
    """Implements `ForgeReports.recent_issues`: (the changed issues with their texts, the next cursor).

    `lists` has owner and repository of each list, and the name of the collection if a repository has several.
    `listed(owner, repository, …, since)` reads the open issues and pull requests of a list that have changed since a
    time: (task key, the issue's text as a comment, time of the last change).  Each list has a time of its own in the
    cursor, so that a list that is refused for a while is read from where it was."""
    changes = ChangeCursor.parse(cursor)
    found: dict[TaskKey, Comment] = {}
    for names in lists:
        name = "/".join(names)
        since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
        there = {f"{key.task_type} {key.task_id}": (key, text, when) for key, text, when in listed(*names, since)}
        new = changes.update(name, ((number, one[2]) for number, one in there.items()))
        found |= {there[number][0]: there[number][1] for number in new if number in there}
    return found, changes.text()


class ChangeCursor:
    """A cursor: up to which time the lists of changed issues of one forge were read. `begin`: the time from which
    changes are requested for a list that was not read before."""

    def __init__(self, begin: str, lists: dict[str, Any]) -> None:
        self.begin = begin
        self.lists = lists

    @classmethod
    def parse(cls, cursor: str) -> ChangeCursor:
        """Make a cursor from a result of `text()`, or from a time to begin at.  Raises ValueError for a text that is
        neither a cursor nor a time."""
        if not cursor.startswith("{"):
            return cls(clock.stamp(clock.parse(cursor)), {})
        found = orjson.loads(cursor)
        return cls(str(found["begin"]), dict(found["lists"]))

    def text(self) -> str:
        """The cursor of changed issues as one line of JSON."""
        return orjson.dumps({"begin": self.begin, "lists": self.lists}, option=orjson.OPT_SORT_KEYS).decode()

    def since(self, name: str) -> datetime:
        """The time from which the next request for the list `name` has to ask for changed issues: OVERLAP before the
        newest known change, or before `begin`."""
        return clock.parse(self.lists.get(name, {}).get("t") or self.begin) - OVERLAP

    def update(self, name: str, items: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Store a list of (issue number, time of change) in the cursor; returns number → time of the issues that
        changed since the last poll, and of those that are reported once more (REPEATED)."""
        known, now = self.lists.get(name, {}), clock.now()
        seen: dict[str, str] = known.get("d", {})
        again: dict[str, str] = known.get("a", {})
        found = {number: clock.stamp(clock.parse(when)) for number, when in items}
        newest = max([clock.stamp(clock.parse(known.get("t") or self.begin)), *found.values()])
        edge = clock.stamp(clock.parse(newest) - OVERLAP)
        new = {number: when for number, when in found.items() if seen.get(number) != when}
        kept = {number: when for number, when in found.items() if when >= edge}
        reported = known.get("s", {}) | dict.fromkeys(new, clock.stamp(now))
        first = {number: when for number, when in reported.items() if abs(now - clock.parse(when)) < REPEATED}
        following = {number: when for number, when in (again | new).items() if number in first}
        self.lists[name] = {"t": newest, "d": kept, "a": following, "s": first}
        return again | new
