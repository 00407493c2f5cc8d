"""A task that waits is left for a while to the host that has its conversation.

Hosts that share a ledger have a base_dir each.  Whoever claims a task without its folder fetches the replica or begins
from the issue, while the host that worked on it would go on where it was; a drained one is mostly back in a moment.  So
the others leave such a row for `taskqueue.home_seconds`, from their first look at it as it is now.  Called by
`run/supervisor.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.store.replica import read_state
from agent.taskqueue.identity import of_another_host

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.taskqueue import Row

MANY = 1000


class Home:
    """What this host has seen of rows whose conversation lies elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._seen: dict[str, tuple[int, float]] = {}  # uuid → (attempt, when it was first seen to wait)

    def wait(self, row: Row) -> float:
        """Seconds for which the queued row is still left to another host; 0.0 when this one may take it."""
        seconds = self.settings.taskqueue.home_seconds
        nothing = not row.llm_call_count or row.is_decided  # to go on with: an end that is decided is closed by anybody
        if not seconds or nothing or not of_another_host(row) or self._is_here(row):
            self._seen.pop(row.uuid, None)
            return 0.0
        now = clock.monotonic()
        attempt, since = self._seen.get(row.uuid, (-1, now))
        if attempt != row.attempt:
            since = now
        self._seen[row.uuid] = (row.attempt, since)
        if len(self._seen) > MANY:  # those that others have taken since
            self._seen = {uuid: seen for uuid, seen in self._seen.items() if now - seen[1] < 2 * seconds}
        return max(0.0, since + seconds - now)

    def _is_here(self, row: Row) -> bool:
        """Whether this base_dir has a conversation of the task (hosts may share one)."""
        _, attempt = read_state(self.settings.base_dir / "running" / row.uuid)
        if attempt and attempt < row.attempt:
            return False  # others have gone on since, from the replica
        try:
            return (self.settings.base_dir / "running" / row.uuid / "messages.jsonl").stat().st_size > 0
        except OSError:
            return False
