"""The log as a table of memory.db (implements `base.Log`), for a memory that only one host uses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import MemoryUnavailable
from agent.memory.base import Entry, Followed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from agent.memory.database import MemoryDatabase


class LocalLog:
    """The table `memory_log`. A transaction on the log is also a transaction on the tables that are made from the log,
    since all are in memory.db."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        # number of the log entry that the open transaction appended last
        self._number: int | None = None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction of memory.db."""
        with self.database.transaction():
            self._number = None
            yield self

    def rebuilding(self) -> AbstractContextManager[Any]:
        """A transaction of memory.db, in which the tables are rebuilt; all entries of the log are in memory.db
        already."""
        return self.transaction()

    def append(
        self,
        operation: str,
        subject: str,
        payload: Mapping[str, Any],
        *,
        who: str,
        reason: str = "",
        at: str | None = None,
    ) -> Entry:
        """Append an entry to the log, inside a transaction."""
        entry = Entry(self.next_number(), at or clock.stamp(), operation, subject, who, reason, payload)
        self.insert(entry)
        return entry

    def insert(self, entry: Entry) -> None:
        """Store an entry of the log that already has its number."""
        payload = None if entry.payload is None else orjson.dumps(entry.payload).decode()
        self.database.run(
            "log_append",
            number=entry.number,
            at=entry.at,
            operation=entry.operation,
            subject=entry.subject,
            who=entry.who,
            reason=entry.reason,
            payload=payload,
        )

    def next_number(self) -> int:
        """The number for the next entry of the log; no other writer can take this number during the transaction."""
        if self._number is None:
            self._number = self.last()
        self._number += 1
        return self._number

    def renumber(self) -> None:
        """Let the numbers of new entries continue after the highest number in the table."""
        self._number = None

    def last(self) -> int:
        """The highest number of an entry, 0 for an empty log."""
        return int(self.database.run("log_last")[0]["number"])

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` entries of the log with a higher number than `after`, ordered by number."""
        return [entry_of(row) for row in self.database.run("log_entries", after=after, limit=limit)]

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the texts of the entries with these numbers, inside a transaction."""
        for number in numbers:
            self.database.run("log_blank", number=number)

    def follow(self) -> Followed:
        """Does nothing: no other host appends to a LocalLog, and each entry and the tables are written in one
        transaction."""
        return Followed()

    def purge(self, *, left_by_others: bool = False) -> str:  # noqa: ARG002 - `base.Log` defines this parameter
        """Does nothing: there is no shared log, and `purge.py` removes the bytes from memory.db."""
        return ""

    def status(self) -> Mapping[str, Any]:
        """The status of the log; the newest entry that is in the tables (`applied`) is always the newest of the log
        (`last`)."""
        last = self.last()
        return {"where": str(self.database.path), "last": last, "applied": last, "error": "", "own": False}

    def close(self) -> None:
        """Does nothing: the connection belongs to the MemoryStore."""


def entry_of(row: Mapping[str, Any]) -> Entry:
    """The entry for a row of `memory_log`."""
    payload = None if row["payload"] is None else data_of(row["payload"], f"entry {row['number']} of the log")
    return Entry(**{**row, "payload": payload})


def data_of(text: str, what: str) -> Any:
    """The JSON data in a text of memory.db.  Raises MemoryUnavailable if the text is damaged."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MemoryUnavailable(f"memory.db is damaged: {what} is no JSON ({error})") from error
