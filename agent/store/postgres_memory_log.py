"""The PostgreSQL database of the log of long-term memory, which the hosts of one ledger share.

The tables of the log are in the schema of the ledger, with a table of versions of their own (`migrate.SHARED_LOG`).
The transactions of the log have an advisory lock of their own, so that a long import of events delays no claim and no
heartbeat of the ledger.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.store import migrate
from agent.store.postgres import PostgresDatabase

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

LOCK_TIMEOUT = 10_000
"""Milliseconds that each of three attempts waits for the write of another host."""
IDLE_TIMEOUT = 300_000
"""Milliseconds without a statement after which the server ends a write.  A host updates its own tables between two
statements; a host that disappeared in a write delays other writes only for this time."""
QUERIES = "memory"
_NUMBER = re.compile(r"\d+")


class MemoryLogDatabase(PostgresDatabase):
    """A connection for the log; if the server does not answer, the first failed attempt raises the error."""

    queries_folder = QUERIES
    lock_name = "makimono memory "
    """PostgreSQL frees the lock after the commit is visible.  So when an entry with a higher number is made, all
    entries with lower numbers are visible."""
    lock_timeout = LOCK_TIMEOUT
    transaction_settings = (f"lock_timeout = {LOCK_TIMEOUT}", f"idle_in_transaction_session_timeout = {IDLE_TIMEOUT}")

    def __init__(self, address: str) -> None:
        super().__init__(address, patience=0)

    def rewrite(self, table: str) -> int | None:
        """Write the file of a table anew, without the bytes of updated and deleted rows.

        Returns the number of old versions of rows that the server had to copy, since a transaction that is open in this
        database may still read them; None when the server did not rewrite the table.
        """
        details: list[str] = []

        def note(diagnostic: Diagnostic) -> None:
            details.append(diagnostic.message_detail or "")

        with self._lock:
            self._ready(tried=True)
            connection = self._connection
            connection.add_notice_handler(note)
            try:
                self.execute(f"VACUUM (FULL, VERBOSE) {table}")
            finally:
                connection.remove_notice_handler(note)
        # "0 dead row versions cannot be removed yet.", in the language of the server
        found = [int(number[0]) for number in map(_NUMBER.search, details) if number is not None]
        return max(found, default=None)


def open_memory_log(address: str) -> MemoryLogDatabase:
    """Open the log at `address`, with the newest schema.  Raises HostError when the server does not answer."""
    database = MemoryLogDatabase(address)
    try:
        _migrate(database)
    except BaseException:
        database.close()
        raise
    database.remake = _migrate
    return database


def _migrate(database: PostgresDatabase) -> None:
    migrate.apply(database, migrate.SHARED_LOG)
