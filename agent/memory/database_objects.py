"""Builds the objects that work on one open memory.db: its connection, log, tables, searches, history and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.memory.commit_index import CommitIndex
from agent.memory.database import MemoryDatabase, refuse_network
from agent.memory.events import EventSearch
from agent.memory.full_text_search import FullTextSearch
from agent.memory.jobs import ExtractionJobs
from agent.memory.likely_files import LikelyFiles
from agent.memory.log import LocalLog
from agent.memory.log_projection import LogProjection
from agent.memory.record_search import RecordSearch
from agent.memory.records import Records
from agent.memory.terms import Terms
from agent.memory.vectors import Vectors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.config.long_term_memory import LongTermMemory
    from agent.memory.base import Log, SharedPlace
    from agent.memory.shared_log import SharedLog
    from agent.registry import Guard


class DatabaseObjects:
    """The objects that use one connection to memory.db. Only one thread at a time may use the objects of a
    connection."""

    def __init__(
        self,
        path: Path,
        config: LongTermMemory,
        mask: Callable[[str], str],
        busy_timeout: float,
        shared: SharedPlace | None,
        guard: Guard | None = None,
    ) -> None:
        if shared is not None:
            refuse_network(path)
        self.database = MemoryDatabase(path, busy_timeout=busy_timeout)
        self.terms = Terms()
        self.projection = LogProjection(self.database, self.terms)
        records = FullTextSearch(self.database, self.projection.records)
        self.records = Records(self.database, self.terms, records, mask, config.cap)
        self.vectors = Vectors(self.database, config.embeddings, guard)
        self.retrieval = RecordSearch(
            self.database, self.terms, self.records, records, config.half_life_days, self.vectors
        )
        self.history = CommitIndex(self.database, self.terms, mask)
        self.log: Log = LocalLog(self.database)
        self.jobs = ExtractionJobs(self.database)
        self.shared: SharedLog | None = None
        """The log that several hosts share, None if this host has a log of its own; with a shared log, the table of
        jobs is in the database of that log."""
        if shared is not None:
            from agent.memory.shared_log import SharedLog

            self.log = self.shared = SharedLog(shared, self.database, self.projection, self.history)
            self.jobs = ExtractionJobs(self.shared)
        self.files = LikelyFiles(self.database, self.terms)
        self.search = EventSearch(self.database, self.terms, FullTextSearch(self.database, self.projection.events))

    def close(self) -> None:
        self.log.close()
        self.database.close()
        self.terms.close()
