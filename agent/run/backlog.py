"""What a poll has found and nobody has taken yet: who asked for little does not wait for who asked for much.

Showing on a forge that an issue is taken is paced, so a thousand issues of one person take minutes to be queued.  The
order is round robin over (who asked, repository), as in the ledger (`BaseLedger.take`).  Used by `producer.py`.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.forge import Task

Party = tuple[str, str, str]
"""(who asked, owner, repository)."""


class Backlog:
    """Tasks of one forge.  Its length is how many wait."""

    def __init__(self) -> None:
        self._waiting: dict[Party, deque[Task]] = {}
        self._last: dict[Party, int] = {}  # … → the number of the task that it got last
        self._numbers = count(1)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def replace(self, tasks: Iterable[Task]) -> None:
        """These wait now, in this order within one pair, and no others."""
        self._waiting = {}
        for task in tasks:
            self._waiting.setdefault(_party(task), deque()).append(task)
        self._last = {party: number for party, number in self._last.items() if party in self._waiting}

    def pop(self) -> Task:
        """The next one: of the pair that was served longest ago.  ValueError when none waits."""
        party = min(self._waiting, key=lambda one: self._last.get(one, 0))
        self._last[party] = next(self._numbers)
        task = self._waiting[party].popleft()
        if not self._waiting[party]:
            del self._waiting[party]
        return task


def _party(task: Task) -> Party:
    key = task.get_task_key()
    return task.get_user() or "", key.owner, key.repo
