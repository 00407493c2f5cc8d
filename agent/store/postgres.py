"""The rows in PostgreSQL, for many hosts: the same named queries over psycopg, with the database's own clock.

Parameters are put in by the client, so that nothing is prepared on the server and a pooler may stand between.
`transaction` takes one advisory lock, which makes it what BEGIN IMMEDIATE is in SQLite; single statements (claims,
beats) need none, their conditions are in them.  A connection that was cut is made anew; a statement that may have
happened is repeated only where a second time changes nothing.  Opened by `db.open_tasks`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.config.passwords import shown
from agent.errors import ConfigError, DiskError, LedgerError, SurroundingsError
from agent.store.notices import CHANNEL, NOTIFYING, Notices, notifying
from agent.store.queries import queries
from agent.store.text import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    import psycopg

    from agent.store.base import Records

OPEN_SECONDS = 30.0  # how long a server that does not answer is tried
CONNECT_TIMEOUT = 10  # seconds for one try
LOCK_TIMEOUT = 30_000  # milliseconds, as SQLite's busy_timeout
IDLE_SECONDS = 5.0  # after that long a connection is tried before something is written over it
TIME_SECONDS = 60.0  # how long the server's time is reckoned on by our clock
TRIES = 3

BUSY = frozenset({"40001", "40P01", "55P03", "55006"})  # serialisation, deadlock, lock time-out, object in use
FULL = frozenset({"53100", "58030", "25006"})  # disk full, I/O error, read-only (a standby)
UNKNOWN = frozenset({"3D000", "28000", "28P01", "42501"})  # no such database, no such user, wrong password, no right

REPEATABLE = frozenset(
    {"ledger_put", "ledger_beat", "ledger_publish", "task_beat", "task_started", "task_set", "ratio_put", "task_delete"}
)
"""Writes that change nothing more when they happen twice."""

_COMMENT = re.compile(r"--[^\n]*")
_ONLY_HERE = re.compile(r"-- postgresql: ")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")


@cache
def translated(statement: str) -> str:
    """A statement with `:name` as psycopg writes it, `%(name)s`.  Our SQL has no colon or `--` inside a string.  What
    follows `-- postgresql:` is for this database alone; others read a comment there."""
    return _PARAMETER.sub(r"%(\1)s", _COMMENT.sub("", _ONLY_HERE.sub("", statement)).replace("%", "%%"))


class PostgresDatabase:
    """One connection to a PostgreSQL server.  May be used from several threads.  A server that does not answer is tried
    for `patience` seconds: SurroundingsError at the beginning, LedgerError when it was there before."""

    def __init__(self, address: str, *, patience: float = OPEN_SECONDS) -> None:
        self._patience = patience
        self.where = shown(address)
        self._address = address
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._inside = False
        self._told: tuple[float, datetime] | None = None  # (our time when it was asked, the server's)
        self._used = clock.monotonic()
        self._connection = self._connect()

    def run(self, name: str, /, **params: Any) -> Records:
        """Execute the named query; its rows as dicts."""
        statement = queries().get(name)
        if statement is None:
            raise ValueError(f"there is no query {name!r} in agent/store/sql")
        if name in NOTIFYING:
            statement = notifying(statement)
        return self._execute(statement, params, repeatable=name in REPEATABLE)

    def execute(self, statement: str, /, **params: Any) -> Records:
        """Execute a statement that is no named query."""
        return self._execute(statement, params, repeatable=False)

    def define(self, statement: str) -> None:
        """A statement of a migration; SQLite's integers have 64 bits."""
        self.execute(re.sub(r"\bINTEGER\b", "BIGINT", statement))

    @contextmanager
    def transaction(self) -> Iterator[PostgresDatabase]:
        """BEGIN … COMMIT under this schema's advisory lock."""
        with self._lock:
            self._repeated(self._begin, repeatable=True)
            self._inside = True
            try:
                yield self
                self._translated(lambda: self._once("COMMIT", {}))
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._inside = False

    def has_table(self, name: str) -> bool:
        """Whether the table exists in the schema that is in use."""
        return bool(self.execute("SELECT to_regclass(:name) IS NOT NULL AS there", name=name)[0]["there"])

    def now(self) -> datetime:
        """The server's time; the switched one where time is switched (tests).  The server is asked once a minute, and
        what passed since then is added: each change of a row wants it, and would else be two questions."""
        if not clock.is_real():
            return clock.now()
        passed = time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine sleeps
        if self._told is None or passed - self._told[0] > TIME_SECONDS:
            said = self.execute("SELECT clock_timestamp() AT TIME ZONE 'UTC' AS now")[0]["now"]
            self._told = passed, clock.parse(str(said))
        return self._told[1] + timedelta(seconds=passed - self._told[0])

    def notices(self) -> Notices | None:
        """A new connection that hears what others change; None when the server cannot be reached just now, or what
        stands between passes no notices on."""
        import psycopg

        try:
            notices = Notices(self._open)
        except psycopg.Error:
            return None
        try:
            if notices.hears(lambda: self.execute(f"SELECT pg_notify({CHANNEL}, '')")):
                return notices
        except (psycopg.Error, LedgerError):
            pass
        notices.close()
        return None

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        if self._pid == os.getpid():
            with self._lock:
                self._closed = True
                self._connection.close()

    # --- one statement -------------------------------------------------------------------------------------------

    def _execute(self, statement: str, params: dict[str, Any], *, repeatable: bool) -> Records:
        with self._lock:
            if self._inside:
                return self._translated(lambda: self._once(statement, params))
            reads = statement.lstrip().upper().startswith("SELECT")
            return self._repeated(lambda: self._once(statement, params), repeatable=repeatable or reads)

    def _once(self, statement: str, params: dict[str, Any]) -> Records:
        import psycopg

        clean = {name: fit(value) if isinstance(value, str) else value for name, value in params.items()}
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(translated(statement).encode(), clean)
            self._used = clock.monotonic()
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _begin(self) -> Records:
        self._once("BEGIN", {})
        try:
            return self._once("SELECT pg_advisory_xact_lock(hashtext('makimono ' || current_schema()))", {})
        except BaseException:
            self._roll_back()
            raise

    def _repeated(self, call: Callable[[], Records], *, repeatable: bool) -> Records:
        """`call`, three times where somebody was in the way, over a new connection where the old one was cut."""
        import psycopg

        self._ready()
        for attempt in range(TRIES):
            try:
                return call()
            except psycopg.Error as error:
                again = error.sqlstate in BUSY or (repeatable and self._is_cut(error))
                if not again or attempt == TRIES - 1:
                    raise self._translate(error) from error
                clock.sleep(0.05 * (attempt + 1))
                self._ready()
        raise AssertionError  # the last try returns or raises

    def _translated(self, call: Callable[[], Records]) -> Records:
        import psycopg

        try:
            return call()
        except psycopg.Error as error:
            raise self._translate(error) from error

    def _roll_back(self) -> None:
        import psycopg

        with suppress(psycopg.Error):
            self._once("ROLLBACK", {})

    # --- the connection ------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """A connection that lives: one that was idle is tried, one that was cut is made anew."""
        import psycopg

        if self._pid != os.getpid():
            raise LedgerError(f"{self.where} was opened before the fork; open it in the process that uses it")
        if self._closed:
            raise LedgerError(f"{self.where} was closed")
        if not self._connection.closed and clock.monotonic() - self._used > IDLE_SECONDS:
            with suppress(psycopg.Error):
                self._once("SELECT 1", {})
        if self._connection.closed:
            try:
                self._connection = self._connect()
            except SurroundingsError as error:  # it was there before: for the task that is a ledger that is away
                raise LedgerError(str(error)) from error

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            import psycopg
        except ImportError as error:
            raise SurroundingsError(
                f"taskqueue.ledger: psycopg cannot be loaded ({error}); run scripts/setup"
            ) from error
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
            connection.execute(f"SET lock_timeout = {LOCK_TIMEOUT}".encode())
            # A host that vanished in the middle must not keep the lock of all the others.
            connection.execute(b"SET idle_in_transaction_session_timeout = 30000")
            connection.execute(b"SET synchronous_commit = on")
        except BaseException:
            connection.close()
            raise
        self._used = clock.monotonic()
        return connection

    def _is_for_ever(self, error: psycopg.Error) -> bool:
        """Whether waiting does not help: the server answered, and refused."""
        text = str(error)
        return "does not exist" in text or "authentication failed" in text or "no pg_hba.conf entry" in text

    def _is_cut(self, error: psycopg.Error) -> bool:
        return self._connection.closed or (error.sqlstate or "").startswith(("08", "57P"))

    def _unreachable(self, error: Exception) -> SurroundingsError:
        return SurroundingsError(
            f"taskqueue.ledger: {self.where} cannot be used ({_line(error)}); start the server, or mend user, password "
            f"and database of the address"
        )

    def _translate(self, error: psycopg.Error) -> Exception:
        """psycopg's error as one of ours, with what to do."""
        state = error.sqlstate or ""
        if state in FULL:
            return DiskError(f"{self.where} cannot be written: {_line(error)}; see the server's disk and log")
        if state in UNKNOWN:
            return self._unreachable(error)
        if state in BUSY:
            return LedgerError(f"{self.where} is busy: another one held it for {LOCK_TIMEOUT // 1000} s; try again")
        if self._is_cut(error):
            return LedgerError(f"{self.where}: the connection was cut ({_line(error)}); try again")
        return LedgerError(f"{self.where}: {_line(error)}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def open_postgres(address: str) -> PostgresDatabase:
    """The database at `address`, with the newest schema."""
    from agent.store import migrate

    database = PostgresDatabase(address)
    try:
        migrate.apply(database)
    except BaseException:
        database.close()
        raise
    return database
