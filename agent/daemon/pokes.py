"""Stores requests to poll one source at once (pokes), and computes when the next poke leads to a poll.

The first poke of a source leads to a poll at once. The next poll because of a poke may begin `spacing` seconds later;
all pokes before that time lead together to one poll. A poll for which a poke had to wait doubles `spacing`, up to
`scheduling.interval`; a poll at once sets `spacing` back to LEAST_SECONDS. The class `Pokes` does no I/O.
"""

from __future__ import annotations

from agent import clock

LEAST_SECONDS = 2.0


class Pokes:
    """The requests to poll one source at once. Any thread may call `poke`; only the thread of the source may call the
    other methods.

    `longest` is the upper bound of `spacing`, in seconds; it is raised to LEAST_SECONDS if it is smaller.
    """

    def __init__(self, longest: float) -> None:
        self.longest = max(LEAST_SECONDS, longest)
        self.spacing = LEAST_SECONDS
        self.next_at = 0.0
        self._waits = False
        self._early = False  # whether a poke came before `next_at`

    def poke(self) -> None:
        """Request a poll of the source."""
        self._early = self._early or clock.monotonic() < self.next_at
        self._waits = True

    def seconds(self) -> float:
        """Seconds until a requested poll of the source may begin; infinite if no poll is requested."""
        return max(0.0, self.next_at - clock.monotonic()) if self._waits else float("inf")

    def begin_poll(self) -> bool:
        """Whether a requested poll of the source may begin now; if so, the request counts as done."""
        now = clock.monotonic()
        if not self._waits or now < self.next_at:
            return False
        self.spacing = min(self.longest, 2 * self.spacing) if self._early else LEAST_SECONDS
        self._waits = self._early = False
        self.next_at = now + self.spacing
        return True
