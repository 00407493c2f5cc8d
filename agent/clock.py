"""The clock of the program. Code with waits that a test must control reads the time and sleeps through the module
`clock`; short waits for processes use `time`."""

from __future__ import annotations

import time as _time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agent import deadline

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """The clock of the program: it reads and waits for the real time."""

    def __init__(self) -> None:
        self._second = (0, "")

    def now(self) -> datetime:
        """The present time in UTC, as an aware datetime."""
        return datetime.now(UTC)

    def stamp(self) -> str:
        """The present time as text in the form of the function `stamp(moment)`.

        The text of the present time up to the second is cached, since every message has a time.
        """
        second, rest = divmod(_time.time_ns(), 1_000_000_000)
        known, text = self._second
        if second != known:
            text = _time.strftime("%Y-%m-%dT%H:%M:%S", _time.gmtime(second))
            self._second = (second, text)
        return f"{text}.{rest // 1000:06}Z"

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        with deadline.within("wait", seconds):
            _time.sleep(max(0.0, seconds))


class FakeClock(Clock):
    """A clock that advances only by `move`, `jump` or a sleep. `slept` lists the lengths in seconds of all sleeps on
    this clock."""

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__()
        self.time = start or datetime(2026, 1, 31, 9, 15, tzinfo=UTC)
        self.ticks = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def stamp(self) -> str:
        return format_stamp(self.time)

    def monotonic(self) -> float:
        return self.ticks

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move(seconds)

    def jump(self, seconds: float) -> None:
        """Change the wall clock by `seconds`; the monotonic clock stays as it is."""
        self.time += timedelta(seconds=seconds)

    def move(self, seconds: float) -> None:
        """Advance the wall clock and the monotonic clock by `seconds`, without waiting."""
        self.time += timedelta(seconds=seconds)
        self.ticks += seconds


_clock = Clock()


@contextmanager
def use(clock: Clock) -> Iterator[Clock]:
    """Replace the clock of the program by `clock` inside the block (tests)."""
    global _clock  # noqa: PLW0603 - the global clock can be replaced, which is the purpose of the module `clock`
    old, _clock = _clock, clock
    try:
        yield clock
    finally:
        _clock = old


def is_real() -> bool:
    """Whether the clock of the program is the real one and not a FakeClock."""
    return not isinstance(_clock, FakeClock)


def now() -> datetime:
    """The present time in UTC, as an aware datetime."""
    return _clock.now()


def stamp(moment: datetime | None = None) -> str:
    """A time as text, `2026-01-31T09:15:00.123456Z`: the form in which the program writes times to its files."""
    return _clock.stamp() if moment is None else format_stamp(moment)


def format_stamp(moment: datetime) -> str:
    """The time `moment` as text in the form that `stamp` returns."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def parse(text: str) -> datetime:
    """The inverse of `stamp`: `parse` accepts any ISO 8601 time, and treats a time without a zone as UTC.

    Raises ValueError for a text that is no ISO 8601 time, and for a time with a year in UTC that is not 1 to 9999.
    """
    moment = datetime.fromisoformat(text.strip())
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text.strip()} is before the year 1 or after the year 9999 in UTC") from error


def monotonic() -> float:
    """Seconds of a clock that never goes back."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Wait for `seconds`."""
    _clock.sleep(seconds)
