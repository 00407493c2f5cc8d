"""The log as a table of memory.db (`base.Log`), for a memory that one host uses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.memory.base import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.memory.database import MemoryDatabase


class LocalLog:
    """The table `memory_log`.  Its transactions include the tables that are made from the log."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self._number: int | None = None  # the last one, inside a transaction

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction of the database."""
        with self.database.transaction():
            self._number = None
            yield self

    def append(self, operation: str, subject: str, payload: Mapping[str, Any], *, who: str, reason: str = "") -> Entry:
        """Append an entry inside a transaction."""
        entry = Entry(self._next(), clock.stamp(), operation, subject, who, reason, payload)
        self.database.run(
            "log_append",
            number=entry.number,
            at=entry.at,
            operation=operation,
            subject=subject,
            who=who,
            reason=reason,
            payload=orjson.dumps(payload).decode(),
        )
        return entry

    def _next(self) -> int:
        """The next number.  No other writer can take it, since the transaction excludes writers."""
        if self._number is None:
            self._number = int(self.database.run("log_last")[0]["number"])
        self._number += 1
        return self._number

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` entries with a higher number than `after`, in order."""
        return [entry_of(row) for row in self.database.run("log_entries", after=after, limit=limit)]

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the payload of entries, inside a transaction."""
        for number in numbers:
            self.database.run("log_blank", number=number)


def entry_of(row: Mapping[str, Any]) -> Entry:
    """The entry for a row of `memory_log`."""
    payload = None if row["payload"] is None else orjson.loads(row["payload"])
    return Entry(**{**row, "payload": payload})
