"""Sends and receives notifications of PostgreSQL (LISTEN and NOTIFY): when one host queues a task, the daemons of all
other hosts get a notification at once, so they can poll the database less often.

Every statement after which another process may have work to do (`NOTIFYING`) sends a notification to the channel of its
schema. A notification has no content and is lost if the connection breaks, so the daemon still polls from time to time.
A separate connection receives the notifications, since PostgreSQL delivers a notification to the connection that called
LISTEN. A pooler that shares a session between clients (PgBouncer by transaction) accepts a LISTEN and delivers no
notification. Because of such poolers the daemon sends a test notification (`receives`) before it relies on
notifications; if that does not arrive, the daemon relies on polling alone.
"""

from __future__ import annotations

import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

HEARD_SECONDS = 1.0
CHANNEL = "'makimono ' || current_schema()"
NOTIFYING = frozenset(
    {
        *("ledger_put", "ledger_restore", "ledger_offer", "ledger_queue", "ledger_give_up", "ledger_give_up_all"),
        *("ledger_pause", "ledger_end", "ledger_to_tell", "ledger_soon", "task_pause", "task_close"),
    }
)
"""Names of queries after which a task may be due, or an update of an issue for people. task_close and task_pause are
included because a task that ends or pauses no longer counts for `limits.at_once`, so that another task may start."""


def notifying(statement: str) -> str:
    """Extend a statement that returns rows so that the statement also sends a notification if it returns any row."""
    return f"WITH changed AS ({statement}) SELECT changed.*, pg_notify({CHANNEL}, '') FROM changed"  # noqa: S608


class Notices:
    """A connection that receives notifications; its methods raise psycopg.Error when the server does not answer."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        import psycopg

        self._connection = connect()
        try:
            (name,) = self._connection.execute(f"SELECT {CHANNEL}").fetchone() or ("",)
            self._connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(name)))
        except BaseException:
            self._connection.close()
            raise

    def fileno(self) -> int:
        """The file descriptor of the connection, which becomes readable when a notification arrives or the connection
        is cut."""
        return self._connection.fileno()

    def poll(self) -> bool:
        """Whether a notification has arrived since the last call of `poll`, which never waits."""
        server = self._connection.pgconn
        server.consume_input()
        found = False
        while server.notifies() is not None:
            found = True
        return found

    def receives(self, send: Callable[[], object], seconds: float = HEARD_SECONDS) -> bool:
        """Whether this connection receives a notification that `send` sends over another connection: a pooler may have
        accepted the LISTEN without delivering anything."""
        send()
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000)) and self.poll()

    def close(self) -> None:
        """Close the connection for notifications; a second call does nothing."""
        import psycopg

        with suppress(psycopg.Error):
            self._connection.close()
