"""How often CI of a pull request has been answered: the tasks that red CI has started for it.

The ledger has all of it.  A row has the commit that its task pushed last and the commit of the base below it.  A task
that red CI has started continues the task before it, and names the red commit in `started_by`, which the ledger takes
once for an issue.  `intake/ci_watch.py` starts these tasks, `worker/ci_failures.py` tells the model what is red.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.forge.base import ForgeReports

if TYPE_CHECKING:
    from agent.forge.base import Forge
    from agent.forge.checks import Check, Checks
    from agent.taskqueue import Ledger, Row
    from agent.values import TaskKey

_STARTED = re.compile(r"ci-([0-9a-f]{40,64})")
MOST_TASKS = 100
"""Maximum number of tasks in a row that are read for one pull request."""


@dataclass(frozen=True, slots=True)
class CiRounds:
    """One pull request of this program: its address, the commit that was pushed last, and the commit of the base below
    it ("" if unknown).  `first` is the task that opened it, `made` are the tasks that red CI has started, the newest
    first."""

    url: str
    branch: str
    head: str
    base: str
    first: Row
    made: tuple[Row, ...]

    @property
    def is_tried(self) -> bool:
        """Whether red CI of this very commit has started a task already."""
        return any(red_commit(row.started_by) == self.head for row in self.made)


def started_by(commit: str) -> str:
    """The value of `started_by` of the task that red CI of this commit starts."""
    return f"ci-{commit}"


def red_commit(started: str | None) -> str:
    """The commit whose red CI has started a task; "" for a task that something else has started."""
    found = _STARTED.fullmatch(started or "")
    return found[1] if found else ""


def rounds_of(ledger: Ledger, row: Row) -> CiRounds | None:
    """The pull request of the newest task of an issue; None if the task has pushed none, or nothing to it is known."""
    rows: list[Row] = []
    url, now = None, ledger.get(row.uuid)
    while now is not None and len(rows) < MOST_TASKS and (url is None or now.url in (None, url)):
        rows.append(now)
        url = url or now.url
        now = ledger.get(now.parent_uuid) if now.parent_uuid else None
    pushed = next((one for one in rows if one.head_commit), None)
    if pushed is None or not url or not pushed.branch:
        return None
    made = tuple(one for one in rows if red_commit(one.started_by))
    return CiRounds(url, pushed.branch, str(pushed.head_commit), pushed.base_commit or "", rows[-1], made)


def red_checks(forge: Forge, key: TaskKey, rounds: CiRounds) -> tuple[Checks, tuple[Check, ...]]:
    """(the checks of the head, those that failed there and not on the base).  Raises ForgeError."""
    reports = ForgeReports(forge)
    checks = reports.checks(key, rounds.head, rounds.url)
    if not checks.failed() or not rounds.base:
        return checks, checks.failed()
    return checks, checks.failed(reports.checks(key, rounds.base))
