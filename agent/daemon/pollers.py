"""Each source of issues has a thread: a source that hangs, is slow, rate-limited or fails does not delay the others.

Each thread has its own ledger connection and adapters.  The thread polls its source at the interval of that source, and
sends the notifications of tasks of that source that ended or wait.  `daemon/daemon.py` calls this module;
`poller.Poller` alone polls all sources once, one after the other.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent.daemon.finalize import send_pending_notifications
from agent.daemon.restarting_thread import RestartingThread
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
"""Seconds between two checks for due notifications, by whether the ledger sends notifications of changes."""


@dataclass(slots=True)
class PolledSource:
    """The signals for the thread of one source, and its poller once that runs."""

    name: str
    instance: str
    lost: threading.Event = field(default_factory=threading.Event)
    stirred: threading.Event = field(default_factory=threading.Event)
    poller: Poller | None = None

    @property
    def label(self) -> str:
        return f"{self.name} {self.instance}"


class Pollers:
    """`lost` is set when rows are known to be lost from the ledger; each poller is informed.

    `surviving` wraps one round of a thread, `wake` is called when there are new tasks, `is_over` returns whether the
    threads must end, `tells` whether the ledger sends notifications of changes.
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
        self.sources = [PolledSource(forge.source, forge.instance) for forge in forges]
        self.lost = lost
        self.surviving = surviving
        self.wake = wake
        self.is_over = is_over
        self.tells = tells

    def threads(self) -> list[RestartingThread]:
        """One thread for each source, not yet started."""
        return [
            RestartingThread(f"poller {one.label}".strip(), partial(self._run, number), partial(self._died, one))
            for number, one in enumerate(self.sources)
        ]

    def wake_all(self) -> None:
        """End the wait of every thread."""
        for source in self.sources:
            source.stirred.set()

    def unreachable(self) -> str:
        """The names of the sources, if the last poll of each of them failed; else ""."""
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
                with self.surviving(source.label):
                    if poller.poll():
                        self.wake()
                with self.surviving("ledger"):
                    send_pending_notifications(wiring, partial(self._is_of, wiring.forges, number))
                source.stirred.wait(min(TOLD_SECONDS[self.tells()], max(TICK, poller.seconds_to_next_poll())))
                source.stirred.clear()
        finally:
            wiring.close()

    def _spread(self) -> None:
        """Inform each poller that rows are lost."""
        if self.lost.is_set():
            self.lost.clear()
            for source in self.sources:
                source.lost.set()

    def _is_of(self, forges: Sequence[Forge], number: int, row: Row) -> bool:
        """Whether the thread with this number sends the notification of the row.

        Each thread serves its own source; the first also serves rows that belong to no source (the private trackers of
        `solve`).
        """
        return next((at for at, forge in enumerate(forges) if forge.covers(row.key)), 0) == number

    def _died(self, source: PolledSource, seconds: float) -> None:
        why = f"the poller was ended by an error that nobody foresaw; its trace is above, it goes on in {seconds:g} s"
        self.events.emit("poll_failed", source=source.name, instance=source.instance, error=why)
