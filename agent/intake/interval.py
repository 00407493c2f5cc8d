"""The polling interval of a forge: it starts at `scheduling.interval`, grows with each poll that finds nothing, and
returns to `scheduling.interval` when something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.forge.base import Forge

SLOWER = 1.5
"""The factor by which the interval grows with each poll that finds nothing."""


class PollingInterval:
    """Computes when to poll one forge next; times are in seconds, and the first poll is due immediately.

    If `longest` is below `interval`, the longest interval is `interval`.
    """

    def __init__(self, interval: float, longest: float) -> None:
        self.shortest = interval
        self.longest = max(interval, longest)
        self.interval = interval
        self.due_at = clock.monotonic()
        self.rests_until = 0.0  # time (of the monotonic clock) until which the forge asked not to be polled
        self._is_open = False  # whether a poll has begun and `polled` was not called since then

    @classmethod
    def for_forge(cls, settings: Settings, forge: Forge) -> PollingInterval:
        """The PollingInterval of a forge; a forge without requests to a host (a folder) is polled at
        `scheduling.interval` even if nothing changes."""
        base = settings.scheduling.interval
        return cls(base, idle_interval(settings) if hasattr(forge, "per_hour") else base)

    def is_due(self) -> bool:
        """Whether the next poll of the forge is due."""
        return clock.monotonic() >= self.due_at

    def begun(self) -> None:
        """Record that a poll begins: if an error ends the poll before `polled` is called, the next one is due after the
        present interval, and the interval grows when the next one begins."""
        if self._is_open:
            self.interval = min(self.longest, self.interval * SLOWER)
        self._is_open = True
        self.due_at = clock.monotonic() + self.interval

    def polled(self, *, happened: bool, pause: float = 0.0) -> None:
        """Record a poll that has just ended, and compute when the next poll is due.

        `pause` is the number of seconds that the forge asks to wait before the next poll, 0 if it does not ask.
        """
        self._is_open = False
        self.interval = self.shortest if happened else min(self.longest, self.interval * SLOWER)
        now = clock.monotonic()
        self.due_at = now + max(self.interval, pause)
        self.rests_until = now + pause

    def poll_again(self) -> None:
        """Make the next poll due immediately, for example because the last poll was incomplete."""
        self.due_at = clock.monotonic()

    def poke(self) -> None:
        """Make the next poll due immediately, or at the end of a pause that the forge asked for; the interval between
        polls becomes the shortest one again."""
        self.interval = self.shortest
        self.due_at = min(self.due_at, max(clock.monotonic(), self.rests_until))


def idle_interval(settings: Settings) -> float:
    """The longest interval between polls, in seconds: a forge on which nothing changes is polled at this interval."""
    return max(settings.scheduling.interval, settings.scheduling.idle_interval)
