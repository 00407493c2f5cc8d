"""Decides when memory.db of this host must get the new entries of the log that several hosts share (it *follows* the
log).

`follow_schedule.py` compares the number of the last entry in the log, which it reads over the connection of the ledger,
with the number of the last entry in memory.db.  `extraction_runner.py` starts the process that follows the log.  The
process that follows the log also removes the bytes of forgotten texts that remain in memory.db after a `forget` was
killed, also on a host with a log of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import HostError, LedgerError
from agent.memory.base import PURGE_SECONDS
from agent.memory.maintenance import position
from agent.store.queries import queries
from agent.wiring.memory import shared_place

if TYPE_CHECKING:
    from agent.wiring.wiring import Wiring

LOOK_SECONDS = 5.0
"""Seconds between two checks of the log, and so about the longest time until a host gets the new memories of another
host."""
PAUSE_SECONDS = 60.0
"""Seconds before the process that follows the log is started again after it changed nothing, since memory.db or the
server may be unusable; also the seconds between two checks if the hosts share no log."""


class FollowSchedule:
    """The schedule by which one daemon follows the shared log of memories.  If the hosts share no memory log, the only
    reason to follow is that bytes of forgotten texts remain."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.is_shared = shared_place(wiring.settings) is not None
        self._look_at = 0.0
        self._again_at = 0.0
        self._has_log = False
        self._before: tuple[int, bool, int, bool] | None = None
        self._alone: tuple[int, bool] = (0, False)

    def is_due(self) -> bool:
        """Whether the process that follows the log has to start now: memory.db lacks entries, or bytes of forgotten
        texts remain. If hosts share the log, the process also starts after the first call of `is_due`, so that entries
        that only this host has get into the log.
        """
        now = clock.monotonic()
        if now < self._look_at:
            return False
        if not self.is_shared:
            self._look_at = now + PAUSE_SECONDS
            return self._has_remains()
        self._look_at = now + LOOK_SECONDS
        last = self._last()
        if last is None and self._before is not None:
            return False
        found = (*(last or (0, False)), *position(self.wiring.settings.base_dir))
        is_first, is_new, self._before = self._before is None, found != self._before, found
        # the last process that followed the log changed nothing, and the pause after it is not over
        is_useless = not is_new and now < self._again_at
        if is_useless or not (is_first or self._is_behind(found)):
            return False
        self._again_at = now + PAUSE_SECONDS
        return True

    def _has_remains(self) -> bool:
        """Whether bytes of forgotten texts remain at two checks in a row: the process that forgets them removes them
        within seconds, unless it was killed."""
        before, self._alone = self._alone, position(self.wiring.settings.base_dir)
        return self._alone[1] and self._alone == before

    @staticmethod
    def _is_behind(found: tuple[int, bool, int, bool]) -> bool:
        last, table_is_unpurged, applied, file_is_unpurged = found
        return last != applied or table_is_unpurged or file_is_unpurged

    def _last(self) -> tuple[int, bool] | None:
        """(the last number in the shared log, whether the table of the log must be rewritten because a text was
        forgotten); None when no log exists yet, or the server does not answer."""
        db = self.wiring.db
        try:
            if not self._has_log and not db.has_table("memory_log"):
                return None
            self._has_log = True
            before = clock.format_stamp(db.now() - timedelta(seconds=PURGE_SECONDS))
            (row,) = db.execute(queries("memory")["shared_position"], before=before)
            return int(row["number"]), row["unpurged"] is not None
        except (HostError, LedgerError):
            self._has_log = False
            return None
