"""`main.py run` polls the forges, queues tasks, and runs one process per task, until a signal stops it.

A flock ensures that each base_dir has only one daemon on each host. The first SIGTERM or SIGINT begins a drain: no task
is started, and running tasks end at their next turn and return to the queue. A request to a model that is in progress
may take up to `scheduling.drain_seconds`; workers that have not ended GRACE seconds after that time are killed, and
their rows are released. The second SIGTERM or SIGINT kills all workers immediately. SIGUSR1 (`main.py poke`) causes a
poll of all sources at once. With `once` the daemon polls once, works on all due tasks, and exits.

A daemon with the role `producer` only polls and queues; with the role `worker` it only works on queued tasks.  Many
daemons of both roles, on many hosts, may share one ledger.  With a broker, `broker_client.py` notifies the daemons of
each other's rows; `once` does not use the broker.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from agent import __version__, clock, durable_files, proc, prompts
from agent.config.configured_commands import check_commands
from agent.config.plug_ins import check_plug_ins
from agent.config.webhook_endpoint import parse_listen
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.health import HealthFile, path_of
from agent.daemon.pollers import Pollers
from agent.daemon.program_version import RESTART, lock_of, record
from agent.daemon.reconcile import reconcile
from agent.daemon.restarting_thread import RestartingThread
from agent.daemon.self_check import SelfCheck, is_lost
from agent.daemon.supervisor import Supervisor
from agent.daemon.waker import Waker
from agent.error_text import reason
from agent.errors import DiskError, HostError, LockHeld, MakimonoError
from agent.observe import log
from agent.observe.traces import require_otlp
from agent.prompts.reviewer_templates import check_reviewer_templates
from agent.store.remote_storage import require_driver
from agent.wiring import missing_task_sources
from agent.wiring.folders import keep_from_others
from agent.wiring.wiring import Wiring
from agent.worker import process_groups, requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from agent.config import Settings
    from agent.daemon.broker_client import BrokerClient
    from agent.daemon.template_reloader import TemplateReloader
    from agent.observe.events import Events
    from agent.observe.http_server import HttpServer
    from agent.taskqueue.base import Notices

TICK = 0.1
NOTICE_SECONDS = 1.0
"""The first notification of a change in the ledger wakes the pollers and the broker client at once; further
notifications within this time wake them together at its end.

In a large fleet the ledger changes all the time, and each change would otherwise wake the daemons of all hosts.
"""
LISTEN_SECONDS = 30.0
"""Seconds until the daemon tries again to open the connection for the ledger's notifications."""
Role = Literal["both", "producer", "worker"]
PATIENCE = 2
GRACE = (5.0, 30.0)
"""Bounds in seconds of the additional time after a drain in which a worker can release its row; within these bounds the
time equals `scheduling.drain_seconds`."""
SAID_AGAIN = 300.0
"""Seconds after which an error that lasts is reported again."""


class Daemon:
    """One run of the daemon.

    `run` returns the exit code: 0 after a drain; with `once` 0, or 1 when a task failed, or 3 when the environment
    failed; 130 when a second signal killed the workers. `events` are the events of the daemon itself; `heard` announces
    the events of its workers.
    """

    def __init__(self, settings: Settings, events: Events, heard: Events | None = None, *, role: Role = "both") -> None:
        self.settings = settings
        self.role = role
        self.events = events
        self.heard = heard
        self.waker = Waker()
        self.pollers: Pollers | None = None
        self.notices: Notices | None = None
        self.listen_at = 0.0
        self.hear_at = 0.0  # the time at which the ledger's notifications are read again
        self.lost = threading.Event()  # set when rows are known to be lost from the ledger
        self.drain = False
        self.kill = False
        self.poked = False  # True after SIGUSR1 has asked for a poll
        self.webhooks: HttpServer | None = None
        self.signal = ""
        # (part of the daemon, error of its last round) → time at which it was reported
        self.trouble: dict[tuple[str, str], float] = {}
        # uuids of the tasks on which workers of this daemon worked; set when the daemon stops calling the supervisor
        self.worked: tuple[str, ...] = ()

    def run(self, *, once: bool = False) -> int:
        """Take the daemon's lock and run until the end. Raises HostError when another daemon has the lock, or
        ConfigError."""
        # `require_driver` raises ConfigError if a database driver is missing, since otherwise each task would run
        # without its replica
        require_driver(self.settings.context_storage.replica)
        require_otlp(self.settings.observe.otlp)
        if self.role != "producer":
            check_commands(self.settings)
            check_plug_ins(self.settings)
        durable_files.claim_dir(self.settings.base_dir, durable_files.passable())
        try:
            lock = durable_files.lock(lock_of(self.settings))
        except LockHeld:
            raise HostError(
                f"another daemon works on {self.settings.base_dir}; stop it, or set context_storage.base_dir elsewhere"
            ) from None
        with suppress(OSError):
            path_of(self.settings).unlink()  # an earlier daemon wrote this health file  # ours
        started: float | None = None
        courier: BrokerClient | None = None
        ground: SelfCheck | None = None
        wiring = Wiring(self.settings, events=self.events)
        try:
            wiring.forges  # noqa: B018 - reading `forges` builds them, and raises ConfigError for a wrong configuration
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
            missing_task_sources.move_instances(wiring)
            missing_task_sources.tell_missing(wiring)
            ground = SelfCheck(wiring, lock, lost=is_lost(wiring))
            self.lost = ground.lost
            if self.role != "producer":
                process_groups.remove(self.settings.base_dir)
                keep_from_others(self.settings)
                if reconcile(wiring):
                    ground.lost.set()
                requeue.try_now(wiring.ledger)
                wiring.ledger.release_reservations(wiring.owner)
            courier = None if once else self._courier()
            starts = self.role != "producer"
            supervisor = Supervisor(wiring, self.heard, courier=courier, starts=starts, ground=ground)
            reloader = self._reloader()
            self._check_reviewers(reloader)
            # If this write fails, `tasks` and `doctor` cannot check whether the daemon runs outdated code; the daemon
            # goes on.
            with suppress(DiskError):
                record(self.settings, supervisor.installed.code)
            if reloader is not None and not once:
                self._keep_reloading(reloader, supervisor)
            return self._poll_once(wiring, supervisor) if once else self._forever(supervisor)
        finally:
            if courier is not None:
                courier.stop()
            if started is not None:
                self.events.emit("daemon_stopped", seconds=round(clock.monotonic() - started, 3))
            if self.webhooks is not None:
                self.webhooks.close()
            if self.pollers is not None:
                self.pollers.wake_all()
            if self.notices is not None:
                self.notices.close()
            wiring.close()
            if ground is not None:
                ground.close()
            else:
                durable_files.unlock(lock)

    def _listen(self) -> None:
        def heard(number: int, _frame: FrameType | None) -> None:
            self.kill = self.kill or self.drain
            self.drain = True
            self.signal = signal.Signals(number).name
            self.waker.wake()  # `wake` takes no lock, since the interrupted main thread might hold that lock itself

        def poked(_number: int, _frame: FrameType | None) -> None:
            self.poked = True
            self.waker.wake()

        signal.signal(signal.SIGUSR1, poked)
        signal.signal(signal.SIGTERM, heard)
        signal.signal(signal.SIGINT, heard)

    def _poll_once(self, wiring: Wiring, supervisor: Supervisor) -> int:
        """Poll all sources once (not with the role `worker`) and work on every due task (not with the role `producer`).
        Returns the exit code, 3 when a source could not be polled and nothing else failed.

        Each poll ends, or is given up, before the first task is started, so that no task starts before a `/pause` for
        it is read.
        """
        asked = True
        if self.role != "worker":
            self.pollers = self._pollers(wiring)
            asked = not self.pollers.poll_once()
        supervisor.dead_rows.requeue()
        self._send_notifications(wiring)
        if self.role == "producer":
            return 0 if asked else HostError.exit_code
        for row in wiring.ledger.running_here():
            if wiring.ledger.is_mine(row, wiring.owner):
                self.events.emit("worker_awaited", uuid=row.uuid)
        code = self._step_until(supervisor, lambda: not supervisor.running() and not supervisor.startable(), once=True)
        self._send_notifications(wiring)
        self._remember(supervisor)
        return code or (0 if asked or self.drain else HostError.exit_code)

    def _forever(self, supervisor: Supervisor) -> int:
        if self.role != "worker":
            self.pollers = self._pollers(supervisor.wiring)
            self._serve_webhooks(self.pollers)
            for poller in self.pollers.threads():
                supervisor.threads.append(poller)
                poller.start()
        if supervisor.courier is not None:
            supervisor.courier.start()
        return self._step_until(supervisor, lambda: False)

    def _serve_webhooks(self, pollers: Pollers) -> None:
        """Open the endpoint of webhooks, if one is configured. Raises HostError if the endpoint's port cannot be
        opened."""
        section = self.settings.poke
        if section.listen is None or section.secret is None:
            return
        from agent.daemon.webhooks import MOST_CONNECTIONS, SECONDS, Hook, Webhooks
        from agent.observe.http_server import HttpServer

        def poke(hook: Hook) -> list[str]:
            return pollers.poke(hook.kind, hook.project, hook.sender)

        app = Webhooks(section.secret.get_secret_value(), poke, self.events.emit)
        self.webhooks = HttpServer("poke.listen", app, most=MOST_CONNECTIONS, seconds=SECONDS)
        self.webhooks.start(*parse_listen(section.listen))

    def _obey_poke(self) -> None:
        """Request a poll of all sources, if SIGUSR1 has arrived since the last call of this method."""
        if self.poked:
            self.poked = False
            self.events.emit("poked", by="signal", sources=self.pollers.poke() if self.pollers is not None else [])

    def _reloader(self) -> TemplateReloader | None:
        """The thread body that reloads templates, which has read the templates once; None if no templates of people are
        configured."""
        if not self.settings.prompts.is_set:
            return None
        from agent.daemon.template_reloader import TemplateReloader

        reloader = TemplateReloader(self.settings, self.events, lambda: self.drain)
        reloader.step()
        return reloader

    def _check_reviewers(self, reloader: TemplateReloader | None) -> None:
        """Raise ConfigError for a reviewer with an unknown template; while the folder of the templates is broken, raise
        no error, since the folder may contain the template."""
        if self.settings.consensus.enabled and (reloader is None or not reloader.loader.error):
            check_reviewer_templates(self.settings, prompts.accepted_names())

    def _keep_reloading(self, reloader: TemplateReloader, supervisor: Supervisor) -> None:
        def died(seconds: float) -> None:
            why = f"the thread was ended by an error that nobody foresaw; it goes on in {seconds:g} s"
            self.events.emit("template.reload_failed", source=reloader.loader.source, error=why, kept="")

        thread = RestartingThread("templates", reloader.work, died)
        supervisor.threads.append(thread)
        thread.start()

    def _pollers(self, wiring: Wiring) -> Pollers:
        return Pollers(
            self.settings,
            self.events,
            wiring.forges,
            lost=self.lost,
            surviving=self._surviving,
            wake=self.waker.wake,
            is_over=lambda: self.drain,
            tells=lambda: self.notices is not None,
        )

    def _courier(self) -> BrokerClient | None:
        """The broker client, None if no broker is configured; the daemon imports kombu only if one is configured."""
        if self.settings.taskqueue.broker is None:
            return None
        from agent.daemon.broker_client import BrokerClient

        return BrokerClient(self.settings, self.events, self.waker.wake)

    def _send_notifications(self, wiring: Wiring) -> None:
        """Post the notifications that are due on issues (for example of ends that could not be posted before), except
        on a source that `poll_once` stopped waiting for."""
        pollers = self.pollers
        with self._surviving("ledger"):
            send_pending_notifications(
                wiring, (lambda _row: True) if pollers is None else partial(pollers.is_answered, wiring.forges)
            )

    def _remember(self, supervisor: Supervisor) -> None:
        """Do the due jobs that extract memories from all tasks that have ended by now, until a drain begins or a job
        raises an error."""
        failed: list[Exception] = []
        try:
            while not (self.drain or failed) and supervisor.extraction.is_busy():
                with self._surviving("memory") as failed:
                    supervisor.extraction.step(look=True)
                self.waker.wait(TICK, supervisor.extraction.descriptors())
        finally:
            supervisor.extraction.stop()

    def _step_until(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool = False) -> int:
        """Call the supervisor's `step` until `done` returns True, or the daemon is drained or killed; returns the exit
        code."""
        try:
            return self._steps(supervisor, done, once=once)
        finally:
            self.worked = tuple(supervisor.exit_codes.last)

    def _steps(self, supervisor: Supervisor, done: Callable[[], bool], *, once: bool) -> int:
        deadline: float | None = None  # when a drain kills the workers that are left
        failures = 0
        pulse = HealthFile(self.settings)
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
                self.events.emit("drain_overdue", uuids=sorted({*supervisor.children, *supervisor.inherited.owners}))
                supervisor.kill()
            self._obey_poke()
            error = self._step_supervisor(supervisor, woken=woken or once)
            unasked = self.pollers.unreachable() if self.pollers is not None else ""
            pulse.write(
                [
                    *supervisor.reasons_not_to_start(),
                    str(error or ""),
                    f"no source can be asked: {unasked}" * bool(unasked),
                ],
                supervisor.delays.explained(),
            )
            failures = 0 if supervisor.busy() else failures + (error is not None)
            draining = deadline is not None
            if error is not None and failures >= PATIENCE and (once or draining):
                raise error  # no worker is alive, and repeated steps have failed: further ones would fail too
            if draining and not supervisor.busy():
                return 0
            if once and not draining and not supervisor.busy() and supervisor.room.check_at_end():
                continue
            if not draining and done():
                return supervisor.exit_codes.worst()
            if once and supervisor.room.why and not supervisor.busy():
                raise DiskError(supervisor.room.why)
            if once and supervisor.ground.why and not supervisor.busy():
                raise HostError(supervisor.ground.why)
            if once and supervisor.installed.changed and not supervisor.busy():
                raise HostError(f"{supervisor.installed.changed}: {RESTART}")
            woken = self._wait(supervisor, once=once or draining)

    def _wait(self, supervisor: Supervisor, *, once: bool) -> bool:
        """Wait until a worker reports or ends, the poller or the broker brings a task, the ledger sends a notification,
        a signal arrives, or the next step is due. Returns False if the next step became due and no event came, else
        True."""
        notices = None if once else self._open_notices(supervisor)
        supervisor.tells = notices is not None
        if supervisor.courier is not None:
            supervisor.courier.tells = supervisor.tells
        seconds = TICK if once or self.drain else supervisor.seconds_to_next_step()
        deaf = max(0.0, self.hear_at - clock.monotonic())
        if notices is not None and deaf:
            seconds, notices = min(seconds, deaf), None
        heard = [] if notices is None else [notices.fileno()]
        if not self.waker.wait(seconds, [*supervisor.descriptors(), *heard]):
            return False
        if notices is None:
            return True
        try:
            news = notices.poll()
        except Exception as error:  # noqa: BLE001 - the connection counts as lost; `_open_notices` opens another one
            log.mistake("ledger", "notices", error)
            self.events.emit("notices_lost", error=reason(error))
            notices.close()
            self.notices = None
            return True
        if news:
            self.hear_at = clock.monotonic() + NOTICE_SECONDS
            if self.pollers is not None:
                self.pollers.wake_all()
            if supervisor.courier is not None:
                supervisor.courier.wake()
        return True

    def _open_notices(self, supervisor: Supervisor) -> Notices | None:
        """The connection for the ledger's notifications, None while there is none. If the connection was lost, this
        method tries to open another one, at most once in LISTEN_SECONDS."""
        if self.notices is None and supervisor.ledger.has_notices and clock.monotonic() >= self.listen_at:
            self.listen_at = clock.monotonic() + LISTEN_SECONDS
            self.notices = supervisor.ledger.notices()
        return self.notices

    def _step_supervisor(self, supervisor: Supervisor, *, woken: bool) -> Exception | None:
        """One step of the supervisor; a MakimonoError or OSError is returned after a second (None without one) and not
        raised, since a busy database or a full disk must not end the daemon."""
        with self._surviving("supervisor", str(self.settings.base_dir)) as failed:
            supervisor.step(woken=woken)
        if failed:
            clock.sleep(1.0)
        return failed[0] if failed else None

    @contextmanager
    def _surviving(self, source: str, instance: str = "") -> Iterator[list[Exception]]:
        """A context manager around one round of a part of the daemon (such as a poller): it reports a MakimonoError or
        OSError and lets that part continue; any other error is raised.

        The context manager yields a list, to which it adds the error if there is one. An error that stays the same is
        reported every SAID_AGAIN seconds, since a report each second would fill the rest of the disk."""
        failed: list[Exception] = []
        try:
            yield failed
        except (MakimonoError, OSError) as error:
            failed.append(error)
            now, word = clock.monotonic(), (source, str(error))
            lately = {said: at for said, at in self.trouble.items() if now - at < SAID_AGAIN}
            if word not in lately:
                self.events.emit("poll_failed", source=source, instance=instance, error=str(error))
            self.trouble = {word: now, **lately}  # a new dict is made, since another thread may be reading the old dict
