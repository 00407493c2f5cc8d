"""Notifications of PostgreSQL (LISTEN and NOTIFY): when one host queues a task, the daemons of all other hosts get a
notification at once, and so can poll less often.

Every statement that may make work for another process ends with a notification of the channel of its schema
(`NOTIFYING`).  A notification has no content and may be lost with its connection, so the daemon still polls from time
to time.  A separate connection receives the notifications, since PostgreSQL delivers a notification to the connection
that called LISTEN.  A pooler that shares a session between clients (PgBouncer by transaction) accepts a LISTEN and
delivers no notification.  So a test notification is sent first (`receives`); if it does not arrive, the daemon only
polls.
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
"""Queries after which a task, or a notification for people, may be due.  task_close and task_pause end tasks that count
for `limits.at_once`."""


def notifying(statement: str) -> str:
    """Extend a statement that returns rows by a notification, which is sent if there are any rows."""
    return f"WITH changed AS ({statement}) SELECT changed.*, pg_notify({CHANNEL}, '') FROM changed"  # noqa: S608 - a named query


class Notices:
    """A connection that receives notifications; every method raises psycopg.Error when the server does not answer."""

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
        """The descriptor, readable when a notification has arrived or the connection was cut."""
        return self._connection.fileno()

    def poll(self) -> bool:
        """Whether a notification has arrived since the last call; never waits."""
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
        """Close the connection; a second call does nothing."""
        import psycopg

        with suppress(psycopg.Error):
            self._connection.close()
