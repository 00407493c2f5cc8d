"""The tasks that a poll has found and that are not in the ledger yet, in a fair order: a person with few requests does
not wait for a person with many.

The program makes pauses between label changes (`forge/rate_limiter.py`), so it takes minutes to queue a thousand issues
of one person. The order of the tasks is that of the ledger (`BaseLedger.reserve`): the highest priority first, and
within one priority round robin over (person who asked, repository).
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.forge import Task

Party = tuple[str, str, str]
"""Tasks with the same (person who asked, owner, repository) have the same party."""


class Backlog:
    """The tasks of one forge that wait to be put into the ledger; `len` of a Backlog is the number of these tasks.
    `priority` is a function that returns the priority of a task."""

    def __init__(self, priority: Callable[[Task], int]) -> None:
        self._priority = priority
        self._waiting: dict[tuple[int, Party], deque[Task]] = {}
        # party (person who asked, owner, repository) → number of the newest removal of one of its tasks, counted from 1
        self._last: dict[Party, int] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def replace(self, tasks: Iterable[Task]) -> None:
        """Replace the waiting tasks by `tasks`; tasks of one party (person who asked, owner, repository) and one
        priority are taken in the order of `tasks`."""
        self._waiting = {}
        for task in tasks:
            self._waiting.setdefault((self._priority(task), _party(task)), deque()).append(task)
        there = {party for _, party in self._waiting}
        self._last = {party: number for party, number in self._last.items() if party in there}

    def pop(self) -> Task:
        """Remove and return the next task: a task of the highest priority, and among these of the party (person who
        asked, owner, repository) from which a task was taken longest ago.

        Raises ValueError when no task waits.
        """
        place = min(self._waiting, key=lambda one: (-one[0], self._last.get(one[1], 0)))
        self._last[place[1]] = next(self._numbers)
        task = self._waiting[place].popleft()
        if not self._waiting[place]:
            del self._waiting[place]
        return task


def _party(task: Task) -> Party:
    key = task.get_task_key()
    return task.get_user() or "", key.owner, key.repo
