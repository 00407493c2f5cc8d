"""`main.py run`: poll, queue, one process per task, until told to stop.

One daemon per base_dir, by flock.  The first SIGTERM or SIGINT drains: nothing new is started, running tasks end at
their next turn and go back to the queue.  An answer of a model that is under way is waited for up to
`scheduling.drain_seconds`; workers that have not ended GRACE later are killed and their rows put back.  The second
signal kills them at once.  `once` polls, works everything off, exits.
A `producer` only polls and queues, a `worker` only works off what is queued: many of both, on many hosts, may share one
ledger.  With a broker, `courier.py` tells them of each other; `once` does without it.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from agent import __version__, clock, disk, proc
from agent.errors import DiskError, LockHeld, MakimonoError, SurroundingsError
from agent.reasons import reason
from agent.run import groups, later, sources
from agent.run.closing import tell_untold
from agent.run.folders import keep_from_others
from agent.run.ground import Ground, is_lost
from agent.run.health import Pulse, path_of
from agent.run.installed import RESTART, lock_of, record
from agent.run.kept_thread import KeptThread
from agent.run.producer import Poller
from agent.run.reconcile import reconcile
from agent.run.supervisor import Supervisor
from agent.run.waker import Waker
from agent.run.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.run.courier import Courier
    from agent.taskqueue.base import Notices

TICK = 0.1
TOLD_SECONDS = {True: 15.0, False: 2.0}
"""How often it is looked for what people are to be told, where the ledger tells of changes and where it does not."""
LISTEN_SECONDS = 30.0
"""How long to wait before the ledger's notices are asked for again."""
Role = Literal["both", "producer", "worker"]
PATIENCE = 2
GRACE = (5.0, 30.0)
"""Seconds beyond `scheduling.drain_seconds` that a worker has to give its row back: as many again, within these."""
SAID_AGAIN = 300.0
"""Seconds after which the same trouble is said again, should it last."""


class Daemon:
    """One run of the daemon.  `run` returns the exit code: 0, 1 when a task failed (`once`), 130 when it was killed.

    `events` are its own; `heard` announces those of its workers.
    """

    def __init__(self, settings: Settings, events: Events, heard: Events | None = None, *, role: Role = "both") -> None:
        self.settings = settings
        self.role = role
        self.events = events
        self.heard = heard
        self.waker = Waker()
        self.stirred = threading.Event()  # ends the poller's wait
        self.notices: Notices | None = None
        self.listen_at = 0.0
        self.lost = threading.Event()  # rows are known to be lost
        self.drain = False
        self.kill = False
        self.unasked = ""  # sources, where none of them could be asked in the newest poll
        self.signal = ""
        self.trouble: dict[tuple[str, str], float] = {}  # (part, what its round failed by) → when that was said
        self.worked: tuple[str, ...] = ()  # uuids of the tasks that had a worker of this daemon, at its end

    def run(self, *, once: bool = False) -> int:
        """Take the daemon's lock and work.  SurroundingsError when another daemon has it."""
        disk.claim_dir(self.settings.base_dir, disk.passable())
        try:
            lock = disk.lock(lock_of(self.settings))
        except LockHeld:
            raise SurroundingsError(
                f"another daemon works on {self.settings.base_dir}; stop it, or set context_storage.base_dir elsewhere"
            ) from None
        with suppress(OSError):
            path_of(self.settings).unlink()  # what the one before has said  # ours
        started: float | None = None
        courier: Courier | None = None
        ground: Ground | None = None
        wiring = Wiring(self.settings, events=self.events)
        try:
            wiring.forges  # noqa: B018 - what is wrong with the configuration is said before anything is started
            self._listen()
            proc.become_subreaper()
            started = clock.monotonic()
            self.events.emit(
                "daemon_started",
                pid=os.getpid(),
                role=self.role,
                base_dir=str(self.settings.base_dir),
                version=__version__,
            )
            sources.follow(wiring)
            sources.tell_missing(wiring)
            ground = Ground(wiring, lock, lost=is_lost(wiring))
            self.lost = ground.lost
            if self.role != "producer":
                groups.remove(self.settings.base_dir)
                keep_from_others(self.settings)
                if reconcile(wiring):
                    ground.lost.set()
                later.try_now(wiring.ledger)
                wiring.ledger.give_up_all(wiring.owner)
            courier = None if once else self._courier()
            starts = self.role != "producer"
            supervisor = Supervisor(wiring, self.heard, courier=courier, starts=starts, ground=ground)
            with suppress(DiskError):  # `doctor` cannot tell then whether this daemon is outdated
                record(self.settings, supervisor.installed.code)
            return self._once(wiring, supervisor) if once else self._forever(supervisor)
        finally:
            if courier is not None:
                courier.stop()
            if started is not None:
                self.events.emit("daemon_stopped", seconds=round(clock.monotonic() - started, 3))
            self.stirred.set()
            if self.notices is not None:
                self.notices.close()
            wiring.close()
            if ground is not None:
                ground.close()
            else:
                disk.unlock(lock)

    def _listen(self) -> None:
        def heard(number: int, _frame: FrameType | None) -> None:
            self.kill = self.kill or self.drain
            self.drain = True
            self.signal = signal.Signals(number).name
            self.waker.wake()  # takes no lock, which the interrupted thread, this one, might hold

        signal.signal(signal.SIGTERM, heard)
        signal.signal(signal.SIGINT, heard)

    def _once(self, wiring: Wiring, supervisor: Supervisor) -> int:
        """One poll, then everything that is due.  3 when a source could not be asked and nothing else failed."""
        asked = True
        if self.role != "worker":
            poller = Poller(self.settings, wiring.ledger, wiring.forges, self.events, lost=self.lost)
            poller.poll(everything=True)
            asked = not poller.unasked
        supervisor.sweep()
        self._tell(wiring)
        if self.role == "producer":
            return 0 if asked else SurroundingsError.exit_code
        for row in wiring.ledger.running_here():
            if wiring.ledger.is_mine(row, wiring.owner):
                self.events.emit("worker_awaited", uuid=row.uuid)
        code = self._work(supervisor, lambda: not supervisor.running() and not supervisor.startable(), once=True)
        self._tell(wiring)
        return code or (0 if asked or self.drain else SurroundingsError.exit_code)

    def _forever(self, supervisor: Supervisor) -> int:
        if self.role != "worker":
            poller = KeptThread("poller", self._poll, self._poller_died)
            supervisor.threads.append(poller)
            poller.start()
        if supervisor.courier is not None:
            supervisor.courier.start()
        return self._work(supervisor, lambda: False)

    def _poller_died(self, seconds: float) -> None:
        why = f"the poller was ended by an error that nobody foresaw; its trace is above, it goes on in {seconds:g} s"
        self.events.emit("poll_failed", source="all", instance="", error=why)

    def _courier(self) -> Courier | None:
        """The messenger to the broker, None without one; kombu is imported only then."""
        if self.settings.taskqueue.broker is None:
            return None
        from agent.run.courier import Courier

        return Courier(self.settings, self.events, self.waker.wake)

    def _poll(self) -> None:
        """The poller's thread, with a connection of its own: a slow forge must not hold up the workers."""
        wiring = Wiring(self.settings, events=self.events)
        try:
            poller = Poller(self.settings, wiring.ledger, wiring.forges, self.events, lost=self.lost, compares=True)
            while not self.drain:
                with self._surviving("all"):
                    if poller.poll():
                        self.waker.wake()
                self.unasked = ", ".join(sorted(poller.away)) if poller.unasks_all() else ""
                self._tell(wiring)
                tells = self.notices is not None
                self.stirred.wait(min(TOLD_SECONDS[tells], max(TICK, poller.seconds())))
                self.stirred.clear()
        finally:
            wiring.close()

    def _tell(self, wiring: Wiring) -> None:
        """Tell what ended while nobody could say so."""
        with self._surviving("ledger"):
            tell_untold(wiring)

    def _work(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool = False) -> int:
        """Step the supervisor until `done`, drained or killed."""
        try:
            return self._steps(supervisor, done, once=once)
        finally:
            self.worked = tuple(supervisor.exit_codes)

    def _steps(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool) -> int:
        deadline: float | None = None  # of the drain
        failures = 0
        pulse = Pulse(self.settings)
        woken = True
        while True:
            if self.drain and deadline is None:
                seconds = self.settings.scheduling.drain_seconds
                deadline = clock.monotonic() + seconds + min(GRACE[1], max(GRACE[0], seconds))
                self.events.emit("daemon_stopping", signal=self.signal, seconds=round(seconds))
                supervisor.drain()
            if self.kill:
                supervisor.kill()
                return 130
            if deadline is not None and clock.monotonic() > deadline and supervisor.busy():
                self.events.emit("drain_overdue", uuids=sorted(supervisor.children))
                supervisor.kill()
            error = self._step(supervisor, woken=woken or once)
            unasked = f"no source can be asked: {self.unasked}" if self.unasked else ""
            pulse.beat([*supervisor.hindrances(), str(error or ""), unasked])
            failures = 0 if supervisor.busy() else failures + (error is not None)
            draining = deadline is not None
            if error is not None and failures >= PATIENCE and (once or draining):
                raise error  # nobody works, and nothing can be written: there is no end to wait for
            if draining and not supervisor.busy():
                return 0
            if not draining and done():
                return supervisor.worst_exit()
            if once and supervisor.room.why and not supervisor.busy():
                raise DiskError(supervisor.room.why)
            if once and supervisor.ground.why and not supervisor.busy():
                raise SurroundingsError(supervisor.ground.why)
            if once and supervisor.installed.changed and not supervisor.busy():
                raise SurroundingsError(f"{supervisor.installed.changed}: {RESTART}")
            woken = self._wait(supervisor, once=once or draining)

    def _wait(self, supervisor: Supervisor, *, once: bool) -> bool:
        """Until there is something to do: a worker reports or ends, the poller or the broker has brought something, the
        ledger tells of a change, a signal came, or it is time for the next look; whether it was one of the first."""
        notices = None if once else self._hear(supervisor)
        supervisor.tells = notices is not None
        if supervisor.courier is not None:
            supervisor.courier.tells = supervisor.tells
        seconds = TICK if once or self.drain else supervisor.seconds()
        heard = [] if notices is None else [notices.fileno()]
        if not self.waker.wait(seconds, [*supervisor.descriptors(), *heard]):
            return False
        if notices is None:
            return True
        try:
            if notices.take():
                self.stirred.set()
                if supervisor.courier is not None:
                    supervisor.courier.stir()
        except Exception as error:  # noqa: BLE001 - of the database's client, whichever it is; the connection was cut
            self.events.emit("notices_lost", error=reason(error))
            notices.close()
            self.notices = None
        return True

    def _hear(self, supervisor: Supervisor) -> Notices | None:
        """The notices of the ledger, connected again after a while where they were lost."""
        if self.notices is None and supervisor.ledger.has_notices and clock.monotonic() >= self.listen_at:
            self.listen_at = clock.monotonic() + LISTEN_SECONDS
            self.notices = supervisor.ledger.notices()
        return self.notices

    def _step(self, supervisor: Supervisor, *, woken: bool) -> Exception | None:
        """Supervisor loop: a database that is busy or a disk that is full must not end the daemon; the error."""
        with self._surviving("supervisor", str(self.settings.base_dir)) as failed:
            supervisor.step(woken=woken)
        if failed:
            clock.sleep(1.0)
        return failed[0] if failed else None

    @contextmanager
    def _surviving(self, source: str, instance: str = "") -> Iterator[list[Exception]]:
        """Say what one round of a part of the daemon fails by, and let it have its next one; yields a list that has the
        error afterwards.  The same word is said every few minutes: each second it would fill the rest of the disk."""
        failed: list[Exception] = []
        try:
            yield failed
        except (MakimonoError, OSError) as error:
            failed.append(error)
            now, word = clock.monotonic(), (source, str(error))
            lately = {said: at for said, at in self.trouble.items() if now - at < SAID_AGAIN}
            if word not in lately:
                self.events.emit("poll_failed", source=source, instance=instance, error=str(error))
            self.trouble = {word: now, **lately}  # a new one: another thread may be reading the old
