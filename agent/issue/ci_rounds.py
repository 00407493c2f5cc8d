"""Counts the rounds of red (failed) CI of a pull request: the tasks that red CI has started for the pull request.

The rounds of red CI are read from the ledger. A row of the ledger has the commit that the row's task pushed last, and
the commit of the base branch below that commit. A task that red CI has started continues the task before it, and names
the red commit in `started_by`; the ledger accepts each value of `started_by` once for an issue. `intake/ci_watch.py`
starts the tasks for red CI; `worker/ci_failures.py` tells the model which checks are red.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.forge.base import ForgeReports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.forge.base import Forge
    from agent.forge.checks import Check, Checks
    from agent.taskqueue import Ledger, Row
    from agent.values import TaskKey

_STARTED = re.compile(r"ci-([0-9a-f]{40,64})")
MOST_TASKS = 100
"""Maximum number of tasks that continue one another and are read from the ledger (`line_of`)."""


@dataclass(frozen=True, slots=True)
class CiRounds:
    """One pull request of this program: its address, its branch, the commit that was pushed last (`head`), and the
    commit of the base branch below `head` ("" if unknown). `first` is the oldest task of the pull request; `made` are
    the tasks that red CI has started for the pull request, the newest first."""

    url: str
    branch: str
    head: str
    base: str
    first: Row
    made: tuple[Row, ...]

    @property
    def is_tried(self) -> bool:
        """Whether red CI of the commit `head` has started a task already."""
        return any(red_commit(row.started_by) == self.head for row in self.made)


def started_by(commit: str) -> str:
    """The value of `started_by` of a task that red CI of `commit` starts."""
    return f"ci-{commit}"


def red_commit(started: str | None) -> str:
    """The commit of which red CI has started a task; "" for a task that was started for another reason."""
    found = _STARTED.fullmatch(started or "")
    return found[1] if found else ""


def line_of(ledger: Ledger, row: Row) -> Iterator[Row]:
    """The row of a task and those of the tasks that it continues, the newest first, at most MOST_TASKS."""
    now: Row | None = row
    for _ in range(MOST_TASKS):
        if now is None:
            return
        yield now
        now = ledger.get(now.parent_uuid) if now.parent_uuid else None


def rounds_of(ledger: Ledger, row: Row) -> CiRounds | None:
    """The CiRounds of the pull request to which the task of `row` and the tasks before it belong; None if these tasks
    have no pull request, or if no pushed commit is known."""
    rows: list[Row] = []
    url, newest = None, ledger.get(row.uuid)
    for now in line_of(ledger, newest) if newest is not None else ():
        if url is not None and now.url not in (None, url):
            break
        rows.append(now)
        url = url or now.url
    pushed = next((one for one in rows if one.head_commit), None)
    if pushed is None or not url or not pushed.branch:
        return None
    made = tuple(one for one in rows if red_commit(one.started_by))
    return CiRounds(url, pushed.branch, str(pushed.head_commit), pushed.base_commit or "", rows[-1], made)


def red_checks(forge: Forge, key: TaskKey, rounds: CiRounds) -> tuple[Checks, tuple[Check, ...]]:
    """(the checks of the commit `rounds.head`, the checks that failed on that commit and not on the base; if the base
    is unknown, all that failed). Raises ForgeError."""
    reports = ForgeReports(forge)
    checks = reports.checks(key, rounds.head, rounds.url)
    if not checks.failed() or not rounds.base:
        return checks, checks.failed()
    return checks, checks.failed(reports.checks(key, rounds.base))
