"""`main.py run`: poll, queue, one process per task, until told to stop.

One daemon per base_dir, by flock.  SIGTERM, or the first SIGINT, drains: nothing new is started, running tasks end at
their next turn and go back to the queue.  The second SIGINT kills them.  `once` polls, works everything off, exits.
A `producer` only polls and queues, a `worker` only works off what is queued: many of both, on many hosts, may share one
ledger.  With a broker, `courier.py` tells them of each other; `once` does without it.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Literal

from agent import __version__, clock, disk
from agent.errors import LockHeld, MakimonoError, SurroundingsError
from agent.run.producer import fetch_and_enqueue_tasks
from agent.run.supervisor import Supervisor
from agent.run.wiring import Wiring
from agent.taskqueue.identity import hostname

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.run.courier import Courier

TICK = 0.1
Role = Literal["both", "producer", "worker"]
PATIENCE = 2


def lock_of(settings: Settings) -> Path:
    """The lock of the one daemon of a base_dir; of one for each host where a shared ledger lets hosts share it."""
    name = "daemon.lock" if settings.taskqueue.ledger == "sqlite" else f"daemon-{hostname()}.lock"
    return settings.base_dir / name


class Daemon:
    """One run of the daemon.  `run` returns the exit code: 0, 1 when a task failed (`once`), 130 when it was killed.

    `events` are its own; `heard` announces those of its workers.
    """

    def __init__(self, settings: Settings, events: Events, heard: Events | None = None, *, role: Role = "both") -> None:
        self.settings = settings
        self.role = role
        self.events = events
        self.heard = heard
        self.wake = threading.Event()
        self.drain = False
        self.kill = False
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
        started = clock.monotonic()
        courier: Courier | None = None
        wiring = Wiring(self.settings, events=self.events)
        try:
            wiring.forges  # noqa: B018 - what is wrong with the configuration is said before anything is started
            self._listen()
            self.events.emit(
                "daemon_started",
                pid=os.getpid(),
                role=self.role,
                base_dir=str(self.settings.base_dir),
                version=__version__,
            )
            courier = None if once else self._courier()
            supervisor = Supervisor(wiring, self.heard, courier=courier, starts=self.role != "producer")
            return self._once(wiring, supervisor) if once else self._forever(supervisor)
        finally:
            if courier is not None:
                courier.stop()
            self.events.emit("daemon_stopped", seconds=round(clock.monotonic() - started, 3))
            wiring.close()
            disk.unlock(lock)

    def _listen(self) -> None:
        def heard(number: int, _frame: FrameType | None) -> None:
            self.kill = self.kill or (self.drain and number == signal.SIGINT)
            self.drain = True
            self.wake.set()

        signal.signal(signal.SIGTERM, heard)
        signal.signal(signal.SIGINT, heard)

    def _once(self, wiring: Wiring, supervisor: Supervisor) -> int:
        """One poll, then everything that is due.  3 when a source could not be asked and nothing else failed."""
        unasked: list[str] = []
        self.events.on(lambda name, fields: unasked.append(str(fields)) if name == "poll_failed" else None)
        if self.role != "worker":
            fetch_and_enqueue_tasks(self.settings, wiring.ledger, wiring.forges, self.events)
        asked = not unasked
        supervisor.sweep()
        if self.role == "producer":
            return 0 if asked else SurroundingsError.exit_code
        for row in wiring.ledger.list(status="running"):
            if wiring.ledger.is_mine(row, wiring.owner):
                self.events.emit("worker_awaited", uuid=row.uuid)
        code = self._work(supervisor, lambda: not supervisor.running() and not supervisor.startable(), once=True)
        return code or (0 if asked or self.drain else SurroundingsError.exit_code)

    def _forever(self, supervisor: Supervisor) -> int:
        if self.role != "worker":
            threading.Thread(target=self._poll, name="poller", daemon=True).start()
        if supervisor.courier is not None:
            supervisor.courier.start()
        return self._work(supervisor, lambda: False)

    def _courier(self) -> Courier | None:
        """The messenger to the broker, None without one; kombu is imported only then."""
        if self.settings.taskqueue.broker is None:
            return None
        from agent.run.courier import Courier

        return Courier(self.settings, self.events)

    def _poll(self) -> None:
        """The poller's thread, with a connection of its own: a slow forge must not hold up the workers."""
        wiring = Wiring(self.settings, events=self.events)
        try:
            while not self.drain:
                try:
                    fetch_and_enqueue_tasks(self.settings, wiring.ledger, wiring.forges, self.events)
                except MakimonoError as error:
                    self.events.emit("poll_failed", source="all", instance="", error=str(error))
                until = clock.monotonic() + self.settings.scheduling.interval
                while clock.monotonic() < until and not self.drain:
                    clock.sleep(min(1.0, self.settings.scheduling.interval))
        finally:
            wiring.close()

    def _work(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool = False) -> int:
        """Step the supervisor until `done`, drained or killed."""
        try:
            return self._steps(supervisor, done, once=once)
        finally:
            self.worked = tuple(supervisor.exit_codes)

    def _steps(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool) -> int:
        draining = False
        failures = 0
        while True:
            if self.drain and not draining:
                draining = True
                self.events.emit("daemon_stopping", signal="SIGTERM or SIGINT")
                supervisor.drain()
            if self.kill:
                supervisor.kill()
                return 130
            error = self._step(supervisor)
            failures = 0 if supervisor.busy() else failures + (error is not None)
            if error is not None and failures >= PATIENCE and (once or draining):
                raise error  # nobody works, and nothing can be written: there is no end to wait for
            if draining and not supervisor.busy():
                return 0
            if not draining and done():
                return supervisor.worst_exit()
            self.wake.wait(TICK)
            self.wake.clear()

    def _step(self, supervisor: Supervisor) -> MakimonoError | None:
        """Supervisor loop: a database that is busy or a disk that is full must not end the daemon; the error."""
        try:
            supervisor.step()
        except MakimonoError as error:
            self.events.emit("poll_failed", source="supervisor", instance=str(self.settings.base_dir), error=str(error))
            clock.sleep(1.0)
            return error
        return None
