"""Checks whether the disk of base_dir is writable and has enough space.

While the disk of base_dir is not usable, no task is started; when it is usable again, the tasks that could not write
are resumed.

A task that cannot write pauses with the outcome `disk` (`worker/end_by_error.py`). The daemon resumes the paused task:
at once when a shortage of space that the daemon has detected is over, else after a pause that doubles each time,
because the path that could not be written may be on another disk than base_dir. `wiring/disk_space.py` measures the
free space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.taskqueue.row_holder import of_another_host
from agent.values import Status
from agent.wiring.disk_space import OUTCOME, free, shortage

if TYPE_CHECKING:
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

SECONDS = 5.0
FIRST_SECONDS, LONGEST_SECONDS = 20.0, 1200.0
"""Seconds that a task that could not write waits for its next attempt: the first wait, and the longest wait."""

LEFT_SECONDS = 2 * LONGEST_SECONDS
"""If another host paused a task because its files could not be written, this host resumes the task when the task's last
heartbeat is this many seconds old."""

LAST_TRIES = 2
"""The maximum number of times that `run --once`, before it ends, resumes each task that could not write."""


class DiskMonitor:
    """Monitors the disk of one base_dir. `why` is the reason why the disk lets no task start, "" when there is none."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.why = ""
        self.looked_at = -SECONDS
        # uuid of a task → (number of times the task was resumed, earliest time of the next resumption)
        self.tries: dict[str, tuple[int, float]] = {}
        self.last: dict[str, int] = {}  # uuid of a task → number of times that `check_at_end` resumed it

    def check(self) -> None:
        """Check the disk, at most every five seconds: announce a shortage of space and its end, and resume tasks that
        wait for the disk."""
        now = clock.monotonic()
        if now - self.looked_at < SECONDS:
            return
        self.looked_at = now
        waiting = self._waiting()
        before = self._check_free_space(waiting)
        if not self.why:
            items = self.wiring.items("disk_free")
            for row in waiting:
                with items.handling(row.uuid):
                    self._resume(row, now, at_once=bool(before))
            items.finish()

    def check_at_end(self) -> bool:
        """Check the disk when `run --once` is about to end, and no running task can free space any more.

        Returns True if the disk has enough space again, for the first time since the last check, or if this call
        resumed a task that could not write; else False. `check_at_end` resumes tasks for people who start the program
        only now and then: they have no daemon that would resume a task later."""
        waiting = self._waiting()
        if not self.why and not waiting:
            return False
        before = self._check_free_space(waiting)
        if self.why:
            return False
        resumed = []
        items = self.wiring.items("disk_free")
        for row in waiting:
            if (count := self.last.get(row.uuid, 0)) < LAST_TRIES:
                self.last[row.uuid] = count + 1
                with items.handling(row.uuid):
                    self._go_on(row)
                    resumed.append(row.uuid)
        items.finish()
        return bool(before or resumed)

    def _check_free_space(self, waiting: list[Row]) -> str:
        """Check the free space and announce a change; returns the reason that the previous check found."""
        before, self.why = self.why, shortage(self.wiring.settings, probe=bool(self.why or waiting))
        if self.why and not before:
            self.wiring.events.emit("disk_low", why=self.why)
        elif before and not self.why:
            self.wiring.events.emit("disk_free", free=free(self.wiring.settings.base_dir))
        return before

    def _waiting(self) -> list[Row]:
        rows = self.wiring.ledger.paused_for(OUTCOME)
        waiting = [row for row in rows if not of_another_host(row, self.wiring.settings) or self._is_left(row)]
        self.tries = {row.uuid: self.tries[row.uuid] for row in rows if row.uuid in self.tries} if waiting else {}
        return waiting

    def _is_left(self, row: Row) -> bool:
        """Whether the host that paused the row has not resumed the task for so long that the host may be gone for
        good."""
        heard = clock.parse(row.heartbeat_at or row.created_at)
        return (self.wiring.ledger.now() - heard).total_seconds() >= LEFT_SECONDS

    def _resume(self, row: Row, now: float, *, at_once: bool) -> None:
        count, until = self.tries.setdefault(row.uuid, (0, now + FIRST_SECONDS))
        if now < until and not at_once:
            return
        self.tries[row.uuid] = (count + 1, now + min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (count + 1)))
        self._go_on(row)

    def _go_on(self, row: Row) -> None:
        if self.wiring.ledger.request(row.uuid, "resume", waiting=OUTCOME) is not Status.QUEUED:
            return  # the task does not wait for the disk any more, since another request came first
        self.wiring.events.emit("task_resumed", uuid=row.uuid, why="the disk can be written again")
