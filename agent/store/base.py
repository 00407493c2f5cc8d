"""The contract of a database that stores the program's rows: named queries, transactions and a clock.

`db.Database` (SQLite, the default) and `postgres.PostgresDatabase` implement the contract of a database;
`configured_ledger.py` selects one of them by the configured address of the ledger. Every implementation executes the
same queries, with `:name` parameters, times as text, ON CONFLICT and RETURNING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime

Records = list[dict[str, Any]]


class Database(Protocol):
    """One connection of one process to a database. Several threads may use a database connection; only one call runs at
    a time.

    The methods of a connection raise only errors of this program: LedgerError when the database fails or is busy too
    long, DiskError when a disk fails, HostError when this kind or version of database cannot be used, or when its file
    is damaged.
    """

    where: str
    """The location of the database, for messages: a path, or an address without its password."""

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the named query `name` (`queries.py`); returns its rows as dicts, [] if there are none."""
        ...

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute an SQL statement that is not one of the named queries."""
        ...

    def define(self, statement: str) -> None:
        """Execute a statement of a migration; migrations are written for SQLite, and another database translates the
        statement."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A context manager for a transaction: its block is committed as a whole, or rolled back when the block raises
        an error.

        Transactions run one after the other, on all hosts that share the database. Transactions of a connection are not
        nested.
        """
        ...

    def has_table(self, name: str) -> bool:
        """Whether the database has a table with this name."""
        ...

    def now(self) -> datetime:
        """The time (UTC) with which leases are compared; all hosts that share the database get it from one clock."""
        ...

    def close(self) -> None:
        """Close the database connection; a second call does nothing. In a process that was forked after the connection
        was opened, the connection is only forgotten and not closed."""
        ...
