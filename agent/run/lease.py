"""Keeps the lease of the task that this process works on, while its work gets on and no longer.

Each turn beats by itself (`loop.py`).  A clone, a push or an answer of the model may take longer than a lease:
meanwhile a thread renews it, but only while the current step (`agent/step.py`) has not outlived its own time-out.  A
worker that hangs therefore loses its lease: other hosts take the task over by that, and the daemon of this host finds a
row whose `lease_until` is over although the folder's lock is held.  When another attempt owns the row, the step is cut.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from agent import step
from agent.context.manager import LEASE_SECONDS
from agent.errors import Fenced, MakimonoError

if TYPE_CHECKING:
    from agent.observe.events import Events
    from agent.taskqueue import Ledger

RENEW_SECONDS = 20.0


class Lease:
    """The lease of one attempt, kept while the `with` block runs in the thread that works."""

    def __init__(self, ledger: Ledger, uuid: str, attempt: int, events: Events) -> None:
        self.ledger = ledger
        self.uuid = uuid
        self.attempt = attempt
        self.events = events
        self.overdue: step.Step | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Self:
        step.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        step.finish()

    def renew(self) -> None:
        """Push the lease forward, unless the current step is overdue; cut the step when somebody else owns the row."""
        now = step.current()
        if now.overdue:
            if self.overdue != now:
                self.overdue = now
                seconds = round(now.until - now.since)
                self.events.emit("step_overdue", uuid=self.uuid, step=now.name, seconds=seconds)
            return
        try:
            self.ledger.beat(self.uuid, self.attempt, LEASE_SECONDS)
        except Fenced as error:
            self._ended.set()
            step.cut(error)
        except MakimonoError:
            pass  # the rows cannot be reached just now: a lease outlasts several tries

    def _run(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            self.renew()
