"""Whether a task may be the cause of its worker's death: only then the death counts against it (`poison`).

| how the worker ended | may be the task |
|---|---|
| an exit code, or a signal that a process brings upon itself (SIGSEGV, SIGABRT, SIGBUS …) | yes |
| SIGKILL, and the kernel has killed something for want of memory meanwhile | yes |
| the watchdog ended it, since a step hung | yes |
| SIGKILL else, SIGTERM, SIGINT, SIGHUP: somebody killed it | no |
| its machine was started again, or is another one | no |
| nobody knows: it died while its daemon was dead too | no |
| nobody knows, under a daemon that lived | yes |
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.taskqueue.identity import machine

if TYPE_CHECKING:
    from agent.taskqueue import Row

BY_OTHERS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
VMSTAT = Path("/proc/vmstat")


class Blame:
    """What one daemon knows of the ends of its workers."""

    def __init__(self) -> None:
        self.since = clock.stamp()
        self.known: dict[str, tuple[int | None, bool]] = {}  # uuid → (pid of its newest worker, whether it may be)

    def note(self, uuid: str, pid: int | None, code: int, kills: int | None) -> None:
        """A worker has ended with this exit code; `kills`: those of the kernel when it was started."""
        number = -code
        if code >= 0:
            blamed = code != 0
        elif number == signal.SIGKILL:
            blamed = kills is None or memory_kills() != kills
        else:
            blamed = number not in BY_OTHERS
        if self.known.get(uuid) != (pid, True):  # it was ended, since it hung
            self.known[uuid] = (pid, blamed)

    def hung(self, uuid: str, pid: int) -> None:
        """The watchdog ended it."""
        self.known[uuid] = (pid, True)

    def may_be_the_task(self, row: Row) -> bool:
        """Of a row whose holder is dead."""
        if row.lease_owner is not None and row.lease_owner.partition(":")[0] != machine():
            return False
        pid, blamed = self.known.get(row.uuid, (None, False))
        if pid is not None and pid == row.process_id:
            return blamed
        return (row.heartbeat_at or "") >= self.since


def memory_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it was started; None where it does not say
    (before Linux 4.13)."""
    try:
        lines = VMSTAT.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
