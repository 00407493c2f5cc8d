"""Renews the lease of the task on which this process works, as long as the work makes progress.

The loop also renews the lease by a heartbeat in each turn (`loop.py`). A clone, a push or an answer of the model may
take longer than a lease; meanwhile a thread renews the lease, but only as long as the current step
(`agent/deadline.py`) is within its time limit. A worker that hangs loses its lease. Another host may take over a task
with an expired lease, and the daemon of this host finds that `lease_until` has passed although the lock of the folder
is still held. If another attempt owns the row, the current step is interrupted.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from agent import deadline
from agent.context.manager import LEASE_SECONDS
from agent.errors import Fenced, MakimonoError

if TYPE_CHECKING:
    from agent.observe.events import Events
    from agent.taskqueue import Ledger

RENEW_SECONDS = 20.0


class Lease:
    """The lease of one attempt: inside the `with` block, a second thread renews the lease while the calling thread
    works."""

    def __init__(self, ledger: Ledger, uuid: str, attempt: int, events: Events) -> None:
        self.ledger = ledger
        self.uuid = uuid
        self.attempt = attempt
        self.events = events
        self.overdue: deadline.Step | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Self:
        deadline.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        deadline.finish()

    def renew(self) -> None:
        """Renew the lease, unless the current step has exceeded its time; interrupt the step if another attempt owns
        the row."""
        now = deadline.current()
        if now.overdue:
            if self.overdue != now:
                self.overdue = now
                seconds = round(now.until - now.since)
                self.events.emit("step_overdue", uuid=self.uuid, step=now.name, seconds=seconds)
            return
        try:
            self.ledger.heartbeat(self.uuid, self.attempt, LEASE_SECONDS)
        except Fenced as error:
            self._ended.set()
            deadline.interrupt(error)
        except MakimonoError:
            pass  # the ledger cannot be reached now; a lease is long enough for several tries to renew it

    def _run(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            self.renew()
