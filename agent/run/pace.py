"""How often a place is asked: at `scheduling.interval`, ever more rarely while nothing happens there, at once more
often when something does.  Pure; used by `producer.py`, and by `doctor` for the figure that it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.forge.base import Forge

SLOWER = 1.5
"""By how much the interval grows with each look that finds nothing."""


class Pace:
    """The interval of one place, in seconds; it is due at once.  `longest` below `interval` counts as `interval`."""

    def __init__(self, interval: float, longest: float) -> None:
        self.shortest = interval
        self.longest = max(interval, longest)
        self.interval = interval
        self.due_at = clock.monotonic()

    @classmethod
    def of(cls, settings: Settings, forge: Forge) -> Pace:
        """A folder costs nobody anything and is always asked at `scheduling.interval`."""
        base = settings.scheduling.interval
        return cls(base, settled(settings) if hasattr(forge, "per_hour") else base)

    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return clock.monotonic() >= self.due_at

    def looked(self, *, happened: bool, pause: float = 0.0) -> None:
        """It was asked just now.  `pause`: the seconds that the place wants to be left alone, if it said so."""
        self.interval = self.shortest if happened else min(self.longest, self.interval * SLOWER)
        self.due_at = clock.monotonic() + max(self.interval, pause)

    def again(self) -> None:
        """The last look was not the whole of it: go on at once."""
        self.due_at = clock.monotonic()


def settled(settings: Settings) -> float:
    """The interval of a place in which nothing happens any more."""
    return max(settings.scheduling.interval, settings.scheduling.idle_interval)
