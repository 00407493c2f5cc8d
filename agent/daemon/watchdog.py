"""Monitors workers from outside: ends a worker that hangs, and a worker with processes that use too much memory.

A worker renews its lease only while its work makes progress (`worker/lease.py`). If the lease has expired although the
worker lives and holds the lock of its folder, a step of the worker has exceeded its own time-out. The watchdog first
requests a stack trace, which is written to `worker.log`, then ends the process and its process tree; the row is
requeued, and that counts as a death.

A worker that was stopped (SIGSTOP, a debugger), or that runs on a machine that slept, does not count as hung: the
watchdog measures for how long its *own* process, awake, has seen the lease expired. The watchdog also works if somebody
sets the clock: a lease that was not renewed for its whole length counts as expired, even if the time in it is in the
future, and a lease that is renewed does not. Workers that an earlier daemon started are monitored like this daemon's
own. docs/operations.md, "Processes of a task", describes the rules.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import clock, proc, process_tree
from agent.context.manager import LEASE_SECONDS
from agent.errors import DiskError, Fenced, LedgerError
from agent.taskqueue.row_holder import living_holder
from agent.values import End, Outcome, Status
from agent.worker import process_groups, unpublished_work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

SECONDS, MOST_SECONDS = 2.0, 10.0
"""Minimum seconds between two checks of the workers, and the maximum if a check takes long."""
LOOKS = 50
"""The pause between two checks of the workers as a multiple of the CPU time of a check, between SECONDS and
MOST_SECONDS, so that the checks of hundreds of workers cost about 2 % of a core."""
HUNG_SECONDS = 60.0
"""Seconds with an expired lease after which the worker counts as hung: three times as long as a worker that was asleep
needs to renew its lease."""

TRACE_SECONDS = 2.0
"""Seconds that a hung worker has to write its stack trace before it is killed."""


@dataclass
class TooLarge:
    """A worker that was ended because its task needs too much memory: the worker's pid, and the bytes that it used
    (None if the kernel ended it). `left` is True if the work of the task waits to be published."""

    pid: int
    used: int | None
    left: bool = False


class Watchdog:
    """Monitors the workers of one base_dir.

    `hung` is a function that is called with (uuid, pid) before a worker that hangs is ended. `rows` returns the rows
    that run on this host; if it is None, the ledger is queried.
    """

    def __init__(
        self,
        wiring: Wiring,
        hung: Callable[[str, int], None] = lambda _uuid, _pid: None,
        rows: Callable[[], list[Row]] | None = None,
    ) -> None:
        self.wiring = wiring
        self.hung = hung
        self.rows = rows or wiring.ledger.running_here
        self.limit = wiring.settings.limits.memory
        self.most = process_groups.in_bytes(self.limit)
        self.looked_at = -SECONDS
        self.seconds = SECONDS
        # (uuid, attempt) → (the lease of that attempt, the time since which the lease has that value)
        self.leases: dict[tuple[str, int], tuple[str | None, float]] = {}
        # (uuid, attempt) → the time since which the attempt's lease is seen as expired
        self.over: dict[tuple[str, int], float] = {}
        self.asked: dict[tuple[str, int], float] = {}  # (uuid, attempt) → the time at which a stack trace was requested
        # uuid → the worker that was ended because of its memory, until the row records this
        self.too_large: dict[str, TooLarge] = {}

    def check(self) -> bool:
        """Check the workers; does nothing if the last check was less than `self.seconds` (SECONDS to MOST_SECONDS) ago.
        Returns whether a worker was ended."""
        now = clock.monotonic()
        if now - self.looked_at < self.seconds:
            return False
        self.looked_at, begun = now, time.thread_time()
        try:
            return self._check_workers(now)
        finally:
            self.seconds = min(MOST_SECONDS, max(SECONDS, LOOKS * (time.thread_time() - begun)))

    def _check_workers(self, now: float) -> bool:
        items = self.wiring.items("watchdog")
        held = []
        for row in self.rows():
            with items.handling(row.uuid):
                if (pid := living_holder(row.lease_owner)) is not None and pid != os.getpid():
                    held.append((row, pid))
        current = {(row.uuid, row.attempt) for row, _ in held}
        self.leases = {key: said for key, said in self.leases.items() if key in current}
        for seen in (self.over, self.asked):
            for key in set(seen) - current:
                del seen[key]
        ended = False
        # one scan of all processes of the machine serves for hundreds of workers
        known = process_tree.parents() if held and self.most is not None else {}
        used: dict[int, int] = {}
        for row, pid in held:
            with items.handling(row.uuid):
                if self.most is not None and pid not in used:
                    used[pid] = process_tree.memory_of(pid, known=known, enough=self.most)
                ended |= self._check_worker(row, pid, now, used.get(pid, 0))
        items.finish()
        return ended

    def _check_worker(self, row: Row, pid: int, now: float, used: int) -> bool:
        if self.most is not None and used > self.most:
            self._too_large(row, pid, used)
            return True
        return self._hangs(row, pid, now)

    def _hangs(self, row: Row, pid: int, now: float) -> bool:
        key = (row.uuid, row.attempt)
        if not self._is_over(row, key, now) or process_tree.is_stopped(pid):
            self.over.pop(key, None)
            return False
        since = self.over.setdefault(key, now)
        if now - since < HUNG_SECONDS:
            return False
        if key not in self.asked:
            self.asked[key] = now
            self.wiring.events.emit("worker_hung", uuid=row.uuid, pid=pid, heartbeat=row.heartbeat_at)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR1)
        if now - self.asked[key] < TRACE_SECONDS:
            return False
        self.hung(row.uuid, pid)
        end_worker(self.wiring.settings.base_dir, row.uuid, pid)
        return True

    def _is_over(self, row: Row, key: tuple[str, int], now: float) -> bool:
        if self.leases.get(key, (None, now))[0] != row.lease_until:
            self.leases[key] = (row.lease_until, now)
        if row.lease_until is None:
            return False
        unchanged = now - self.leases[key][1]
        return row.lease_until < clock.stamp(self.wiring.db.now()) or unchanged > LEASE_SECONDS

    def _too_large(self, row: Row, pid: int, used: int) -> None:
        """End a worker and its task (`close_too_large`): a task that needs too much memory for this machine would need
        as much in a further attempt."""
        self.wiring.events.emit("task_too_large", uuid=row.uuid, pid=pid, bytes=used, limit=self.most)
        end_worker(self.wiring.settings.base_dir, row.uuid, pid)
        self.note_too_large(row.uuid, pid, used)

    def note_too_large(self, uuid: str, pid: int, used: int | None = None) -> None:
        """Record that the worker `pid` is gone because its task needs too much memory for this machine (`used` is None
        if the kernel ended it). The record stays in memory until the row records the end, and each sweep tries to write
        the row, since the fact cannot be determined again."""
        self.too_large[uuid] = TooLarge(pid, used)
        with suppress(LedgerError, DiskError):
            self.close_too_large(uuid)

    def close_if_over_limit(self, uuid: str, pid: int | None) -> None:
        """Close the task of the worker `pid` if the kernel killed it because the task exceeded its memory limit."""
        if pid is not None and self.limit is not None and process_groups.ran_over(self.wiring.settings.base_dir, uuid):
            self.note_too_large(uuid, pid)

    def is_too_large(self, row: Row) -> bool:
        """Whether the row's worker was ended because of its memory and the row does not record this yet."""
        return row.uuid in self.too_large and self.too_large[row.uuid].pid == row.process_id

    def close_too_large(self, uuid: str) -> None:
        """Close the row of a task that needs too much memory.

        If the task has done any work, one more worker publishes the work and closes the row. Raises LedgerError or
        DiskError if the row cannot be written now.
        """
        row = self.wiring.ledger.get(uuid)
        one = self.too_large[uuid]
        if row is not None and self.limit is not None and (row.status, row.process_id) == (Status.RUNNING, one.pid):
            why = process_groups.too_large(self.limit, one.used)
            outcome = Outcome(End.FAILED, why, code="memory")
            with suppress(Fenced):  # the row has another holder or end by now, so nothing is written
                one.left = one.left or unpublished_work.leave_to_publish(self.wiring, row, outcome)
                if one.left:
                    self.wiring.ledger.release(uuid, row.attempt)
                else:
                    self.wiring.ledger.finish(uuid, row.attempt, Status.FAILED, error_message=why, error_code="memory")
                if one.used is None:
                    self.wiring.events.emit("task_too_large", uuid=uuid, pid=one.pid, bytes=self.most, limit=self.most)
        del self.too_large[uuid]


def end_worker(base_dir: Path, uuid: str, pid: int) -> None:
    """End a worker and all processes below it."""
    below = process_tree.descendants(pid)
    proc.kill_group(pid)
    for one in (pid, *below):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    proc.wait_gone(pid, collect=False)
    process_groups.end_tree(base_dir, uuid)
