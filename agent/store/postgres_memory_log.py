"""Opens the PostgreSQL database with the log of long-term memory, which the hosts of one ledger share.

The tables of the log are in the same PostgreSQL schema as those of the ledger, but have their own table of applied
migrations (`migrate.SHARED_LOG`).  Transactions of the log use another advisory lock than those of the ledger, so that
a long import of events delays no claim and no heartbeat.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.store import migrate
from agent.store.postgres import PostgresDatabase

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

LOCK_TIMEOUT = 10_000
"""Milliseconds for which each of three attempts waits until another host has finished its write."""
IDLE_TIMEOUT = 300_000
"""Milliseconds without a statement after which the server ends a transaction of the memory log. The time is that long
because a host also updates its own memory.db inside a transaction of the memory log; a host that disappears in a
transaction delays the writes of others at most for this time."""
QUERIES = "memory"
_NUMBER = re.compile(r"\d+")


class MemoryLogDatabase(PostgresDatabase):
    """A connection to the database of the log; if the server does not answer, the error is raised after the first
    attempt."""

    queries_folder = QUERIES
    lock_name = "makimono memory "
    """PostgreSQL releases the advisory lock of a transaction only after the commit has become visible. Transactions
    that add entries to the log hold this lock, so when an entry gets a number, all entries with lower numbers are
    visible already."""
    lock_timeout = LOCK_TIMEOUT
    transaction_settings = (f"lock_timeout = {LOCK_TIMEOUT}", f"idle_in_transaction_session_timeout = {IDLE_TIMEOUT}")

    def __init__(self, address: str) -> None:
        super().__init__(address, patience=0)

    def rewrite(self, table: str) -> int | None:
        """Let the server rewrite the file of a table, so that it no longer contains the bytes of updated and deleted
        rows.

        Returns the number of old versions of rows that remain, because a transaction that is open in this database may
        still read them; None when the server reported no number, as it does if it did not rewrite the table.
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
        # the server's message is "0 dead row versions cannot be removed yet.", in the language of the server
        found = [int(number[0]) for number in map(_NUMBER.search, details) if number is not None]
        return max(found, default=None)


def open_memory_log(address: str) -> MemoryLogDatabase:
    """Open the database of the log at `address`, and bring its tables to the newest schema.  Raises HostError when the
    server does not answer."""
    return migrate.bring_up(MemoryLogDatabase(address), _migrate)


def _migrate(database: PostgresDatabase) -> None:
    migrate.apply(database, migrate.SHARED_LOG)
