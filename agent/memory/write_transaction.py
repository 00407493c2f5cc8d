"""A write to memory.db: one transaction that appends entries to the log and applies them to the tables."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.memory.base import Appending, Entry, Log
    from agent.memory.log_projection import LogProjection


class Writing:
    """The open transaction of a `writing` block: runs queries, and appends entries to the log."""

    def __init__(self, log: Appending, projection: LogProjection, who: str) -> None:
        self.log = log
        self.projection = projection
        self.who = who
        self.blocks: dict[tuple[str, str], tuple[int, int]] = {}
        """(actor, session) → (key of the newest session document, number of events in it); a cache of this
        transaction."""

    def run(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """Run a named query and return its rows; the query also sees the entries that this transaction has appended."""
        return self.projection.database.run(name, **params)

    @cached_property
    def has_forgotten(self) -> bool:
        """Whether memory.db has any tombstone; if not, new texts need not be compared with tombstones."""
        return bool(self.run("tombstone_any"))

    def append(
        self,
        operation: str,
        subject: str,
        payload: Mapping[str, Any],
        reason: str = "",
        *,
        at: str | None = None,
        who: str | None = None,
    ) -> Entry:
        """Append an entry and apply it to the tables; `who` defaults to the writer."""
        named = self.who if who is None else who
        entry = self.log.append(operation, subject, payload, who=named, reason=replace_surrogates(reason), at=at)
        self.projection.apply(entry)
        return entry


@contextmanager
def writing(log: Log, projection: LogProjection, who: str) -> Iterator[Writing]:
    """A write transaction of the memory; if the block raises, neither the log nor a table is changed."""
    try:
        with log.transaction():
            yield Writing(log, projection, who)
            projection.flush()
    except BaseException:
        projection.forget_stale()
        raise
