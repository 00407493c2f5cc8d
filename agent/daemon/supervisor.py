"""Starts workers, at most `scheduling.max_workers` at once, and handles their ends.

The ledger alone is authoritative: rows and locks show which tasks run, so workers of a daemon that was killed count
too.  `dead_rows.py` requeues the tasks of workers that died, `forkserver.py` forks the workers.  `daemon/daemon.py`
calls `step` after each event and at intervals; `step` does not wait for a worker.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import clock, process_tree
from agent.daemon import forkserver
from agent.daemon.crash_blame import CrashBlame
from agent.daemon.dead_rows import DeadRows
from agent.daemon.disk_monitor import DiskMonitor
from agent.daemon.extraction_runner import ExtractionRunner
from agent.daemon.host_affinity import HostAffinity
from agent.daemon.inherited_workers import InheritedWorkers
from agent.daemon.log_tailer import LogTailer
from agent.daemon.program_version import RESTART, InstalledProgram
from agent.daemon.rows_here import RowsHere, workers_of
from agent.daemon.self_check import SelfCheck
from agent.daemon.start_delays import StartDelays
from agent.daemon.start_holds import StartHolds
from agent.daemon.start_limits import at_once_of, server_of
from agent.daemon.watchdog import Watchdog, end_worker
from agent.daemon.worker_process import ExitCodes, WorkerProcess
from agent.error_text import reason
from agent.errors import DiskError, LedgerError
from agent.observe.events import Events
from agent.values import Status
from agent.worker import process_groups, unpublished_work, worker
from agent.worker.attempt import CLAIMED

if TYPE_CHECKING:
    from agent.daemon.broker_client import BrokerClient
    from agent.daemon.restarting_thread import RestartingThread
    from agent.wiring.wiring import Wiring

SWEEP_SECONDS = 5.0
IDLE_SWEEP_SECONDS = 20.0
"""Seconds between two sweeps (regular checks that need no event) of a daemon without workers if the ledger sends
notifications; a sweep sends ten queries, so such an idle daemon sends less than one query a second."""
QUEUE_SECONDS = 1.0
"""Seconds between two checks of the queue when the ledger sends no notifications of changes."""
WORK_SECONDS = 0.5
"""Seconds between two checks of the workers, of their logs and their leases."""
LEFT_SECONDS = 300.0
"""Seconds between two checks of a task that this host leaves to another host."""
RESERVED_SECONDS = 60.0
"""Seconds for which no other host starts a task that a worker of this host has not claimed yet."""
ROUNDS = 3
"""The maximum number of times that one pass over the queue reserves further tasks, in place of reserved tasks that must
wait."""
HELD_SECONDS = 5.0
"""Seconds between two checks of a task that is held back (`start_holds.py`)."""


class Supervisor:
    """Starts and monitors the workers of one base_dir.

    `heard` announces the events in the workers' logs (`log_tailer.py`); `courier` is the broker client
    (`broker_client.py`); with `starts` False no worker is started (the role of a producer).
    """

    def __init__(
        self,
        wiring: Wiring,
        heard: Events | None = None,
        *,
        courier: BrokerClient | None = None,
        starts: bool = True,
        ground: SelfCheck | None = None,
    ) -> None:
        self.wiring = wiring
        self.ground = ground or SelfCheck(wiring)
        self.courier = courier
        self.starts = starts
        self.threads: list[RestartingThread] = [] if courier is None else [courier.thread]
        self.settings = wiring.settings
        self.ledger = wiring.ledger
        self.owner = wiring.owner
        self.events = wiring.events
        self.watch = LogTailer(self.settings.base_dir, heard or Events())
        self.blame = CrashBlame()
        self.here = RowsHere(wiring.ledger)
        self.watchdog = Watchdog(wiring, self.blame.record_hang, self.here.read)
        self.room = DiskMonitor(wiring)
        self.delays = StartDelays()
        self.holds = StartHolds(self.settings, self.ledger, self.events, self.delays.release_all)
        self.home = HostAffinity(self.settings)
        self.installed = InstalledProgram()
        self.children: dict[str, WorkerProcess] = {}
        self.dead_rows = DeadRows(
            wiring, self.children, here=self.here, watchdog=self.watchdog, blame=self.blame, ground=self.ground
        )
        self.exit_codes = ExitCodes()
        # uuid of a worker's task → uuid in the broker's message that caused the start of the worker
        self.messages: dict[str, str] = {}
        self.server = server_of(self.settings)
        self.tells = False  # whether the ledger sends notifications of changes now
        self.ended = False  # whether a worker has ended since the last check of the queue
        self.queue_at = 0.0
        self.draining = False
        self.before = frozenset(process_tree.children())  # children that exist already; `end_strays` spares them
        self.inherited = InheritedWorkers(wiring)
        self.swept_at = -SWEEP_SECONDS
        self.context = forkserver.context_for(self.settings)
        self.extraction = ExtractionRunner(wiring, self.context)

    def step(self, *, woken: bool = True) -> None:
        """Collect workers that have ended, requeue tasks of dead workers, and start due tasks.

        `woken`: the queue may have changed; if False, the queue is checked only if its interval (`queue_seconds`) is
        over, after a sweep, or if a worker has ended.
        """
        with self.here.one_step():
            self._step(woken=woken)

    def _step(self, *, woken: bool) -> None:
        self.watch.read_new(self.children)
        for thread in self.threads:
            thread.restart_if_due()
        self.reap()
        if self.watchdog.check():
            self.here.forget()
            self.dead_rows.requeue()
        now = clock.monotonic()
        swept = now - self.swept_at >= self.sweep_seconds()
        if swept:
            self.swept_at = now
            process_tree.reap_orphans()
            self.dead_rows.requeue()
            self.delays.forget_old()
            self.holds.check_probe()
            if self.draining:
                self.drain_inherited()
        if not self.draining:
            self.room.check()
            if self.starts:
                self.extraction.step(look=self.ended, starts=not self.reasons_not_to_start())
            if woken or swept or self.ended or now >= self.queue_at:
                self.ended = False
                self.queue_at = now + self.queue_seconds()
                self.start_due(swept=swept)

    def sweep_seconds(self) -> float:
        """Seconds between two sweeps, which are further apart when nothing runs and the ledger sends notifications."""
        return SWEEP_SECONDS if self.children or not self.tells else IDLE_SWEEP_SECONDS

    def queue_seconds(self) -> float:
        """Seconds between two checks of the queue if no notification comes."""
        return self.sweep_seconds() if self.tells else QUEUE_SECONDS

    def seconds_to_next_step(self) -> float:
        """Seconds until `step` must be called again if no event comes; at most WORK_SECONDS while workers run."""
        now = clock.monotonic()
        wait = min(self.swept_at + self.sweep_seconds(), self.queue_at) - now
        return max(0.0, min(wait, WORK_SECONDS) if self.children else wait)

    def descriptors(self) -> list[int]:
        """File descriptors that become readable when a worker, or the process that extracts memories, reports or
        ends."""
        children = list(self.children.values())
        return [
            *(one.process.sentinel for one in children),
            *(one.report.fileno() for one in children if not one.heard),
            *self.extraction.descriptors(),
        ]

    def reasons_not_to_start(self) -> list[str]:
        """The reasons, as far as this process knows them, why this daemon starts no task; [] when there are none."""
        told = "the daemon was told to stop" if self.draining else ""
        return [one for one in (told, self.ground.why, self.room.why, self.installed.changed) if one]

    def busy(self) -> bool:
        """Whether a worker of this daemon is alive, or one of an earlier daemon that this daemon drains too."""
        return bool(self.inherited.pids() or self.children)

    def reap(self) -> None:
        """Read the reports of workers, and call `_ended` for each worker that has ended."""
        items = self.wiring.items("reap")
        for uuid, child in list(self.children.items()):
            with items.handling(uuid):
                self._reap(uuid, child)
        items.finish()

    def _reap(self, uuid: str, child: WorkerProcess) -> None:
        """Read the report of one worker, and call `_ended` if the worker has ended."""
        if not child.heard and child.report.poll():
            child.heard = True
            with suppress(EOFError):
                child.why = str(child.report.recv())
            child.claimed = child.why == CLAIMED
            self.acknowledge(uuid)
            if child.claimed:
                self.events.emit("task_claimed", uuid=uuid, pid=child.process.pid)
        if child.process.exitcode is None:
            return
        child.process.join()
        child.report.close()
        self.watch.finish(uuid)
        self.acknowledge(uuid)
        del self.children[uuid]
        try:
            self._ended(uuid, child, child.process.exitcode)
        finally:
            self.end_strays()
            process_groups.remove(self.settings.base_dir, uuid)
            child.process.close()

    def end_strays(self) -> None:
        """End processes that dead workers left running, in any session and with any environment.

        Processes of dead workers are children of this process now, since it adopts orphans.  Processes of a living
        worker are below that worker in the process tree.
        """
        pids = (*(child.process.pid for child in self.children.values()), self.extraction.pid)
        process_tree.end_strays(self.before | {pid for pid in pids if pid is not None})

    def _ended(self, uuid: str, child: WorkerProcess, code: int) -> None:
        """Record how a worker ended, and requeue, delay or hold back tasks because of it.

        Facts about the worker's end that cannot be determined again are recorded first, since the ledger may fail.
        """
        self.here.forget()
        self.exit_codes.record(uuid, code)
        self.blame.record_end(uuid, child.process.pid, code, child.kills)
        self.ended = True
        if not child.claimed:
            self.handle_unclaimed(uuid, code, child.why)
        if code == DiskError.exit_code and child.claimed and child.process.pid is not None:
            self.dead_rows.release(uuid, child.process.pid, why="it could not write its row")
        if code >= 0:
            self.delays.note_progress(uuid)
        else:
            if child.claimed:
                self.watchdog.close_if_over_limit(uuid, child.process.pid)
                process_groups.end_tree(self.settings.base_dir, uuid)
            if child.claimed or not self.draining:  # a worker that the drain killed before its claim is not reported
                self.events.emit("worker_died", uuid=uuid, signal=-code)
            self.wait_after(uuid, child)
            self.dead_rows.requeue()
        if child.claimed:
            self.holds.record_end(uuid)

    def wait_after(self, uuid: str, child: WorkerProcess) -> None:
        """Delay the next worker of a task, longer each time, after more than FREE_KILLS workers of the task in a row
        were ended by a signal without progress (`StartDelays.note_kill`)."""
        row = self.ledger.get(uuid)
        if not child.claimed or row is None or row.llm_call_count + row.tool_call_count > row.progress_at_claim:
            self.delays.note_progress(uuid)
        elif self.delays.note_kill(uuid):
            self.postpone(uuid, "its workers were killed several times without progress")

    def handle_unclaimed(self, uuid: str, code: int, why: str) -> None:
        """Delay the task of a worker that ended before it owned the task.

        The next worker would probably end in the same way, so the task waits, longer each time, and an event reports
        the reason, except during a drain. Nothing happens if the worker ended without an error and the task is not due
        any more, for example because another worker claimed it first.
        """
        try:
            row = self.ledger.get(uuid)
        except LedgerError:
            self.postpone(uuid, "its worker ended, and the ledger does not answer")
            raise
        waits = (
            row is not None and row.status is Status.QUEUED and (row.not_before or "") <= clock.stamp(self.ledger.now())
        )
        if code == 0 and not waits:
            return
        self.exit_codes.record(uuid, code or worker.EXIT_WAITS)
        why = why or "it said nothing; the log of the daemon may have more"
        seconds = self.postpone(uuid, f"its worker could not start the task: {why}")
        self.is_outdated()
        if code > 0:
            self.holds.note_unclaimed(uuid)
        if code >= 0 and not self.draining:
            self.events.emit("worker_unclaimed", uuid=uuid, exit_code=code, why=why, seconds=seconds)

    def start_due(self, *, swept: bool = False) -> None:
        """Start the next queued tasks of the ledger while fewer workers run than are allowed.

        While a broker is connected, only tasks with unpublished work are started, and in addition one task for each
        message of the broker. After a sweep (`swept`) tasks are started as if there were no broker, since a message may
        be lost, or belong to a task that could not start when the message came.
        """
        if not self.starts:
            return
        room = 0 if self.room.why or self.ground.why else max(0, self.settings.scheduling.max_workers - self.running())
        connected = self.courier is not None and self.courier.connected and not swept
        if room > 0:
            room -= len(self.start_next(room, unpublished_work.MARK if connected else None))
        if self.courier is not None and connected:
            self.start_arrived(self.courier, room)

    def start_arrived(self, courier: BrokerClient, room: int) -> None:
        """Start one task for each message that has come from the broker, but at most `room`.

        The ledger, not the order of the messages, decides which tasks start, since in the broker's queue the messages
        of one person may precede those of all others. Messages for which no task is started are acknowledged.
        """
        arrived = courier.take_arrived(room)
        started: list[str] = []
        try:
            if arrived:
                self.start_next(len(arrived), started=started)
        finally:  # even if the ledger fails half-way, a broker message that starts no worker is acknowledged
            self.messages.update(zip(started, arrived, strict=False))
            for uuid in arrived[len(started) :]:
                courier.acknowledge(uuid)
        if room - len(started) > courier.room:
            courier.wake()
        courier.room = room - len(started)

    def start_next(self, room: int, outcome: str | None = None, started: list[str] | None = None) -> list[str]:
        """Start at most `room` of the queued tasks that are next.

        With `outcome`, only rows with that value in the column `outcome` are started, for example rows with finished
        work and a pending publication.

        Returns the uuids of the started tasks, which are also added to `started`. A task that must wait, or for which
        no worker can be started, is skipped and its reservation ends, so that other hosts can take it."""
        items = self.wiring.items("start")
        started = [] if started is None else started
        for _ in range(0 if self.holds.is_shut() else ROUNDS):
            taken = self.reserve(room - len(started), outcome)
            # `is_outdated` is called only if a task can start, since it reads the state of each file of the program
            if taken and self.is_outdated():
                for uuid in taken:
                    self.ledger.release_reservation(uuid, self.owner)
                break
            for uuid in taken:
                well = False
                with items.handling(uuid):
                    if self.must_wait(uuid):
                        self.ledger.release_reservation(uuid, self.owner)
                    elif self.try_start(uuid):
                        started.append(uuid)
                    well = True
                if not well:
                    # without a delay, a task that cannot start would block the head of the queue
                    self.postpone(uuid, "its start failed; the event `item_skipped` has the error")
            if len(started) >= room or not taken:
                break
        items.finish()
        return started

    def reserve(self, count: int, outcome: str | None = None) -> list[str]:
        """Reserve the next queued tasks, except tasks that have a worker of this daemon or that this daemon delays."""
        return self.ledger.reserve(
            count,
            self.owner,
            seconds=RESERVED_SECONDS,
            server=self.server,
            at_once=at_once_of(self.settings),
            without=sorted(self.delays.waiting() | set(self.children)),
            outcome=outcome,
        )

    def is_outdated(self) -> bool:
        """Whether the program's files were replaced while this daemon ran, so that a new worker would not fit to it;
        this is reported once."""
        before = self.installed.changed
        if (why := self.installed.describe_change()) and not before:
            self.events.emit("code_changed", why=why, todo=RESTART)
        return bool(why)

    def must_wait(self, uuid: str) -> bool:
        """Whether the task is left to the host that has its work, or must wait because similar tasks failed; such a
        task is checked again after a while."""
        row = self.ledger.get(uuid)
        if row is None:
            return False
        # with a replica, any host can get the unpublished work and publish it, so the task is not left to its last host
        replica = self.settings.context_storage.replica is not None
        if not replica and unpublished_work.lies_elsewhere(self.settings, row, self.ledger.now()):
            seconds = lasts = LEFT_SECONDS
            what = "work that is not published"
        else:
            lasts, what = self.home.seconds_to_wait(row), "conversation"
            seconds = min(HELD_SECONDS, lasts)
        if seconds and uuid not in self.delays.known:
            self.events.emit("task_left", uuid=uuid, host=row.hostname)
        if seconds:
            self.delays.delay_start(uuid, seconds, f"it is left to {row.hostname}, which has its {what}", lasts)
        elif self.holds.is_held(row):
            self.delays.hold_back(uuid, HELD_SECONDS)
        else:
            self.delays.forget_delay(uuid)
            return False
        return True

    def postpone(self, uuid: str, why: str) -> float:
        """Delay a task, longer each time, because its worker could not claim it or its workers were killed; returns the
        number of seconds.

        `why`: a clause for people, which `tasks`, `show` and the page print."""
        seconds = self.delays.postpone(uuid, why)
        self.acknowledge(uuid)
        with suppress(LedgerError, DiskError):  # if the reservation cannot be released, it expires by itself
            self.ledger.release_reservation(uuid, self.owner)
        return seconds

    def acknowledge(self, uuid: str) -> None:
        """Acknowledge the broker's message about the task, if the broker sent one."""
        if self.courier is not None:
            self.courier.acknowledge(self.messages.pop(uuid, uuid))

    def startable(self, outcome: str | None = None) -> list[str]:
        """The first queued tasks that are due, up to `scheduling.max_workers`, except tasks that have a worker and
        tasks that `delays` lets wait.

        `outcome`: only rows with that value in the column `outcome` are returned."""
        hindered = self.delays.waiting()
        limit = self.settings.scheduling.max_workers + len(self.children) + len(hindered)
        busy = hindered | set(self.children)
        return [uuid for uuid in self.ledger.due(limit, outcome=outcome) if uuid not in busy]

    def running(self) -> int:
        """The number of workers of this base_dir: rows that run, and children that have not claimed a row yet."""
        return len(workers_of(self.ledger, self.here.read(), self.owner) | set(self.children))

    def try_start(self, uuid: str) -> bool:
        """Start one worker; returns whether that succeeded.

        If the start fails, the task is delayed, longer each time, and other hosts may take it.
        """
        try:
            self.start(uuid)
        except (OSError, EOFError) as error:  # no process or descriptor can be created, or the forkserver was killed
            self.exit_codes.record(uuid, worker.EXIT_WAITS)
            self.postpone(uuid, f"no process could be started for it: {reason(error)}")
            self.holds.note_unclaimed(uuid)
            self.events.emit("worker_died", uuid=uuid, signal=0, error=reason(error))
            return False
        return True

    def start(self, uuid: str) -> None:
        """Fork one worker. Raises OSError or EOFError when the fork fails; then no part of the worker remains."""
        self.watch.start(uuid)
        try:
            process, report = forkserver.fork(self.context, worker.main, self.settings, uuid)
        except BaseException:
            self.watch.finish(uuid)
            raise
        self.children[uuid] = WorkerProcess(process, report)

    def drain(self) -> None:
        """Start no more tasks, and signal every worker to end at its next turn and release its row."""
        self.start_nothing()
        for child in self.children.values():
            forkserver.send_signal(child.process, signal.SIGTERM)
        self.drain_inherited()

    def drain_inherited(self) -> None:
        """Send SIGTERM, once, to each worker of this host that an earlier daemon left running; a daemon with the role
        `producer` has no workers."""
        if self.starts:
            self.inherited.drain(self.children)

    def kill(self) -> None:
        """End every worker and its process tree now, and release their rows; this does not count as a death of the
        workers, since the daemon ends them on purpose."""
        self.start_nothing()
        self.drain_inherited()
        pids = {uuid: child.process.pid for uuid, child in self.children.items()}
        for uuid, pid in {**pids, **self.inherited.pids()}.items():
            if pid is not None:
                end_worker(self.settings.base_dir, uuid, pid)
                self.dead_rows.release(uuid, pid, why="its worker was ended")
        self.end_strays()

    def start_nothing(self) -> None:
        """Start no more tasks and jobs, and fetch no more messages from the broker, so that other daemons get them."""
        self.draining = True
        if self.courier is not None:
            self.courier.room = 0
        self.extraction.stop()
