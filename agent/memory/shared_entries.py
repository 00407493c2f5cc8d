"""The entries of the log in PostgreSQL that several hosts share, and their copy in memory.db.

`shared_log.py` builds the shared log on SharedEntries; `shared_log_import.py` imports entries that only one host has.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import ConfigError, HostError, LedgerError, MemoryUnavailable
from agent.memory.base import Entry
from agent.memory.forget import FORGOTTEN, entries_of
from agent.memory.log import LocalLog, entry_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.memory.base import LogDatabase, SharedPlace
    from agent.memory.database import MemoryDatabase

PAGE = 1000
"""Maximum number of entries that one query reads."""
MOST_CHARACTERS = 4_000_000
"""Number of characters after which a query reads or sends no further entry."""
SENT_TOGETHER = 500


class Diverged(Exception):
    """memory.db has an entry for which the shared log has no entry, or another one, with the same number."""


class SharedEntries:
    """The entries in PostgreSQL, and `local`, their copy in memory.db."""

    def __init__(self, place: SharedPlace, database: MemoryDatabase) -> None:
        self.place = place
        self.local = LocalLog(database)
        self._shared: LogDatabase | None = None
        self._unsent: list[Mapping[str, Any]] = []
        self._characters = 0

    @property
    def shared(self) -> LogDatabase:
        """The database of the shared log, opened at the first use."""
        if self._shared is None:
            with translated():
                self._shared = self.place.open()
        return self._shared

    def run(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """Run a named query of PostgreSQL and return its rows."""
        shared = self.shared
        with translated():
            return shared.run(name, **params)

    def close(self) -> None:
        """Close the connection to PostgreSQL; the next call opens it again."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A context manager for a transaction of PostgreSQL that holds a lock which all hosts share."""
        shared, is_inside = self.shared, False
        self._unsent, self._characters = [], 0
        try:
            with shared.transaction():
                is_inside = True
                yield
                is_inside = False
        except (HostError, LedgerError) as error:
            if is_inside:  # the error comes from the code inside the block, and not from the lock
                raise
            raise translate_error(error) from error

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
        """Inside a transaction, append an entry to memory.db and queue the entry for PostgreSQL; `send` sends the
        queued entries."""
        if at is None:
            with translated():
                at = clock.format_stamp(self.shared.now())
        entry = Entry(self.local.next_number(), at, operation, subject, who, reason, payload)
        self.local.insert(entry)
        self.add(entry)
        return entry

    def add(self, entry: Entry) -> None:
        """Queue for PostgreSQL an entry that is already in memory.db, and send the queue if it is long."""
        payload = None if entry.payload is None else orjson.dumps(entry.payload).decode()
        token = entry.payload.get("client_token") if entry.operation == "event" and entry.payload else None
        self._unsent.append(
            {
                "number": entry.number,
                "at": entry.at,
                "operation": entry.operation,
                "subject": entry.subject,
                "who": entry.who,
                "reason": entry.reason,
                "payload": payload,
                "client_token": token,
            }
        )
        self._characters += len(payload or "")
        if len(self._unsent) >= SENT_TOGETHER or self._characters >= MOST_CHARACTERS:
            self.send()

    def send(self) -> None:
        """Send the queued entries to PostgreSQL."""
        if self._unsent:
            self.run("shared_append", entries=orjson.dumps(self._unsent).decode())
        self._unsent, self._characters = [], 0

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the texts of the entries with these numbers from memory.db and from PostgreSQL, and record there that
        the bytes of the texts remain until `purge`."""
        chosen = list(numbers)
        self.local.blank(chosen)
        self.send()
        self.run("shared_blank", numbers=orjson.dumps(chosen).decode())
        self.run("shared_unpurged_put", value=str(self.local.last()), at=clock.format_stamp(self.shared.now()))

    # --- reading ---------------------------------------------------------------------------------------------

    def is_common(self, number: int) -> bool:
        """Whether memory.db and the shared log have the same entry with this number.  Two entries count as the same if
        their time and operation are equal, since both remain when the text of an entry is forgotten."""
        mine = self.local.database.run("log_known", number=number)
        return bool(mine) and mine == self.run("shared_known", number=number)

    def page(self, position: int) -> list[Entry]:
        """The next entries of the shared log after the entry with the number `position`, as many as one query reads; []
        after the last one.  Raises Diverged unless `position` is 0 or memory.db and the shared log have the same entry
        with this number."""
        rows = self.run("shared_from", first=max(position, 1), limit=PAGE + 1, most=MOST_CHARACTERS)
        found = [entry_of(row) for row in rows]
        if not position:
            return found
        mine = self.local.database.run("log_known", number=position)
        there = [(one.at, one.operation) for one in found[:1] if one.number == position]
        if not there or there != [(one["at"], one["operation"]) for one in mine]:
            raise Diverged
        return found[1:]

    def refill(self) -> None:
        """Replace the entries in memory.db by those of the shared log, inside a transaction of memory.db."""
        self.local.database.run("log_clear")
        while page := self.page(self.local.last()):
            for entry in page:
                self.local.insert(entry)
                # an entry of an earlier page may have been forgotten after that page was read
                if entry.operation == FORGOTTEN and entry.payload is not None:
                    forgotten = entries_of(self.local.database, entry.payload["events"], entry.payload["records"])
                    self.local.blank(forgotten)
        self.local.renumber()


@contextmanager
def translated() -> Iterator[None]:
    """A context manager that turns an error of the shared log's database into MemoryUnavailable."""
    try:
        yield
    except MemoryUnavailable:
        raise
    except (ConfigError, HostError, LedgerError) as error:
        raise translate_error(error) from error


def translate_error(error: Exception) -> MemoryUnavailable:
    """Makes the MemoryUnavailable for an error of the shared log's database."""
    return MemoryUnavailable(f"the shared log of memory cannot be used: {error}")
