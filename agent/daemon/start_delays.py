"""Stores which tasks have to wait before this daemon starts a worker for them.

A task waits because it is left to another host, because a hold of `start_holds.py` applies, because its workers could
not even claim it (for example if its folder is not writable), or because its workers were killed again and again. After
workers that could not claim the task or were killed, each wait is longer than the one before, up to LONGEST_SECONDS.
`supervisor.py` starts no worker for a task that waits. `health.py` writes the delays and their reasons to a file for
the commands and the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from agent import clock
from agent.observe.truncate import shorten
from agent.store.storable_text import replace_surrogates

LONGEST_SECONDS = 300.0
LONGEST_WHY = 500
"""The maximum number of characters of a reason, apart from the note about what was left out."""
SAME_SECONDS = 1.0
"""If a task is delayed again for the same reason, and the new end differs by at most SAME_SECONDS, the stored end
stays."""
FREE_KILLS = 3
"""The number of workers of one task that may be killed in a row without progress before the next one is delayed."""


@dataclass(frozen=True, slots=True)
class StartDelay:
    """No worker is started for a task before `until`, a time stamp as in the ledger; `why` is the reason."""

    until: str
    why: str


class StartDelays:
    """The delays of one daemon. `known` maps a task to the number of its refused starts, and the earliest time of the
    next start (of the monotonic clock)."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, float]] = {}
        # Task → (the end of its newest delay by the monotonic clock, that delay); only for delays with a reason.
        self.reasons: dict[str, tuple[float, StartDelay]] = {}
        self.held_back: set[str] = set()  # tasks delayed by a start hold (`start_holds.py`)
        # Uuid of a task → number of its workers that were killed in a row without progress.
        self.killed: dict[str, int] = {}

    def waiting(self) -> set[str]:
        """The tasks for which no worker may be started now."""
        now = clock.monotonic()
        return {uuid for uuid, (_, until) in self.known.items() if now < until}

    def delay_start(self, uuid: str, seconds: float, why: str = "", lasts: float = 0.0) -> None:
        """Start no worker for the task in the next `seconds` seconds; sets the task's number of refused starts to 0.
        `lasts`: the number of seconds after which the reason `why` will end, if it is more than `seconds`."""
        self._delay(uuid, 0, seconds, why, lasts)

    def hold_back(self, uuid: str, seconds: float) -> None:
        """Let the task wait for `seconds` seconds, but not longer than until `release_all` is called."""
        self.delay_start(uuid, seconds)
        self.held_back.add(uuid)

    def release_all(self) -> None:
        """End the waiting of the tasks that `hold_back` delayed, except tasks that `postpone` has delayed since."""
        for uuid in self.held_back:
            if self.known.get(uuid, (1, 0.0))[0] == 0:
                del self.known[uuid]
        self.held_back.clear()

    def postpone(self, uuid: str, why: str) -> float:
        """Let the task wait after a refused start, each time longer than the last, up to LONGEST_SECONDS; returns the
        number of seconds."""
        count = self.known.get(uuid, (0, 0.0))[0] + 1
        seconds = min(LONGEST_SECONDS, 2.0**count)
        self._delay(uuid, count, seconds, why)
        return seconds

    def explained(self) -> dict[str, StartDelay]:
        """The delays with a reason that have not ended, by task; a delay by a hold is not among them, since
        `start_holds.py` has its reason."""
        now = clock.monotonic()
        return {uuid: delay for uuid, (end, delay) in self.reasons.items() if now < end}

    def forget_delay(self, uuid: str) -> None:
        """Drop the reason of the task's delay, since nothing holds the task any more."""
        self.reasons.pop(uuid, None)

    def _delay(self, uuid: str, count: int, seconds: float, why: str, lasts: float = 0.0) -> None:
        now = clock.monotonic()
        self.known[uuid] = (count, now + seconds)
        before = self.reasons.pop(uuid, None)
        if why:
            why, lasts = shorten(replace_surrogates(why), LONGEST_WHY), max(seconds, lasts)
            if before is None or before[1].why != why or abs(before[0] - now - lasts) > SAME_SECONDS:
                before = now + lasts, StartDelay(clock.stamp(clock.now() + timedelta(seconds=lasts)), why)
            self.reasons[uuid] = before

    def note_kill(self, uuid: str) -> bool:
        """Count a worker that was killed without progress; returns whether the next worker must be delayed."""
        self.killed[uuid] = self.killed.get(uuid, 0) + 1
        return self.killed[uuid] > FREE_KILLS

    def note_progress(self, uuid: str) -> None:
        """Count the killed workers of the task from 0 again, since a worker made progress."""
        self.killed.pop(uuid, None)

    def forget_old(self) -> None:
        """Drop delays that ended more than LONGEST_SECONDS ago, since their number would grow for months."""
        over = clock.monotonic() - LONGEST_SECONDS
        self.known = {uuid: (count, until) for uuid, (count, until) in self.known.items() if until > over}
        self.reasons = {uuid: delay for uuid, delay in self.reasons.items() if uuid in self.known}
