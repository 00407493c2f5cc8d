"""Looks after workers from outside: one that hangs, and one whose processes hold too much memory.

A worker keeps its lease only while its work gets on (`lease.py`).  So a lease that is over while the process lives and
its folder's lock is held means that a step has outlived its own time-out: the process is asked where it hangs (a trace
in its `worker.log`), then it and its tree are ended; the row goes back, and that counts as a death.  A stopped process
(SIGSTOP, a debugger) and a machine that slept are not judged: what counts is how long *this* process, awake, has seen
the lease over.  Nor is a clock trusted that was set: a lease that nobody renews for its length is over whatever it
says, and one that is renewed is not.  Workers of an earlier daemon are looked after like our own.  Called by
`Supervisor.step`.  Durability facts: section 4.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent import clock, proc, process_tree
from agent.context.manager import LEASE_SECONDS
from agent.errors import DiskError, LedgerError
from agent.run import groups, later
from agent.taskqueue.identity import living_holder
from agent.values import End, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

SECONDS = 2.0
HUNG_SECONDS = 60.0
"""How long a lease may be seen to be over before its holder counts as hung: three times as long as it takes a worker
that was asleep to renew it."""

TRACE_SECONDS = 2.0
"""Time for writing the trace."""


class Watchdog:
    """Judges the workers of one base_dir.  `hung` hears of one (uuid, pid) that is about to be ended for that."""

    def __init__(self, wiring: Wiring, hung: Callable[[str, int], None] = lambda _uuid, _pid: None) -> None:
        self.wiring = wiring
        self.hung = hung
        self.limit = wiring.settings.limits.memory
        self.most = groups.in_bytes(self.limit)
        self.looked_at = -SECONDS
        self.leases: dict[tuple[str, int], tuple[str | None, float]] = {}  # … → its lease, since when it says that
        self.over: dict[tuple[str, int], float] = {}  # (uuid, attempt) → since when its lease is seen to be over
        self.asked: dict[tuple[str, int], float] = {}  # … → when it was asked for a trace

    def look(self) -> bool:
        """A look, every two seconds at most; whether a worker was ended."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return False
        self.looked_at = now
        items = self.wiring.items("watchdog")
        held = []
        for row in self.wiring.ledger.running_here():
            with items.one(row.uuid):
                if (pid := living_holder(row.lease_owner)) is not None and pid != os.getpid():
                    held.append((row, pid))
        current = {(row.uuid, row.attempt) for row, _ in held}
        self.leases = {key: said for key, said in self.leases.items() if key in current}
        for seen in (self.over, self.asked):
            for key in set(seen) - current:
                del seen[key]
        ended = False
        for row, pid in held:
            with items.one(row.uuid):
                ended |= self._judge(row, pid, now)
        items.end()
        return ended

    def _judge(self, row: Row, pid: int, now: float) -> bool:
        if self.most is not None and (used := process_tree.memory_of(pid)) > self.most:
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
        """End it and close its row: a task that is too large for this machine is too large the next time as well."""
        assert self.limit is not None
        self.wiring.events.emit("task_too_large", uuid=row.uuid, pid=pid, bytes=used, limit=self.most)
        end_worker(self.wiring.settings.base_dir, row.uuid, pid)
        close_too_large(self.wiring, row, self.limit, used)


def close_too_large(wiring: Wiring, row: Row, limit: int | str, used: int | None = None) -> None:
    """Close the row of a task whose worker is gone and which is too large for this machine.  Where it has done
    something, one more worker publishes that and closes it."""
    message = groups.too_large(limit, used)
    with suppress(LedgerError, DiskError):  # it ended by itself meanwhile; or the next look finds it
        if later.leave_to_publish(wiring, row, Outcome(End.FAILED, message, code="memory")):
            wiring.ledger.release(row.uuid, row.attempt)
            return
        wiring.ledger.end(row.uuid, row.attempt, Status.FAILED, error_message=message, error_code="memory")


def end_worker(base_dir: Path, uuid: str, pid: int) -> None:
    """End a worker and everything below it."""
    below = process_tree.descendants(pid)
    proc.kill_group(pid)
    for one in (pid, *below):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    proc.wait_gone(pid, collect=False)
    groups.end_tree(base_dir, uuid)


@contextmanager
def traceable(log: Path) -> Iterator[None]:
    """Inside, SIGUSR1 makes this process write to `log` where each of its threads is, also while it hangs in C; to
    stderr where that file cannot be opened."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        descriptor = os.dup(2)
    faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        os.close(descriptor)
