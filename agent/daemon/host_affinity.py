"""Leaves a waiting task for a while to the host that has its conversation.

Hosts that share a ledger usually each have a base_dir of their own. A host that claims a task without its folder
fetches the replica or begins again from the issue, while the host that worked on it would continue at once; a host that
was drained is usually back soon. If a waiting task has its conversation on one host, the other hosts do not take its
row for `taskqueue.home_seconds`, counted from the time at which they first see the row in its present state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import clock
from agent.store.replica import read_state
from agent.taskqueue.row_holder import of_another_host

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.taskqueue import Row

MANY = 1000


class HostAffinity:
    """The waiting rows that this host has seen and that have their conversation on another host."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Uuid → (attempt, time at which this host first saw the row waiting).
        self._seen: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, row: Row) -> float:
        """Seconds for which the queued row is still left to the host that has its conversation; 0.0 when this host may
        take it."""
        seconds = self.settings.taskqueue.home_seconds
        # any host may take the task, since it has no conversation to continue, or its end is decided and stored
        nothing = not row.llm_call_count or row.is_decided
        if not seconds or nothing or not of_another_host(row, self.settings) or self._is_here(row):
            self._seen.pop(row.uuid, None)
            return 0.0
        now = clock.monotonic()
        attempt, since = self._seen.get(row.uuid, (-1, now))
        if attempt != row.attempt:
            since = now
        self._seen[row.uuid] = (row.attempt, since)
        if len(self._seen) > MANY:  # drops old entries of `_seen`, such as those of rows that other hosts have taken
            self._seen = {uuid: seen for uuid, seen in self._seen.items() if now - seen[1] < 2 * seconds}
        return max(0.0, since + seconds - now)

    def _is_here(self, row: Row) -> bool:
        """Whether this base_dir has the newest conversation of the task (several hosts may share one base_dir)."""
        _, attempt = read_state(self.settings.base_dir / "running" / row.uuid)
        if attempt and attempt < row.attempt:
            # Another host has continued the task from the replica, so the conversation on this host is old.
            return False
        try:
            return (self.settings.base_dir / "running" / row.uuid / "messages.jsonl").stat().st_size > 0
        except OSError:
            return False
