"""Represents the processes that a supervisor has started: one object for each living process, and the exit codes of
those that ended.

`supervisor.py` starts the worker processes and reads their reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.daemon.crash_blame import memory_kills
from agent.worker.worker import EXIT_DRAINED

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

REMEMBERED = 10_000
"""The maximum number of tasks for which a daemon remembers the exit code by uuid, since it may live for months."""


@dataclass
class WorkerProcess:
    """One worker of this daemon.

    `heard` is True when the worker has reported that it owns the row (`claimed`), or why it does not (`why`), or has
    ended without a report.
    """

    process: ForkServerProcess
    report: Connection
    claimed: bool = False
    heard: bool = False
    why: str = ""
    kills: int | None = field(default_factory=memory_kills)


class ExitCodes:
    """The exit code of the newest worker of each task: by uuid for the last `most` tasks, and as a set of codes for
    earlier tasks."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self.most = most
        self.last: dict[str, int] = {}  # uuid → exit code; the task that was recorded last is at the end
        self.before: set[int] = set()

    def record(self, uuid: str, code: int) -> None:
        """Record that a worker of the task has ended, or could not be started."""
        self.last.pop(uuid, None)
        self.last[uuid] = code
        if len(self.last) > self.most:
            self.before.add(self.last.pop(next(iter(self.last))))

    def codes(self) -> set[int]:
        """All exit codes that were recorded for workers of this daemon."""
        return self.before | set(self.last.values())

    def worst(self) -> int:
        """The exit code of the whole daemon: 0 if every task went well or was drained, 3 if the environment caused all
        failures, else 1."""
        codes = self.codes() - {0, EXIT_DRAINED}
        return 0 if not codes else 3 if codes == {3} else 1
