"""What the thread that works does right now, and until when at the latest: one step after the other.

Everything here that can take long has an end of its own (a command its time-out, a model call its whole-call time-out,
a wait its length), and says so with `within`.  Between such steps is plain work, which has ALLOWANCE.  `run/lease.py`
keeps a task's lease only while the newest step is not overdue; that another process took the task over comes back here
by `cut`, and ends the step.  One process works on one task, so there is one place for it; threads beside the one that
called `begin` say nothing.  A command line that works on no task never calls `begin`, and nothing happens here.

What a person or a limit says of the task ends those waits that ask for it (`told`).
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
"""Seconds for work that has no time-out of its own: reading files, counting, a few requests to a forge."""
MARGIN = 30.0
"""Seconds beyond its time-out that a step may take to end: kill, clean up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `until` in seconds of time.monotonic, which does not count a suspended machine."""

    name: str
    since: float
    until: float

    @property
    def overdue(self) -> bool:
        """Whether it should have ended by now: something hangs."""
        return time.monotonic() > self.until


class _Place:
    def __init__(self) -> None:
        self.worker: int | None = None
        self.step = Step("start", 0.0, 0.0)
        self.end: Exception | None = None
        self.ear: tuple[int, Callable[[], bool]] | None = None


_place = _Place()


def begin(allowance: float = ALLOWANCE) -> None:
    """The calling thread begins to work on a task."""
    now = time.monotonic()
    _place.worker, _place.step, _place.end = threading.get_ident(), Step("start", now, now + allowance), None


def finish() -> None:
    """It works no longer; what `cut` said is forgotten."""
    _place.worker, _place.end = None, None


@contextmanager
def within(name: str, seconds: float) -> Iterator[None]:
    """The block is one step and ends by itself after `seconds`.  What was done before goes on behind it, with at least
    ALLOWANCE.  Raises what `cut` was told."""
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
    """What the worker does."""
    return _place.step


def cut(error: Exception) -> None:
    """End the step, from another thread: `check`, and the beginning of the next step, raise `error` from now on."""
    if _place.worker is not None:
        _place.end = error


@contextmanager
def hearing(stop: Callable[[], bool]) -> Iterator[None]:
    """Inside, `told` of this thread asks `stop`: whether the task was told to end, so that a wait should."""
    _place.ear = threading.get_ident(), stop
    try:
        yield
    finally:
        _place.ear = None


def told() -> bool:
    """Whether the task of this thread was told to end."""
    ear = _place.ear
    return ear is not None and ear[0] == threading.get_ident() and ear[1]()


def check() -> None:
    """Raise what `cut` was told; called a few times a second by whoever waits for a command."""
    if _place.end is not None:
        raise _place.end
