"""A connection to PostgreSQL, for rows that many hosts share: it executes the named queries of `queries.py` with
psycopg, and its clock is that of the database.

The client inserts the parameters into a statement (`ClientCursor`) and the server prepares no statement, so a pooler
can be used. `transaction` takes one advisory lock, which corresponds to BEGIN IMMEDIATE in SQLite; single statements
(claims, heartbeats) need no lock, because each contains the conditions for its change. If a connection was cut, it is
opened again. If it is unknown whether the server has executed a statement, the statement is repeated only if a
repetition does no harm. When a statement outside a transaction finds no table, the missing tables are created again.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.config.url_passwords import hide_password
from agent.errors import ConfigError, DiskError, HostError, LedgerError
from agent.store.pg_notices import CHANNEL, NOTIFYING, Notices, notifying
from agent.store.queries import LEDGER, queries
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    import psycopg

    from agent.store.base import Records

OPEN_SECONDS = 30.0  # seconds for which connections to a server that does not answer are tried
CONNECT_TIMEOUT = 10  # seconds for one attempt to connect
LOCK_TIMEOUT = 30_000  # milliseconds, as long as the time-out for SQLite (`db.BUSY_TIMEOUT`)
# seconds without a statement after which the connection is tested before a statement that must not be executed twice
IDLE_SECONDS = 5.0
TIME_SECONDS = 60.0  # seconds for which the server's time is computed from its last answer and the local clock
TRIES = 3

# SQLSTATE codes after which a second try may succeed: serialisation failure, deadlock, lock time-out, object in use
BUSY = frozenset({"40001", "40P01", "55P03", "55006"})
FULL = frozenset({"53100", "58030", "25006"})  # SQLSTATE codes: disk full, I/O error, read-only (a standby)
# SQLSTATE codes that need a person: no such database, no such user, wrong password, no right
UNKNOWN = frozenset({"3D000", "28000", "28P01", "42501"})
NO_TABLE = "42P01"

REPEATABLE = frozenset(
    {"ledger_put", "ledger_beat", "ledger_publish", "task_beat", "task_started", "task_set", "ratio_put", "task_delete"}
)
"""Names of queries that write, and that are repeated when it is unknown whether the server has executed them: a second
execution does no harm."""

_COMMENT = re.compile(r"--[^\n]*")
_READS = re.compile(r"(?:\s|--[^\n]*\n)*SELECT\b", re.IGNORECASE)
_ONLY_HERE = re.compile(r"-- postgresql: ")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")


@cache
def translated(statement: str) -> str:
    """Translate a statement for psycopg: a parameter `:name` becomes `%(name)s`.

    A simple replacement is possible because the SQL of this program has no colon or `--` inside a string.  Text after
    `-- postgresql:` is executed by PostgreSQL only; for SQLite it is a comment.
    """
    return _PARAMETER.sub(r"%(\1)s", _COMMENT.sub("", _ONLY_HERE.sub("", statement)).replace("%", "%%"))


class PostgresDatabase:
    """One connection to a PostgreSQL server.

    Several threads may use a PostgresDatabase; it executes their statements one after the other. If the server does not
    answer, new attempts to connect are made for `patience` seconds; then the constructor raises HostError, a later call
    LedgerError. ConfigError is raised for an address that is not one of PostgreSQL.
    """

    queries_folder = LEDGER
    """The folder, relative to agent/store/sql, with the named queries of this database (`queries.queries`)."""
    lock_name = "makimono "
    """The first part of the name of the advisory lock that transactions take; the second part is the name of the
    schema."""
    lock_timeout = LOCK_TIMEOUT
    session_settings: tuple[str, ...] = ()
    """Settings of the server that are set on each connection, also on one that is opened again."""
    transaction_settings: tuple[str, ...] = ()
    """Settings of the server that are set at the beginning of each transaction, and hold for this transaction only."""

    def __init__(self, address: str, *, patience: float = OPEN_SECONDS) -> None:
        self._patience = patience
        self.where = hide_password(address)
        self._address = address
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._inside = False
        # (seconds of CLOCK_BOOTTIME when the server was last asked for its time, the time that the server answered)
        self._told: tuple[float, datetime] | None = None
        self._used = clock.monotonic()
        self._connection = self._connect()
        self.remake: Callable[[PostgresDatabase], object] | None = None  # a function that creates missing tables

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the named query `name` (`queries.py`); returns its rows as dicts."""
        statement = queries(self.queries_folder).get(name)
        if statement is None:
            raise ValueError(f"there is no query {name!r} in agent/store/sql/{self.queries_folder}")
        if name in NOTIFYING:
            statement = notifying(statement)
        return self._execute(statement, params, repeatable=name in REPEATABLE)

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute an SQL statement that is not one of the named queries."""
        return self._execute(statement, params, repeatable=False)

    def define(self, statement: str) -> None:
        """Execute a statement of a migration; INTEGER is replaced by BIGINT, since SQLite's integers have 64 bits."""
        self.execute(re.sub(r"\bINTEGER\b", "BIGINT", statement))

    @contextmanager
    def transaction(self) -> Iterator[PostgresDatabase]:
        """A context manager for a transaction that holds the advisory lock of the schema. The transaction is committed
        at the end of the block, and rolled back after any exception."""
        with self._lock:
            self._repeated(self._begin, repeatable=True)
            self._inside = True
            try:
                yield self
                self._translated("COMMIT", {})
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._inside = False

    def has_table(self, name: str) -> bool:
        """Whether the schema of this connection has a table with this name."""
        return bool(self.execute("SELECT to_regclass(:name) IS NOT NULL AS there", name=name)[0]["there"])

    def now(self) -> datetime:
        """The time of the PostgreSQL server; in tests that replace the clock, the time of the replacement.

        The server is asked for its time at most once in TIME_SECONDS, and the time that has passed since then is added;
        otherwise each change of a row would need two queries.
        """
        if not clock.is_real():
            return clock.now()
        # unlike the monotonic clock, CLOCK_BOOTTIME continues while the machine is suspended
        passed = time.clock_gettime(time.CLOCK_BOOTTIME)
        if self._told is None or passed - self._told[0] > TIME_SECONDS:
            said = self.execute("SELECT clock_timestamp() AT TIME ZONE 'UTC' AS now")[0]["now"]
            self._told = passed, clock.parse(str(said))
        return self._told[1] + timedelta(seconds=passed - self._told[0])

    def notices(self) -> Notices | None:
        """Open a new connection that receives notifications about changes by other processes.

        Returns None when the server cannot be reached at present, or when a pooler does not deliver notifications.
        """
        import psycopg

        try:
            notices = Notices(self._open)
        except psycopg.Error:
            return None
        try:
            if notices.receives(lambda: self.execute(f"SELECT pg_notify({CHANNEL}, '')")):
                return notices
        except (psycopg.Error, LedgerError):
            pass
        notices.close()
        return None

    def close(self) -> None:
        """Close the connection to PostgreSQL; a second call does nothing."""
        if self._pid == os.getpid():
            with self._lock:
                self._closed = True
                self._connection.close()

    def interrupt(self) -> None:
        """End the connection while another thread uses it, so that a statement that waits for the server fails at once.
        The next statement opens a new connection."""
        import psycopg

        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    # --- one statement -------------------------------------------------------------------------------------------

    def _execute(self, statement: str, params: dict[str, Any], *, repeatable: bool) -> Records:
        with self._lock:
            if self._inside:
                return self._translated(statement, params)
            once = partial(self._execute_once, statement, params)
            repeatable = repeatable or _READS.match(statement) is not None
            try:
                return self._repeated(once, repeatable=repeatable)
            except LedgerError as error:
                remake, self.remake = self.remake, None  # the statements of `remake` must not call `remake`
                try:
                    if remake is None or not _lacks_table(error):
                        raise
                    remake(self)
                    return self._repeated(once, repeatable=repeatable)
                finally:
                    self.remake = remake

    def _execute_once(self, statement: str, params: dict[str, Any]) -> Records:
        import psycopg

        clean = {name: replace_surrogates(value) if isinstance(value, str) else value for name, value in params.items()}
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(translated(statement).encode(), clean)
            self._used = clock.monotonic()
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _begin(self) -> Records:
        self._execute_once("BEGIN", {})
        try:
            for setting in self.transaction_settings:
                self._execute_once(f"SET LOCAL {setting}", {})
            lock = "SELECT pg_advisory_xact_lock(hashtext(:name || current_schema()))"
            return self._execute_once(lock, {"name": self.lock_name})
        except BaseException:
            self._roll_back()
            raise

    def _repeated(self, call: Callable[[], Records], *, repeatable: bool) -> Records:
        """Call `call`, and repeat it up to two times: after a conflict with another process, or, if `repeatable` is
        set, over a new connection after the old one was cut."""
        import psycopg

        self._ready(tried=not repeatable)
        for attempt in range(TRIES):
            try:
                return call()
            except psycopg.Error as error:
                again = error.sqlstate in BUSY or (repeatable and self._is_cut(error))
                if not again or attempt == TRIES - 1:
                    raise self._translate(error) from error
                clock.sleep(0.05 * (attempt + 1))
                self._ready(tried=True)
        raise AssertionError  # the last attempt of the call returns or raises an error

    def _translated(self, statement: str, params: dict[str, Any]) -> Records:
        import psycopg

        try:
            return self._execute_once(statement, params)
        except psycopg.Error as error:
            raise self._translate(error) from error

    def _roll_back(self) -> None:
        import psycopg

        with suppress(psycopg.Error):
            self._execute_once("ROLLBACK", {})

    # --- the connection ------------------------------------------------------------------------------------------

    def _ready(self, *, tried: bool) -> None:
        """Make sure that the connection is open: a connection that was cut is opened again; with `tried`, a connection
        that was idle is tested first. Before a repeatable statement the connection is not tested, since the statement
        is repeated if the connection was cut; without the test an idle daemon sends half as many queries."""
        import psycopg

        if self._pid != os.getpid():
            raise LedgerError(f"{self.where} was opened before the fork; open it in the process that uses it")
        if self._closed:
            raise LedgerError(f"{self.where} was closed")
        if tried and not self._connection.closed and clock.monotonic() - self._used > IDLE_SECONDS:
            with suppress(psycopg.Error):
                self._execute_once("SELECT 1", {})
        if self._connection.closed:
            try:
                self._connection = self._connect()
            # The error is LedgerError and not HostError, since the first connection succeeded and the failure is
            # probably temporary.
            except HostError as error:
                raise LedgerError(str(error)) from error

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            import psycopg
        except ImportError as error:
            raise HostError(f"taskqueue.ledger: psycopg cannot be loaded ({error}); run scripts/setup") from error
        deadline = clock.monotonic() + self._patience
        pause = 0.1
        while True:
            try:
                return self._open()
            except psycopg.ProgrammingError as error:
                raise ConfigError(
                    f"taskqueue.ledger: {self.where} is not an address of PostgreSQL ({_line(error)})"
                ) from error
            except psycopg.Error as error:
                if self._is_for_ever(error) or clock.monotonic() > deadline:
                    raise self._unreachable(error) from error
                clock.sleep(pause)
                pause = min(2.0, 2 * pause)

    def _open(self) -> psycopg.Connection[Any]:
        import psycopg

        connection = psycopg.connect(
            self._address,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=CONNECT_TIMEOUT,
            application_name="makimono",
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
        )
        try:
            connection.execute(f"SET lock_timeout = {self.lock_timeout}".encode())
            # The server ends an idle transaction: a host that disappears in a transaction must not hold the lock for
            # ever, since all other hosts wait for it.
            connection.execute(b"SET idle_in_transaction_session_timeout = 30000")
            connection.execute(b"SET synchronous_commit = on")
            # JIT compilation would take seconds for a statement that takes milliseconds
            connection.execute(b"SET jit = off")
            for setting in self.session_settings:
                connection.execute(f"SET {setting}".encode())
        except BaseException:
            connection.close()
            raise
        self._used = clock.monotonic()
        return connection

    def _is_for_ever(self, error: psycopg.Error) -> bool:
        """Whether another attempt to connect would be useless, because the server has answered and refused the
        connection."""
        text = str(error)
        return "does not exist" in text or "authentication failed" in text or "no pg_hba.conf entry" in text

    def _is_cut(self, error: psycopg.Error) -> bool:
        return self._connection.closed or (error.sqlstate or "").startswith(("08", "57P"))

    def _unreachable(self, error: Exception) -> HostError:
        return HostError(
            f"taskqueue.ledger: {self.where} cannot be used ({_line(error)}); start the server, or mend user, password "
            f"and database of the address"
        )

    def _translate(self, error: psycopg.Error) -> LedgerError | HostError:
        """The error of this program for an error of psycopg, with advice."""
        state = error.sqlstate or ""
        if state in FULL:
            return DiskError(f"{self.where} cannot be written: {_line(error)}; see the server's disk and log")
        if state in UNKNOWN:
            return self._unreachable(error)
        if state in BUSY:
            return LedgerError(
                f"{self.where} is busy: another one held it for {self.lock_timeout // 1000} s; try again"
            )
        if self._is_cut(error):
            return LedgerError(f"{self.where}: the connection was cut ({_line(error)}); try again")
        return LedgerError(f"{self.where}: {_line(error)}")


def _lacks_table(error: Exception) -> bool:
    """Whether the error of the server means that a table is missing."""
    return getattr(error.__cause__, "sqlstate", None) == NO_TABLE


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def open_postgres(address: str) -> PostgresDatabase:
    """Open the database at `address`, and bring its tables to the newest schema."""
    from agent.store import migrate

    return migrate.bring_up(PostgresDatabase(address), migrate.apply)
