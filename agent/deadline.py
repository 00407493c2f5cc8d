"""Records the current step of the thread that works on a task, and the deadline of that step.

Every operation that can take long has a time limit of its own (the time-out of a command, the time-out of a model call,
the length of a wait), and declares it with `within`. The work between two declared steps has a limit of ALLOWANCE
seconds. `worker/lease.py` renews the lease of a task only while the current step is not overdue. If another process has
taken over the task, `worker/lease.py` calls `interrupt`, which ends the current step with an error. The record of the
current step is global, since a process works on one task only. In threads other than the one that called `begin`, and
in a process that works on no task, which never calls `begin`, `within` has no effect; `check` raises in any thread.

Code that waits can ask with `is_stopping` whether the task shall stop.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALLOWANCE = 600.0
"""The limit in seconds of work without a time-out of its own: reading files, counting, a few requests to a forge."""
MARGIN = 30.0
"""Seconds that a step may need to end after its time-out is over, because it has to kill processes and clean up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a task's work that has a deadline.

    `until` is the deadline of the step as a value of time.monotonic, which does not advance while the machine is
    suspended.
    """

    name: str
    since: float
    until: float

    @property
    def overdue(self) -> bool:
        """Whether the step is past its deadline, that is, hangs."""
        return time.monotonic() > self.until


class _Place:
    def __init__(self) -> None:
        self.worker: int | None = None
        self.step = Step("start", 0.0, 0.0)
        self.end: Exception | None = None
        self.ear: tuple[int, Callable[[], bool]] | None = None


_place = _Place()


def begin(allowance: float = ALLOWANCE) -> None:
    """Record that the calling thread starts to work on a task; `allowance` is the limit in seconds for work without a
    time-out of its own."""
    now = time.monotonic()
    _place.worker, _place.step, _place.end = threading.get_ident(), Step("start", now, now + allowance), None


def finish() -> None:
    """Record that the thread has finished its work on the task; an error that `interrupt` has set is dropped."""
    _place.worker, _place.end = None, None


@contextmanager
def within(name: str, seconds: float) -> Iterator[None]:
    """Inside the block the current step is `name`, which must end by itself after `seconds`; its deadline is MARGIN
    later.

    After the block the previous step continues, with at least ALLOWANCE seconds left. If `interrupt` was called,
    `within` raises its error before the block.
    """
    if _place.worker != threading.get_ident():
        yield
        return
    check()
    before, now = _place.step, time.monotonic()
    _place.step = Step(name, now, now + seconds + MARGIN)
    try:
        yield
    finally:
        now = time.monotonic()
        _place.step = Step(before.name, now, max(before.until, now + ALLOWANCE))


def current() -> Step:
    """The current step of the thread that works on a task."""
    return _place.step


def interrupt(error: Exception) -> None:
    """End the current step from another thread: from now on `check` and the next `within` raise `error`. Has no effect
    while no thread works on a task."""
    if _place.worker is not None:
        _place.end = error


@contextmanager
def listening(stop: Callable[[], bool]) -> Iterator[None]:
    """Inside the block `is_stopping` of this thread returns `stop()`, which is True if the task shall stop and so a
    wait shall end."""
    _place.ear = threading.get_ident(), stop
    try:
        yield
    finally:
        _place.ear = None


def is_stopping() -> bool:
    """Whether the task of this thread shall stop."""
    ear = _place.ear
    return ear is not None and ear[0] == threading.get_ident() and ear[1]()


def check() -> None:
    """Raise the error that was passed to `interrupt`, if there is one.

    Code that waits for a command calls `check` a few times a second.
    """
    if _place.end is not None:
        raise _place.end
