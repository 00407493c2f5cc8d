"""Notices of PostgreSQL: one host queues a task, the daemons of all others hear it at once and need not ask again and
again (LISTEN and NOTIFY).

Every statement that may give somebody something to do ends by notifying the channel of its schema (`NOTIFYING`).  A
notice carries nothing and may be lost with its connection: the daemon looks now and then all the same.  The connection
is one of its own, since a notice waits at the connection that listens.  A pooler that gives a session to several
clients (PgBouncer by transaction) takes a LISTEN and passes no notice on, so that it is tried (`hears`); then there are
only the looks.
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
"""Queries after which a task is due, or somebody is to be told something.  task_close and task_pause end what counts
for `limits.at_once`."""


def notifying(statement: str) -> str:
    """The statement, which returns rows, with a notice where it returns any."""
    return f"WITH changed AS ({statement}) SELECT changed.*, pg_notify({CHANNEL}, '') FROM changed"  # noqa: S608 - a named query


class Notices:
    """A connection that listens.  `open` makes it; psycopg.Error from all of them when the server is away."""

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
        """The descriptor that can be read when there is a notice, or the connection was cut."""
        return self._connection.fileno()

    def take(self) -> bool:
        """Whether there was a notice since the last call; never waits."""
        server = self._connection.pgconn
        server.consume_input()
        found = False
        while server.notifies() is not None:
            found = True
        return found

    def hears(self, send: Callable[[], object], seconds: float = HEARD_SECONDS) -> bool:
        """Whether a notice arrives that `send` sends over another connection: a pooler may have taken the LISTEN and
        pass nothing on."""
        send()
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000)) and self.take()

    def close(self) -> None:
        """End the connection; a second time does nothing."""
        import psycopg

        with suppress(psycopg.Error):
            self._connection.close()
