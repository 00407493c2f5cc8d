"""Start workers, at most `scheduling.max_workers` at once, and put the tasks of dead ones back.

The ledger is the only truth: what runs is what the rows say and what holds a lock, so workers of a daemon that was
killed count too.  Workers come from a forkserver with everything common preloaded; `step` is called a few times a
second by `run/daemon.py` and never waits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import clock, proc
from agent.observe.events import Events
from agent.run import worker
from agent.run.closing import close_leftovers
from agent.run.watch import Watch
from agent.taskqueue import alive_by_lock
from agent.values import Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from agent.run.courier import Courier
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

SWEEP_SECONDS = 5.0
REFUSED_SECONDS = 300.0
MANY = 16
"""Workers from which on a longer start of the forkserver pays (`run/preload_many.py`)."""


@dataclass
class Child:
    """One worker of this daemon.  `claimed` turns true when it reports that the row is its own."""

    process: ForkServerProcess
    report: Connection
    claimed: bool = False


class Supervisor:
    """Workers of one base_dir.  `heard` announces what they log (`watch.py`); `courier` brings what a broker says
    (`courier.py`); without `starts` nothing is started (the role of a producer)."""

    def __init__(
        self, wiring: Wiring, heard: Events | None = None, *, courier: Courier | None = None, starts: bool = True
    ) -> None:
        self.wiring = wiring
        self.courier = courier
        self.starts = starts
        self.settings = wiring.settings
        self.ledger = wiring.ledger
        self.owner = wiring.owner
        self.events = wiring.events
        self.alive_by_lock = alive_by_lock(self.settings.base_dir)
        self.watch = Watch(self.settings.base_dir, heard or Events())
        self.children: dict[str, Child] = {}
        self.exit_codes: dict[str, int] = {}
        self.refusals: dict[str, tuple[int, float]] = {}  # uuid → (workers that ended without a claim, not before)
        self.draining = False
        self.swept_at = -SWEEP_SECONDS
        self.context = multiprocessing.get_context("forkserver")
        postgres = self.settings.taskqueue.ledger.startswith("postgresql:")
        self.context.set_forkserver_preload(
            [
                *(["psycopg", "agent.store.postgres"] if postgres else []),
                "agent.run.preload_many" if self.settings.scheduling.max_workers >= MANY else "agent.run.preload",
            ]
        )

    def step(self) -> None:
        """Reap what ended, put dead tasks back, start what is due and fits."""
        self.watch.look(self.children)
        self.reap()
        now = clock.monotonic()
        if now - self.swept_at >= SWEEP_SECONDS:
            self.swept_at = now
            self.sweep()
        if not self.draining:
            self.start_due()

    def busy(self) -> bool:
        """Whether a worker of this daemon is alive."""
        return bool(self.children)

    def reap(self) -> None:
        """Collect reports and ended workers."""
        for uuid, child in list(self.children.items()):
            if not child.claimed and child.report.poll():
                try:
                    child.claimed = child.report.recv() == "claimed"
                except EOFError:
                    child.claimed = False
                self.settle(uuid)
                if child.claimed:
                    self.events.emit("task_claimed", uuid=uuid, pid=child.process.pid)
            if child.process.exitcode is None:
                continue
            child.process.join()
            child.report.close()
            self.watch.end(uuid)
            self.settle(uuid)
            del self.children[uuid]
            self.exit_codes[uuid] = child.process.exitcode
            if child.process.exitcode != 0 and not child.claimed:
                count = self.refusals.get(uuid, (0, 0.0))[0] + 1
                self.refusals[uuid] = (count, clock.monotonic() + min(REFUSED_SECONDS, 2.0**count))
            if child.process.exitcode < 0:
                proc.end_tree(uuid)
                self.events.emit("worker_died", uuid=uuid, signal=-child.process.exitcode)
                self.sweep()
            child.process.close()

    def sweep(self) -> None:
        """Rows that run without a living holder go back to the queue, after what they left running is ended."""
        poisoned: list[Row] = []
        for uuid in self.ledger.requeue_dead(self.is_alive, on_poison=poisoned.append):
            self.events.emit("task_requeued", uuid=uuid, why="its worker died")
        for row in poisoned:
            self.events.emit("task_ended", uuid=row.uuid, status="failed", end="failed", code="poison")
        close_leftovers(self.wiring)

    def is_alive(self, row: Row) -> bool:
        """A row of this base_dir lives while somebody holds its lock; ends the tree of a dead one."""
        child = self.children.get(row.uuid)
        if child is not None and child.process.exitcode is None:
            return True
        if self.alive_by_lock(row):
            return True
        proc.end_tree(row.uuid)
        return False

    def start_due(self) -> None:
        """Start queued tasks, oldest and most urgent first, while there is room."""
        if not self.starts:
            return
        room = max(0, self.settings.scheduling.max_workers - self.running())
        if self.courier is not None and self.courier.connected:
            self.start_arrived(self.courier, room)
        elif room > 0:
            for uuid in self.startable()[:room]:
                self.start(uuid)

    def start_arrived(self, courier: Courier, room: int) -> None:
        """Start what the broker brought.  A message about a row that is not queued, or has a worker, is let go."""
        for uuid in courier.take(room):
            row = None if uuid in self.children or uuid in self.hindered() else self.ledger.get(uuid)
            if row is not None and row.status is Status.QUEUED:
                self.start(uuid)
                room -= 1
            else:
                courier.settle(uuid)
        courier.room = room

    def settle(self, uuid: str) -> None:
        """The broker's message about the task, if there was one, has done its work."""
        if self.courier is not None:
            self.courier.settle(uuid)

    def startable(self) -> list[str]:
        """Queued tasks that are due, less those that have a worker and those whose workers could not even claim them:
        these wait longer each time (their folder cannot be written, say)."""
        hindered = self.hindered()
        limit = self.settings.scheduling.max_workers + len(self.children) + len(hindered)
        return [uuid for uuid in self.ledger.due(limit) if uuid not in self.children and uuid not in hindered]

    def hindered(self) -> set[str]:
        """Tasks whose workers could not even claim them, and that wait for the next try."""
        now = clock.monotonic()
        return {uuid for uuid, (_, until) in self.refusals.items() if now < until}

    def running(self) -> int:
        """Workers of this base_dir: rows that run, and children that have not claimed yet."""
        rows = {row.uuid for row in self.ledger.list(status="running") if self.ledger.is_mine(row, self.owner)}
        return len(rows | set(self.children))

    def start(self, uuid: str) -> None:
        """Fork one worker."""
        self.watch.begin(uuid)
        receive, send = self.context.Pipe(duplex=False)
        process = self.context.Process(target=worker.main, args=(self.settings, uuid, send), daemon=False)
        process.start()
        send.close()
        self.children[uuid] = Child(process, receive)

    def worst_exit(self) -> int:
        """0 when every task of this daemon went well, 1 when one failed, 3 when all failures were the surroundings'."""
        codes = {code for code in self.exit_codes.values() if code not in (0, worker.EXIT_DRAINED)}
        return 0 if not codes else 3 if codes == {3} else 1

    def drain(self) -> None:
        """Start nothing more; tell every worker to end at its next turn and give its row back."""
        self.draining = True
        self.fetch_nothing()
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every worker and its tree now; the rows go back to the queue at the next start."""
        self.draining = True
        self.fetch_nothing()
        self.signal(signal.SIGKILL)
        for uuid in self.children:
            proc.end_tree(uuid)

    def fetch_nothing(self) -> None:
        """Leave what waits in the broker to others."""
        if self.courier is not None:
            self.courier.room = 0

    def signal(self, number: signal.Signals) -> None:
        """Signal every living child."""
        for child in self.children.values():
            if child.process.exitcode is None and child.process.pid is not None:
                proc.kill_group(child.process.pid, number)
                with suppress(ProcessLookupError):  # one that was forked just now leads no group yet
                    os.kill(child.process.pid, number)
