"""Requeues the running rows of workers of this base_dir that died, after the processes that they left have been killed.

Rows and locks show which workers live, so workers of a daemon that was killed count too.  The same sweep closes or
releases rows of workers that ended and could not write their row.  `supervisor.py` calls `requeue` at each sweep and
after each worker that a signal or the watchdog ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent import proc
from agent.daemon.finalize import move_leftovers
from agent.daemon.lost_rows import LostRows
from agent.daemon.reconcile import adopt_ended, reconcile
from agent.errors import DiskError, LedgerError
from agent.issue.status import announce
from agent.store.jsonl import last_record
from agent.taskqueue import alive_by_lock
from agent.taskqueue.row_holder import is_alone, living_holder
from agent.values import End, Outcome, Status
from agent.worker import process_groups, unpublished_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.daemon.crash_blame import CrashBlame
    from agent.daemon.rows_here import RowsHere
    from agent.daemon.self_check import SelfCheck
    from agent.daemon.watchdog import Watchdog
    from agent.daemon.worker_process import WorkerProcess
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring


class DeadRows:
    """The rows of dead workers of one base_dir.

    `children` are the workers of this daemon.  `owed` maps a uuid to the pid of a worker that could not release its row
    itself; each sweep tries to release the row.
    """

    def __init__(
        self,
        wiring: Wiring,
        children: Mapping[str, WorkerProcess],
        *,
        here: RowsHere,
        watchdog: Watchdog,
        blame: CrashBlame,
        ground: SelfCheck,
    ) -> None:
        self.wiring = wiring
        self.children = children
        self.here = here
        self.watchdog = watchdog
        self.blame = blame
        self.ground = ground
        self.settings = wiring.settings
        self.ledger = wiring.ledger
        self.events = wiring.events
        self.holds_lock = alive_by_lock(self.settings.base_dir)
        self.lost_rows = LostRows(wiring)
        self.owed: dict[str, int] = {}

    def requeue(self) -> None:
        """Make one sweep: release the rows that a worker could not release itself, restore lost rows and folders,
        requeue running rows with a dead holder after the processes that the holder left have been killed, and move
        folders of closed rows."""
        self._settle_owed()
        self._restore_lost()
        self.ledger.repair_future_times()
        settled: list[Row] = []
        if adopt_ended(self.wiring, self.here.read()):
            self.here.forget()
        found = self.ledger.requeue_dead(
            self.is_alive,
            on_settled=settled.append,
            # with a local ledger, all workers run on this machine, and their locks show which of them live
            everywhere=is_alone(self.settings),
            tool_calls=self._tool_calls,
            publish=self._publish,
            blamed=self.blame.may_be_the_task,
        )
        for uuid in found:
            self.events.emit("task_requeued", uuid=uuid, why="its worker died")
        for row in settled:
            if row.status is Status.FAILED:
                self.events.emit("task_ended", uuid=row.uuid, status="failed", end="failed", code=row.error_code)
            else:
                announce(self.events, row.uuid, row.status, row.attempt, "its worker died")
        if found or settled:
            self.here.forget()
        if self.blame.known:
            self.blame.forget_others({row.uuid for row in self.here.read()})
        move_leftovers(self.wiring, self.here.read())
        process_groups.remove(self.settings.base_dir)

    def release(self, uuid: str, pid: int, why: str) -> None:
        """Release the row of a worker that the daemon killed, or that ended without writing its row; if the row cannot
        be written now, each sweep tries it again."""
        self.owed[uuid] = pid
        with suppress(LedgerError, DiskError):
            row = self.ledger.get(uuid)
            if row is not None and row.status is Status.RUNNING and row.process_id == pid:
                announce(self.events, uuid, self.ledger.release(uuid, row.attempt), row.attempt, why)
            del self.owed[uuid]

    def is_alive(self, row: Row) -> bool:
        """Whether the row, which belongs to this base_dir, has a live worker, or one of which the watchdog handles the
        end; before False is returned, the processes of the task are killed."""
        child = self.children.get(row.uuid)
        if child is not None and child.process.exitcode is None:
            return True
        # the watchdog closes the row of a worker that it ended because of the memory limit, so the row must not be
        # queued again
        if self.watchdog.is_too_large(row) or self.holds_lock(row):
            return True
        pid = living_holder(row.lease_owner)
        if pid is not None and proc.has_title(pid, f"makimono: {row.uuid}"):
            # the worker lives although nobody holds its lock, since the task's folder was removed
            proc.kill_group(pid)
            proc.wait_gone(pid)
        process_groups.end_tree(self.settings.base_dir, row.uuid)
        return False

    def _settle_owed(self) -> None:
        """Write the rows that could not be written when their worker ended."""
        if self.owed or self.watchdog.too_large:
            self.here.forget()
        items = self.wiring.items("give_back")
        for uuid, pid in list(self.owed.items()):
            with items.handling(uuid):
                self.release(uuid, pid, why="it could not write its row")
        for uuid in list(self.watchdog.too_large):
            with items.handling(uuid):
                self.watchdog.close_too_large(uuid)
        items.finish()

    def _restore_lost(self) -> None:
        """Restore rows and folders if base_dir or tasks.db was replaced, or if rows are missing."""
        replaced = self.ground.check()
        if replaced:
            reconcile(self.wiring)
        if replaced or self.lost_rows.restore():
            self.ground.lost.set()
            self.here.forget()

    def _publish(self, row: Row, code: str, message: str) -> bool:
        """If a task's workers die repeatedly, leave its work to one more worker, which publishes it; returns whether
        the task has any work."""
        return unpublished_work.leave_to_publish(self.wiring, row, Outcome(End.FAILED, message, code=code))

    def _tool_calls(self, row: Row) -> int:
        """The number of tool calls in the files of a row of this base_dir, which show the progress of a process that
        dies in a long turn; the row itself does not show this progress."""
        newest = None
        with suppress(OSError):  # an unreadable file of tool calls counts as no progress
            newest = last_record(self.settings.base_dir / "running" / row.uuid / "tools.jsonl")
        return int(newest["seq"]) if newest else 0
