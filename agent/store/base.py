"""The contract of the database that stores the rows of all rooms: named queries, transactions and a clock.

`db.Database` (SQLite, the default) and `postgres.PostgresDatabase` implement it; `ledgers.py` chooses by address.  The
queries are the same for both: `:name` parameters, times as text, ON CONFLICT, RETURNING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime

Records = list[dict[str, Any]]


class Database(Protocol):
    """One connection of one process.  A connection may be used from several threads; each call is one critical section.

    The methods of a connection raise only errors of this program: LedgerError when the database fails or is busy too
    long, DiskError when a disk fails, HostError when this program cannot use the database.
    """

    where: str
    """The location of the database, for messages: a path, or an address without its password."""

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the named query; returns its rows as dicts, [] if there are none."""
        ...

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute a statement that is not a named query."""
        ...

    def define(self, statement: str) -> None:
        """Execute a statement of a migration, written for SQLite."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction: committed as a whole, or rolled back when the block raises.

        Transactions run one after the other, on all hosts that share the database.  Transactions are not nested.
        """
        ...

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""
        ...

    def now(self) -> datetime:
        """The time (UTC) that leases are compared with, the same for all hosts that share the database."""
        ...

    def close(self) -> None:
        """Close the connection; a second call does nothing.  In a forked child the connection is abandoned without
        being closed."""
        ...
