"""How the outside reaches a running task: signals, the row's `requested`, the forge (a label taken away, an order).

One `TaskControl` per worker.  `poll` is called by the loop before each turn and, about once a second, by the watcher
of a model call, from another thread; looking at the row and at the forge is therefore throttled and behind a lock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import Fenced, ForgeError, LedgerError
from agent.values import End, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

ROW_SECONDS = 2.0
FORGE_SECONDS = 15.0
"""Seconds between two looks at the row and at the forge; at the forge as often as it is polled, where that is more."""


class TaskControl:
    """`requested` reads the row's word ("stop", "pause", None); `wanted` asks the forge (the same); `limit` says that a
    limit is reached which a single step can pass (`quota.py`); `often` is `scheduling.interval`; `patience` is
    `scheduling.drain_seconds`: so long a drain waits for the model's answer, or for the publishing, that is under
    way."""

    def __init__(
        self,
        requested: Callable[[], str | None],
        wanted: Callable[[], str | None],
        limit: Callable[[], Outcome | None] = lambda: None,
        often: float = FORGE_SECONDS,
        patience: float = 0.0,
    ) -> None:
        self.requested = requested
        self.wanted = wanted
        self.limit = limit
        self.every = min(often, FORGE_SECONDS)
        self.patience = patience
        self.draining = threading.Event()
        self.drained_at = 0.0
        self.lock = threading.Lock()
        self.outcome: Outcome | None = None
        self.settled = self.concluding = False
        self.row_at = self.forge_at = -FORGE_SECONDS

    def drain(self) -> None:
        """The daemon goes down: end at the next turn and give the row back (called by the signal handler).  A second
        call changes nothing: a service manager may signal the worker as well as the daemon."""
        if not self.draining.is_set():
            self.drained_at = clock.monotonic()
            self.draining.set()

    def pending(self) -> bool:
        """Whether somebody said something that ends the work, and nothing has been made of it yet: what waits, git for
        one, should end (`step.told`).  While what the work came to is published, a drain is heard only when the
        patience is over: a push that is under way is finished and told."""
        return not self.settled and self.poll(answering=self.concluding) is not None

    def settle(self) -> None:
        """The work is over and is being published.  What was said so far is being carried out: what that needs waits
        as long as it has to."""
        self.settled = self.outcome is not None
        self.concluding = True

    def resume(self) -> None:
        """The model works on after all: a drain is heard at once."""
        self.concluding = False

    def hurry(self) -> None:
        """The row holds a word that was put there just now: read it at the next look."""
        self.row_at = -ROW_SECONDS

    def poll(self, *, answering: bool = False) -> Outcome | None:
        """STOPPED or PAUSED when somebody asked for it, DRAINED on SIGTERM, LIMIT; the first answer stays.  While the
        model is `answering`, DRAINED only when the patience is over."""
        if self.outcome is None and self.lock.acquire(blocking=False):
            try:
                self.outcome = self._look(answering=answering)
            finally:
                self.lock.release()
        return self.outcome

    def _look(self, *, answering: bool) -> Outcome | None:
        now = clock.monotonic()
        word = None
        if now - self.row_at >= ROW_SECONDS:
            self.row_at = now
            try:
                word = self.requested()
            except Fenced:
                # Another attempt owns the task: end as a drain does, whose first step finds that out, and stop there.
                return Outcome(End.DRAINED, code="fenced")
            except LedgerError:
                word = None  # a busy database: the next look will tell
        if word is None and now - self.forge_at >= self.every:
            self.forge_at = now
            try:
                word = self.wanted()
            except ForgeError:
                word = None  # the forge is away: the task goes on
        if word == "stop":
            return Outcome(End.STOPPED, code="stopped", summary="A person asked for it.")
        if word == "pause":
            return Outcome(End.PAUSED, code="paused", summary="A person asked for it.")
        if self.draining.is_set() and not (answering and now - self.drained_at < self.patience):
            return Outcome(End.DRAINED, code="drained")
        return self.limit()
