"""Decides whether a task may be the cause of its worker's death: only then does the death count against the task
(`poison`).

| how the worker ended | may the task be the cause |
|---|---|
| with an exit code above 0, or by a signal that a process causes itself (SIGSEGV, SIGABRT, SIGBUS …) | yes |
| by SIGKILL, and the kernel's count of out-of-memory kills has grown meanwhile, or is not known | yes |
| the watchdog ended the worker because a step hung | yes |
| by another SIGKILL, or by SIGTERM, SIGINT, SIGHUP: a person or a program killed the worker | no |
| the machine of the worker was rebooted, or is another machine | no |
| unknown: the worker died while its daemon was dead too | no |
| unknown, while its daemon was alive | yes |
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.taskqueue.row_holder import machine

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.taskqueue import Row

BY_OTHERS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
VMSTAT = Path("/proc/vmstat")


class CrashBlame:
    """Records how the workers of one daemon ended."""

    def __init__(self) -> None:
        self.since = clock.stamp()
        # uuid → (pid of its newest worker, whether the task may be the cause)
        self.known: dict[str, tuple[int | None, bool]] = {}

    def record_end(self, uuid: str, pid: int | None, code: int, kills: int | None) -> None:
        """Record that a worker has ended with this exit code; `kills` is the kernel's count of out-of-memory kills when
        the worker was started."""
        number = -code
        if code >= 0:
            blamed = code != 0
        elif number == signal.SIGKILL:
            blamed = kills is None or memory_kills() != kills
        else:
            blamed = number not in BY_OTHERS
        # if the watchdog killed this worker, the entry by `record_hang` stays
        if self.known.get(uuid) != (pid, True):
            self.known[uuid] = (pid, blamed)

    def record_hang(self, uuid: str, pid: int) -> None:
        """Record that the watchdog ends this worker because a step hangs."""
        self.known[uuid] = (pid, True)

    def forget_others(self, uuids: Collection[str]) -> None:
        """Drop the recorded ends of workers for tasks that are not in `uuids`: only the rows of running tasks are
        evaluated."""
        self.known = {uuid: end for uuid, end in self.known.items() if uuid in uuids}

    def may_be_the_task(self, row: Row) -> bool:
        """Whether the task may have caused the death of its worker; `row` is a running row with a dead holder, before
        it is requeued.
        """
        if row.lease_owner is not None and row.lease_owner.partition(":")[0] != machine():
            return False
        pid, blamed = self.known.get(row.uuid, (None, False))
        if pid is not None and pid == row.process_id:
            return blamed
        return (row.heartbeat_at or "") >= self.since


def memory_kills() -> int | None:
    """The number of processes that the kernel has killed since boot because memory was exhausted; None if the kernel
    does not report it (before Linux 4.13)."""
    try:
        lines = VMSTAT.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
