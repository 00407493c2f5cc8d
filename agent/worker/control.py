"""Requests to a running task from outside: signals, the column `requested` of its row, the forge (a removed label, a
command).

Each attempt has one `TaskControl`. The loop calls `TaskControl.poll` before each turn and between the tool calls of a
turn; while the model answers, a watcher thread calls `TaskControl.poll` about once a second. Polls read the row at most
every ROW_SECONDS, and the forge at most every FORGE_SECONDS (or every `scheduling.interval` if that is shorter); only
one thread reads at a time.
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
"""Seconds between two reads of the forge; `scheduling.interval` if that is shorter, so that a running task reads the
forge as often as the daemon."""
BY_COMMAND = "A person asked for it by a command, where the program runs."


class TaskControl:
    """The requests of people and of the daemon to one task.

    `requested` is a function that reads the request in the row ("stop", "pause" or None); `wanted` is a function that
    asks the forge for a request of a person. `limit` is a function that returns an outcome if the task has reached a
    limit that a single step can exceed (`folder_quota.py`). `often` is the value of `scheduling.interval`. `patience`
    is the value of `scheduling.drain_seconds`: the maximum seconds that a drain waits for an answer of the model, or
    for a publication that has begun. `why` returns a sentence about the reason for which a person stopped the task on
    the forge."""

    def __init__(
        self,
        requested: Callable[[], str | None],
        wanted: Callable[[], str | None],
        limit: Callable[[], Outcome | None] = lambda: None,
        often: float = FORGE_SECONDS,
        patience: float = 0.0,
        why: Callable[[], str] = lambda: "",
    ) -> None:
        self.requested = requested
        self.why = why
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
        """Record that the daemon shuts down: the task ends before the next turn and releases its row (the signal
        handler for SIGTERM calls this). A second call of `drain` has no effect: a service manager may signal both the
        worker and the daemon."""
        if not self.draining.is_set():
            self.drained_at = clock.monotonic()
            self.draining.set()

    def has_request(self) -> bool:
        """Whether a step that waits, such as git, must end now (`deadline.is_stopping`): a person has asked for a stop
        or a pause, the task drains, a limit is reached, or another attempt owns the task. While the result is
        published, a drain has an effect only after `patience`, so that a push that has begun is finished and reported.
        If a stop, a pause, a drain or a limit has ended the model's work already, the publication of the work
        continues, with one exception: after a limit, a person's stop ends the publication too."""
        if self.settled:
            return self._stops_publication()
        return self.poll(answering=self.concluding) is not None

    def _stops_publication(self) -> bool:
        """Whether a person has stopped the task after a limit ended the model's work and while that work is being
        published."""
        if self.outcome is None or self.outcome.end is not End.LIMIT or not self.lock.acquire(blocking=False):
            return False
        try:
            asked = self._read_request(clock.monotonic())
            if asked is None or asked.end is not End.STOPPED:
                return False
            self.outcome = asked
            return True
        except Fenced:
            return False  # the check before the next outside effect finds out that another attempt owns the task
        finally:
            self.lock.release()

    def finish_work(self, outcome: Outcome) -> None:
        """Record that the model's work is over with `outcome` and its publication begins.

        A request to stop or pause from before the end of the model's work has ended that work already, so the request
        does not end the steps of the publication. A limit that was reached while the model finished is ignored, so that
        the limit does not end the check and the push of finished work.
        """
        if self.outcome is not None and self.outcome.end is End.LIMIT and outcome.end is not End.LIMIT:
            self.outcome = None
        self.settled = self.outcome is not None
        self.concluding = True

    def resume(self) -> None:
        """Record that the model continues to work: a drain then ends the attempt at its next turn, and no longer waits
        for `patience` as it does during a publication."""
        self.concluding = False

    def read_at_once(self, *, forge: bool = False) -> None:
        """Let the next poll read the row regardless of the time since the last read, because a request has just been
        written into the row.

        With `forge` the next poll also reads the forge, regardless of the time since the last read.
        """
        self.row_at = -ROW_SECONDS
        if forge:
            self.forge_at = -FORGE_SECONDS

    def poll(self, *, answering: bool = False) -> Outcome | None:
        """The reason to end the task now: STOPPED or PAUSED on a person's request, DRAINED after SIGTERM or if another
        attempt owns the task, LIMIT for a limit, else None. Later calls return the first reason again, until
        `finish_work` drops a limit or a stop replaces a limit during the publication. While the model is `answering`,
        DRAINED after SIGTERM is returned only after `patience`."""
        if self.outcome is None and self.lock.acquire(blocking=False):
            try:
                self.outcome = self._find_outcome(answering=answering)
            finally:
                self.lock.release()
        return self.outcome

    def _find_outcome(self, *, answering: bool) -> Outcome | None:
        now = clock.monotonic()
        try:
            asked = self._read_request(now)
        except Fenced:
            # Another attempt owns the task, so the task ends as if it were drained. The next step that checks who owns
            # the row finds the other attempt and stops.
            return Outcome(End.DRAINED, code="fenced")
        if asked is not None:
            return asked
        if self.draining.is_set() and not (answering and now - self.drained_at < self.patience):
            return Outcome(End.DRAINED, code="drained")
        return self.limit()

    def _read_request(self, now: float) -> Outcome | None:
        """The end (stop or pause) that a person has requested, read from the row or the forge if the time for the next
        read has come; None if nobody has. Raises Fenced."""
        word, why = None, BY_COMMAND
        if now - self.row_at >= ROW_SECONDS:
            self.row_at = now
            try:
                word = self.requested()
            except Fenced:
                raise
            except LedgerError:
                word = None  # the ledger does not answer: a later poll reads the row, and the task continues
        if word is None and now - self.forge_at >= self.every:
            self.forge_at = now
            try:
                word = self.wanted()
                why = self.why() if word == "stop" else ""
            except Fenced:
                raise
            except (ForgeError, LedgerError):
                # The forge does not answer, or the ledger, from which `wanted` reads the row. A later poll repeats the
                # request, and the task continues.
                word = None
        if word == "stop":
            return Outcome(End.STOPPED, code="stopped", summary=why)
        return Outcome(End.PAUSED, code="paused", summary=why) if word == "pause" else None
