"""The one clock.  Everything that asks for the time or waits does it here, so that tests can move time."""

from __future__ import annotations

import time as _time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agent import step

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Real time."""

    def __init__(self) -> None:
        self._second = (0, "")

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        return datetime.now(UTC)

    def stamp(self) -> str:
        """The time as it is written.  Every message has one: the text of a second is kept."""
        second, rest = divmod(_time.time_ns(), 1_000_000_000)
        known, text = self._second
        if second != known:
            text = _time.strftime("%Y-%m-%dT%H:%M:%S", _time.gmtime(second))
            self._second = (second, text)
        return f"{text}.{rest // 1000:06}Z"

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        with step.within("wait", seconds):
            _time.sleep(max(0.0, seconds))


class FakeClock(Clock):
    """Time that moves only when told, or when somebody sleeps.  `slept` lists the waits."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__()
        self.time = start or datetime(2026, 1, 31, 9, 15, tzinfo=UTC)
        self.ticks = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def stamp(self) -> str:
        return written(self.time)

    def monotonic(self) -> float:
        return self.ticks

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back, while no time passes."""
        self.time += timedelta(seconds=seconds)

    def move(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.time += timedelta(seconds=seconds)
        self.ticks += seconds


_clock = Clock()


@contextmanager
def use(clock: Clock) -> Iterator[Clock]:
    """Run with another clock (tests)."""
    global _clock  # noqa: PLW0603 - the switch is the point of this module
    old, _clock = _clock, clock
    try:
        yield clock
    finally:
        _clock = old


def is_real() -> bool:
    """Whether time passes by itself; False while a FakeClock is used."""
    return not isinstance(_clock, FakeClock)


def now() -> datetime:
    """The time, aware, in UTC."""
    return _clock.now()


def stamp(moment: datetime | None = None) -> str:
    """`2026-01-31T09:15:00.123456Z`: the one form in which times are written."""
    return _clock.stamp() if moment is None else written(moment)


def written(moment: datetime) -> str:
    """A time in that form."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def parse(text: str) -> datetime:
    """The inverse of `stamp`; accepts any ISO 8601 time, naive ones are UTC."""
    moment = datetime.fromisoformat(text.strip())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def monotonic() -> float:
    """Seconds that never go back."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _clock.sleep(seconds)
