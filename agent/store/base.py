"""What every room needs of the database that keeps the rows: named queries, a transaction, a clock.

`db.Database` (SQLite, the default) and `postgres.PostgresDatabase` fulfil it; `db.open_tasks` chooses by address.  The
queries are the same for both: `:name` parameters, times as text, ON CONFLICT, RETURNING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime

Records = list[dict[str, Any]]


class Database(Protocol):
    """One connection of one process.  May be used from several threads; each call is one critical section.

    Errors are ours: LedgerError when the database refuses or is busy too long, DiskError when a disk does,
    SurroundingsError when it is no database for this program.
    """

    where: str
    """What it is, for messages: a path, or an address without its password."""

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the named query; its rows as dicts, [] for none."""
        ...

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute a statement that is no named query."""
        ...

    def define(self, statement: str) -> None:
        """Execute a statement of a migration, written for SQLite."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """All or nothing, rolled back when the block raises; one after the other with every other transaction of this
        method, on any host.  Not nested."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""
        ...

    def now(self) -> datetime:
        """The time by which leases are judged, UTC: one for all hosts that share the database."""
        ...

    def close(self) -> None:
        """Close the connection; a second time does nothing.  In a forked child it is only let go."""
        ...
