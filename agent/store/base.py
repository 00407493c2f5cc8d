"""The contract of a database that stores the program's rows: named queries, transactions and a clock.

`db.Database` (SQLite, the default) and `postgres.PostgresDatabase` implement it; `ledgers.py` selects one of them by
the configured address of the ledger.  Every implementation executes the same queries, with `:name` parameters, times as
text, ON CONFLICT and RETURNING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime

Records = list[dict[str, Any]]


class Database(Protocol):
    """One connection of one process to a database.  Several threads may use a connection; only one call runs at a time.

    The methods of a connection raise only errors of this program: LedgerError when the database fails or is busy too
    long, DiskError when a disk fails, HostError when this kind or version of database cannot be used.
    """

    where: str
    """The location of the database, for messages: a path, or an address without its password."""

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the query `name` (a file of agent/store/sql); returns its rows as dicts, [] if there are none."""
        ...

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute an SQL statement that is not one of the named queries."""
        ...

    def define(self, statement: str) -> None:
        """Execute a statement of a migration; it is written for SQLite, and another database translates it."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A context manager for a transaction: its block is committed as a whole, or rolled back when the block raises
        an error.

        Transactions run one after the other, on all hosts that share the database.  Transactions are not nested.
        """
        ...

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""
        ...

    def now(self) -> datetime:
        """The time (UTC) with which leases are compared; it comes from one clock for all hosts that share the
        database."""
        ...

    def close(self) -> None:
        """Close the connection; a second call does nothing.  In a process that was forked after the connection was
        opened, the connection is only forgotten and not closed."""
        ...
