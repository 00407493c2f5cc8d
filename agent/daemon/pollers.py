"""Each source of issues has a thread: a source that hangs, is slow, rate-limited or fails does not delay the others.

Each thread has its own ledger connection and adapters. The thread polls its source at the interval of that source, and
sends the notifications of tasks of that source that ended or wait. `poll_once` polls all sources once, side by side
(`run --once`). A single `poller.Poller` with several sources is not used, since it would poll them one after the other.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent import clock
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.pokes import Pokes
from agent.daemon.restarting_thread import RestartingThread
from agent.errors import ForgeError
from agent.forge.base import ForgeReports
from agent.intake.poller import Poller
from agent.wiring.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Row

TICK = 0.1
TOLD_SECONDS = {True: 15.0, False: 2.0}
"""Maximum number of seconds between two checks for notifications that are due on issues. The key of the mapping
is whether the ledger reports changes of rows to the daemon."""


STALL_SECONDS = 60.0
"""If for this time in seconds a source has not answered and its poll has put no task into the ledger, `run --once`
stops waiting for that poll. STALL_SECONDS is longer than the time-out of one request."""


@dataclass(slots=True)
class PolledSource:
    """The state of one source of issues: the signals for its thread, its poller once the thread runs, the error that
    ended its `poll_once`, and whether `poll_once` stopped waiting for the source."""

    name: str
    instance: str
    pokes: Pokes
    projects: tuple[str, ...] = ()  # the projects that the configuration names for this source
    # the agent's accounts: a poke that one of them has caused leads to no poll; None until the source has answered
    own: tuple[str, ...] | None = None
    lost: threading.Event = field(default_factory=threading.Event)
    stirred: threading.Event = field(default_factory=threading.Event)
    poller: Poller | None = None
    error: Exception | None = None
    stalled: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} {self.instance}"

    def learn_own(self, forge: Forge) -> None:
        """Request the agent's accounts from the source and store them in `own`; if the source does not answer, `own`
        stays None, and the accounts are requested again after the next poll of the source."""
        with suppress(ForgeError):
            self.own = tuple(map(str.casefold, ForgeReports(forge).agents_accounts()))

    def may_have(self, project: str) -> bool:
        """Whether the source may have this project: False only if the configuration names the source's projects, all by
        their paths, and this project is not among them."""
        named = [one.casefold() for one in self.projects]
        return not project or not named or project.casefold() in named or any(map(str.isdigit, named))


class Pollers:
    """`lost` is set when rows are known to be lost from the ledger, and each poller gets this signal.

    `surviving` makes a context manager for one round of a thread: it reports an error of the round, and the thread
    continues. `wake` is called when the ledger has new tasks, `is_over` returns whether the threads must end, and
    `tells` returns whether the ledger reports changes of rows to the daemon.
    """

    def __init__(
        self,
        settings: Settings,
        events: Events,
        forges: Sequence[Forge],
        *,
        lost: threading.Event,
        surviving: Callable[[str], AbstractContextManager[object]],
        wake: Callable[[], None],
        is_over: Callable[[], bool],
        tells: Callable[[], bool],
    ) -> None:
        self.settings = settings
        self.events = events
        longest = settings.scheduling.interval
        self.sources = [
            PolledSource(forge.source, forge.instance, Pokes(longest), _projects_of(forge)) for forge in forges
        ]
        self.lost = lost
        self.surviving = surviving
        self.wake = wake
        self.is_over = is_over
        self.tells = tells

    def threads(self) -> list[RestartingThread]:
        """One thread for each source of issues, not yet started."""
        return [
            RestartingThread(f"poller {one.label}".strip(), partial(self._run, number), partial(self._died, one))
            for number, one in enumerate(self.sources)
        ]

    def poll_once(self) -> list[str]:
        """Poll each source once, all at the same time; returns the names of the sources that were not polled
        completely.

        A source without progress for STALL_SECONDS is reported as failed, and `poll_once` stops waiting for it;
        `poll_once` stops waiting for every source when the daemon has to end. The thread of a source for which
        `poll_once` no longer waits ends when the process ends; issues that it has not queued until then wait for the
        next poll. Raises the error that ended the poll of a source, such as DiskError or LedgerError; an error of the
        forge ends no poll.
        """
        self._spread()
        began = clock.monotonic()
        threads = [
            threading.Thread(target=self._poll_one, args=(number,), name=f"poller {one.label}", daemon=True)
            for number, one in enumerate(self.sources)
        ]
        for thread in threads:
            thread.start()
        missed = []
        for source, thread in zip(self.sources, threads, strict=True):
            while thread.is_alive() and not self.is_over() and not self._has_stalled(source, began):
                thread.join(TICK)
            if thread.is_alive():
                source.stalled = True
                missed.append(source.label)
                if not self.is_over():
                    why = f"it has answered nothing for {STALL_SECONDS:.0f} s and is not waited for; the others go on"
                    self.events.emit("poll_failed", source=source.name, instance=source.instance, error=why)
            elif source.error is not None:
                raise source.error
            elif source.poller is None or source.poller.unasked:
                missed.append(source.label)
        return missed

    def _poll_one(self, number: int) -> None:
        source = self.sources[number]
        try:
            with closing(Wiring(self.settings, events=self.events)) as wiring:
                forge = wiring.forges[number]
                source.poller = Poller(self.settings, wiring.ledger, [forge], self.events, lost=source.lost)
                source.poller.poll(everything=True)
        except Exception as error:  # noqa: BLE001 - the error is stored here, and the main thread raises it
            source.error = error

    def _has_stalled(self, source: PolledSource, began: float) -> bool:
        """Whether for STALL_SECONDS a source has answered nothing and its poll has put no task into the ledger."""
        last = max(began, source.poller.last_progress() if source.poller is not None else 0.0)
        return clock.monotonic() - last > STALL_SECONDS

    def is_answered(self, forges: Sequence[Forge], row: Row) -> bool:
        """False if `poll_once` stopped waiting for the source of the row; else True, also if no source has the row.
        `forges` has the adapters in the order of `sources`."""
        stalled = (forge for forge, source in zip(forges, self.sources, strict=True) if source.stalled)
        return not any(forge.covers(row.key) for forge in stalled)

    def wake_all(self) -> None:
        """End the wait of every thread."""
        for source in self.sources:
            source.stirred.set()

    def poke(self, kind: str = "", project: str = "", by: str = "") -> list[str]:
        """Request a poll of the sources of this kind that may have this project; returns their names. If no source has
        this kind, sources of all kinds are considered; if none of them may have the project, all of them are polled. A
        source is left out if `by` is the agent's account at it."""
        of_kind = [one for one in self.sources if one.name == kind] or self.sources
        chosen = [one for one in of_kind if one.may_have(project)] or of_kind
        chosen = [one for one in chosen if by.casefold() not in (one.own or ())]
        for source in chosen:
            source.pokes.poke()
            source.stirred.set()
        return [source.label for source in chosen]

    def unreachable(self) -> str:
        """The names of all sources if the last poll of every source failed; else ""."""
        pollers = [source.poller for source in self.sources]
        if not pollers or not all(poller is not None and poller.unasks_all() for poller in pollers):
            return ""
        return ", ".join(sorted(source.label for source in self.sources))

    def _run(self, number: int) -> None:
        source = self.sources[number]
        wiring = Wiring(self.settings, events=self.events)
        try:
            forge = wiring.forges[number]
            poller = Poller(self.settings, wiring.ledger, [forge], self.events, lost=source.lost, compares=True)
            source.poller = poller
            while not self.is_over():
                self._spread()
                if source.pokes.begin_poll():
                    poller.poke()
                with self.surviving(source.label):
                    if poller.poll():
                        self.wake()
                    if source.own is None and not poller.away:
                        source.learn_own(forge)
                with self.surviving("ledger"):
                    send_pending_notifications(wiring, partial(self._is_of, wiring.forges, number))
                next_poll = min(poller.seconds_to_next_poll(), source.pokes.seconds())
                source.stirred.wait(min(TOLD_SECONDS[self.tells()], max(TICK, next_poll)))
                source.stirred.clear()
        finally:
            wiring.close()

    def _spread(self) -> None:
        """If rows are lost from the ledger, give each poller that signal once."""
        if self.lost.is_set():
            self.lost.clear()
            for source in self.sources:
                source.lost.set()

    def _is_of(self, forges: Sequence[Forge], number: int, row: Row) -> bool:
        """Whether the source thread with the number `number` posts the notification about the row.

        Each thread serves its own source; the first thread also serves rows that belong to no source (the private
        trackers of `solve`).
        """
        return next((at for at, forge in enumerate(forges) if forge.covers(row.key)), 0) == number

    def _died(self, source: PolledSource, seconds: float) -> None:
        why = f"the poller was ended by an error that nobody foresaw; its trace is above, it goes on in {seconds:g} s"
        self.events.emit("poll_failed", source=source.name, instance=source.instance, error=why)


def _projects_of(forge: Forge) -> tuple[str, ...]:
    """The projects that the section of the forge names; () for a forge without such a section."""
    return tuple(getattr(getattr(forge, "section", None), "project_names", ()))
