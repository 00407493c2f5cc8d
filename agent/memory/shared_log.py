"""The log of memories in PostgreSQL that all hosts with the same ledger share (implements `base.Log`).

The memory.db of each host has a copy of the log, and the tables that are made from the log. A write transaction takes
the write lock of memory.db, then the lock that all hosts share, applies the entries of other hosts, and appends its
own; so each decision considers the entries of all hosts, and an entry has the same number on every host. A write
transaction commits PostgreSQL before memory.db; if the process is killed between the two commits, memory.db lacks
entries, and the next call of `follow` or of a write applies them.

Searches do not use PostgreSQL: they use the present state of memory.db.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import MemoryUnavailable
from agent.memory.base import PURGE_SECONDS, Followed
from agent.memory.follower import Follower
from agent.memory.jobs import QUEUED, RUNNING
from agent.memory.shared_entries import Diverged, SharedEntries, translated
from agent.memory.shared_log_import import Join

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.memory.base import Entry, SharedPlace
    from agent.memory.commit_index import CommitIndex
    from agent.memory.database import MemoryDatabase
    from agent.memory.log_projection import LogProjection

JOB = ("id", "actor_id", "session_id", "strategy", "attempts", "error", "created_at", "updated_at")
"""Columns of a job, besides its status, that are copied when jobs are moved from memory.db to PostgreSQL."""
PATIENCE = 3.0
"""The number of seconds after which the rewriting of a table that still contains old row versions is not repeated."""


class SharedLog(SharedEntries):
    """The shared log in PostgreSQL, together with its copy in memory.db."""

    def __init__(
        self, place: SharedPlace, database: MemoryDatabase, projection: LogProjection, history: CommitIndex
    ) -> None:
        super().__init__(place, database)
        self.projection = projection
        self.follower = Follower(self.local, projection, history)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction of both memory.db and PostgreSQL."""
        self._follow()  # `_follow` applies most entries before this method takes the lock that all hosts share
        with self.local.transaction(), self.locked():
            self._apply_rest()
            yield self
            self.send()

    def _apply_rest(self) -> None:
        try:
            while page := self.page(self.local.last()):
                self.follower.apply(page)
        except Diverged as error:
            raise MemoryUnavailable(f"the log at {self.place.where} was replaced just now; try again") from error
        self.local.renumber()

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` entries of memory.db with a higher number than `after`, in order."""
        return self.local.entries(after, limit)

    def follow(self) -> Followed:
        """Apply to memory.db the entries that other hosts have appended to the shared log.  Entries of the log that
        only memory.db has are first imported into the shared log."""
        return Followed(*self._follow())

    def _follow(self) -> tuple[int, int]:
        """Returns (number of entries applied, number of entries imported)."""
        self._move_jobs()
        entries = imported = 0
        while True:
            position = self.local.last()
            try:
                page = self.page(position)
            except Diverged:
                imported += Join(self, self.projection).run()
                continue
            if not page:
                return entries, imported
            try:
                with self.local.transaction():
                    # another process of this host may have applied the same log entries meanwhile
                    if self.local.last() == position:
                        self.follower.apply(page)
                        entries += len(page)
            except BaseException:
                self.projection.forget_stale()
                raise

    def _move_jobs(self) -> None:
        """Move the jobs from memory.db to the database of the shared log, for a host that did not share its memory
        before; a running job becomes a queued one.  If the process is killed halfway, the next call moves the jobs
        again; a job that was moved already is not changed."""
        for row in self.local.database.run("job_list", status=None):
            status = QUEUED if row["status"] == RUNNING else row["status"]
            self.run("job_put", **{**{name: row[name] for name in JOB}, "status": status})
            self.local.database.run("job_delete", id=row["id"])

    @contextmanager
    def rebuilding(self) -> Iterator[Any]:
        """A transaction of memory.db in which its copy of the log is replaced by the entries in PostgreSQL."""
        self._follow()
        with self.local.transaction():
            self.refill()
            yield self

    def purge(self, *, left_by_others: bool = False) -> str:
        """Let PostgreSQL rewrite the tables of the log and of the jobs if texts were forgotten since the last rewriting
        (with `left_by_others`: PURGE_SECONDS ago or earlier), since the bytes of an updated row remain in the old file
        of a table. Returns the reason if PostgreSQL cannot do so, else ""."""
        try:
            until = clock.format_stamp(self.shared.now() - timedelta(seconds=PURGE_SECONDS if left_by_others else -1.0))
            unpurged = self.run("shared_unpurged", before=until)
            if not unpurged:
                return ""
            for table in ("memory_log", "memory_jobs"):  # the error message of a job may have quoted a forgotten text
                if why := self._rewrite(table):
                    return why
            for row in unpurged:
                self.run("shared_unpurged_drop", value=row["value"])
        except MemoryUnavailable as error:
            return f"the tables memory_log and memory_jobs in PostgreSQL were not rewritten: {error}"
        return ""

    def _rewrite(self, table: str) -> str:
        """Rewrite a table until it contains no old row versions; return the reason if that fails, else ""."""
        until = clock.monotonic() + PATIENCE
        while True:
            with translated():
                left = self.shared.rewrite(table)
            if left is None:
                return f"{self.place.where}: VACUUM FULL {table} did not rewrite the table; its owner can do it"
            if left == 0:
                return ""
            if clock.monotonic() >= until:
                return (
                    f"{self.place.where}: {left} old rows of {table} remain while older transactions are open; a "
                    f"daemon rewrites the table again"
                )
            clock.sleep(0.2)

    def status(self) -> Mapping[str, Any]:
        """The state of the shared log, as `base.Log.status` describes it; `error` is "" if PostgreSQL answers."""
        applied = self.local.last()
        found: dict[str, Any] = {"where": self.place.where, "last": None, "applied": applied, "error": "", "own": False}
        try:
            found["last"] = int(self.run("shared_last")[0]["number"])
            found["own"] = applied > 0 and not self.is_common(applied)
        except MemoryUnavailable as error:
            found["error"] = str(error)
        return found
