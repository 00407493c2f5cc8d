"""A connection to SQLite with named queries; it implements the contract of `base.py`, as `postgres.py` does for
PostgreSQL.

`configured_ledger.py` selects the database in which the tasks' rows are.  Parameters have the form `:name`; outside of
`transaction()` each statement is committed on its own.  A transaction begins with BEGIN IMMEDIATE, because in WAL mode
SQLite may refuse, without waiting, a transaction that reads first and writes later.  A process opens its connection
after the fork, since a connection cannot be used after a fork.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from agent import clock, durable_files
from agent.errors import DiskError, HostError, LedgerError
from agent.store.queries import LEDGER, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path
    from types import ModuleType

    from agent.filetree import Identity

Rows = list[dict[str, Any]]

TASKS = "tasks.db"
"""The name of the SQLite file in base_dir that contains the rows of the tasks."""

BUSY_TIMEOUT = 30.0  # seconds for which SQLite itself waits until another writer has finished
TRIES = 3  # number of attempts while the database is busy (docs/design/context.md, 11.3)
OPEN_SECONDS = 30.0

_BUSY = 5
_LOCKED = 6
_READONLY = 8
_IOERR = 10
_CORRUPT = 11
_FULL = 13
_CANTOPEN = 14
_PROTOCOL = 15
_NOTADB = 26

SAFE_SINCE = (3, 51, 3)
BACKPORTS = ((3, 50, 7), (3, 44, 6))


def is_safe(version: tuple[int, ...]) -> bool:
    """Whether this SQLite version is free of the WAL-reset bug, which corrupts a database that several processes write.

    The bug is fixed in SQLite 3.51.3, 3.50.7 and 3.44.6.  https://www.sqlite.org/wal.html#walresetbug
    """
    if version >= SAFE_SINCE:
        return True
    return any(version[:2] == fixed[:2] and version >= fixed for fixed in BACKPORTS)


def _modules() -> Iterator[ModuleType]:
    with suppress(ImportError):
        from pysqlite3 import dbapi2

        yield dbapi2
    import sqlite3

    yield sqlite3


def module() -> ModuleType:
    """The Python module for SQLite: pysqlite3 if it is installed and safe (`is_safe`), else Python's own; raises
    HostError when neither is safe."""
    found = []
    for candidate in _modules():
        if is_safe(candidate.sqlite_version_info):
            return candidate
        found.append(f"{candidate.__name__} has {candidate.sqlite_version}")
    raise HostError(
        f"no safe SQLite: {', '.join(found)}; several processes writing can corrupt tasks.db with it (the WAL-reset "
        f"bug). Needed is 3.51.3 or newer, 3.50.7+ or 3.44.6+: pip install 'pysqlite3>=0.6.1'"
    )


def sqlite_version() -> tuple[str, str, bool]:
    """For `doctor`: (version, module, whether the version is safe) of the SQLite that the function `module` would
    select; never raises."""
    best = ("", "", False)
    for candidate in _modules():
        state = (candidate.sqlite_version, candidate.__name__, is_safe(candidate.sqlite_version_info))
        if state[2]:
            return state
        best = best if best[0] else state
    return best


class Database:
    """One connection to a SQLite file.

    Several threads may use a connection to SQLite; only one call runs at a time.

    The process must not open the file with a second SQLite library as well (Python's own `sqlite3` in addition to
    pysqlite3). POSIX locks belong to a process, so a second library does not see the locks of the first: when it closes
    its connection, it believes that nobody else uses the file and removes the write-ahead log that this connection uses
    (https://www.sqlite.org/howtocorrupt.html, 2.2 and 2.2.1). Code that needs the database file must use `execute`, or
    read the file in another process.

    Before each statement outside a transaction `Database` checks whether the file or its write-ahead log was removed or
    replaced. If the file or its log was removed or replaced, `Database` opens the file again, and creates the tables if
    the file is new (`remake`).
    """

    queries_folder = LEDGER
    """The folder in agent/store/sql with the named queries of this database (`queries.queries`)."""
    pragmas: tuple[str, ...] = (
        "synchronous = FULL",
        "foreign_keys = ON",
        "mmap_size = 0",
        "journal_size_limit = 67108864",
    )
    """Settings of SQLite that are set on each connection, also on one that is opened again."""

    def __init__(self, path: Path, *, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = path
        self.where = str(path)
        self.busy_timeout = busy_timeout
        self._sqlite = module()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._wal = f"{path}-wal"
        self._log: Identity | None = None  # device and inode of the write-ahead log, None before the log exists
        self._connection = self._connect()
        self._is_open = True  # False after the file could not be opened again; the next statement tries again
        self._file = durable_files.identity(path)
        self.remake: Callable[[Database], object] | None = None  # a function that creates missing tables

    def run(self, name: str, /, **params: Any) -> Rows:
        """Execute the named query `name` (`queries.py`); returns its rows as dicts, [] if there are none.

        Outside of a transaction a query is tried three times while the database is busy.  Raises LedgerError, DiskError
        when the disk fails, or HostError when the file is damaged.
        """
        statement = queries(self.queries_folder).get(name)
        if statement is None:
            raise ValueError(f"there is no query {name!r} in agent/store/sql/{self.queries_folder}")
        return self.execute(statement, **params)

    def execute(self, statement: str, /, **params: Any) -> Rows:
        """Execute an SQL statement, also one that is not a named query: a migration, a pragma, or a SELECT that a
        person wrote."""
        self._same_process()
        with self._lock:
            if self._is_open and self._connection.in_transaction:
                return self._translated(statement, params)
            self._keep_files()
            started = time.monotonic()
            try:
                found = self._retried(statement, params)
            except LedgerError as error:
                # `self.remake` is None during the call, since `remake` executes statements itself
                remake, self.remake = self.remake, None
                if remake is None or "no such table: tasks" not in str(error):
                    self.remake = remake
                    raise
                try:
                    remake(self)
                    found = self._retried(statement, params)
                finally:
                    self.remake = remake
            durable_files.took(self.path, "row", started)
            return found

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """A context manager for a transaction (BEGIN IMMEDIATE … COMMIT), which is rolled back when the block raises an
        error.  Transactions are not nested."""
        self._same_process()
        with self._lock:
            self._keep_files()
            self._retried("BEGIN IMMEDIATE", {})
            try:
                yield self
            except BaseException:
                self._roll_back()
                raise
            started = time.monotonic()
            try:
                self._retried("COMMIT", {})
                durable_files.took(self.path, "row", started)
            except BaseException:
                self._roll_back()
                raise

    def _keep_files(self) -> None:
        """Open the database again if its file or its write-ahead log was removed or replaced (see the docstring of the
        class).

        SQLite neither writes back nor removes the write-ahead log of a file that is no longer at its path
        (`databaseIsUnmoved` in its pager.c). Closing the old connection therefore cannot harm a new database file that
        another process has created at the same path.
        """
        found, log = durable_files.identity(self.path), durable_files.identity(self._wal)
        if self._is_open and found == self._file and (not self._log or log == self._log):
            self._log = log
            return
        is_new = found != self._file
        self._connection.close()
        self._is_open = False
        self._connection = self._connect()
        self._is_open = True
        self._file, self._log = durable_files.identity(self.path), None
        if is_new and self.remake is not None:
            remake, self.remake = self.remake, None  # `self.remake` is None here, since `remake` runs statements
            try:
                remake(self)
            finally:
                self.remake = remake

    def define(self, statement: str) -> None:
        """Execute a statement of a migration."""
        self.execute(statement)

    def now(self) -> datetime:
        """The time of this machine, which suffices, since all processes that use the file run on this machine."""
        return clock.now()

    def has_table(self, name: str) -> bool:
        """Whether the database has a table with this name."""
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=name))

    def close(self) -> None:
        """Close the database connection; a second call does nothing. In a process that was forked after the connection
        was opened, the connection is only forgotten and not closed."""
        if self._pid == os.getpid():
            with self._lock:
                self._connection.close()

    def _connect(self) -> Any:
        durable_files.make_dir(self.path.parent, durable_files.passable())
        deadline = clock.monotonic() + min(OPEN_SECONDS, self.busy_timeout)
        while True:
            try:
                return self._open()
            except self._sqlite.Error as error:
                # the switch to WAL mode needs exclusive access to the file, and SQLite does not wait for that, so this
                # loop tries to open the file again
                if not self._is_busy(error) or clock.monotonic() > deadline:
                    raise self._translate(error) from error
                clock.sleep(0.05)

    def _open(self) -> Any:
        self._make_file()
        connection = self._sqlite.connect(
            str(self.path), timeout=self.busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Any) -> None:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise HostError(
                f"{self.path}: the file system does not support SQLite's WAL mode (it stays {mode!r}); put "
                f"context_storage.base_dir on a local disk, or set taskqueue.ledger to a PostgreSQL address"
            )
        for pragma in self.pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()

    def _make_file(self) -> None:
        """Create the empty file, readable only for its owner, before SQLite would create it with other rights.

        An existing file is not opened by this method: closing the file would release the POSIX locks that this process
        has on it.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with durable_files.writing(self.path), suppress(FileExistsError):
            os.close(os.open(self.path, flags, 0o600))

    def _execute_once(self, statement: str, params: dict[str, Any]) -> Rows:
        cursor = self._connection.execute(statement, params)
        try:
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _retried(self, statement: str, params: dict[str, Any]) -> Rows:
        for attempt in range(TRIES):
            try:
                return self._execute_once(statement, params)
            except self._sqlite.Error as error:
                if not self._is_busy(error) or attempt == TRIES - 1:
                    raise self._translate(error) from error
                clock.sleep(0.05 * (attempt + 1))
        raise AssertionError  # the last attempt to execute the statement returns or raises an error

    def _translated(self, statement: str, params: dict[str, Any]) -> Rows:
        try:
            return self._execute_once(statement, params)
        except self._sqlite.Error as error:
            raise self._translate(error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(self._sqlite.Error):
                self._connection.execute("ROLLBACK")

    def _is_busy(self, error: Exception) -> bool:
        return _code(error) in (_BUSY, _LOCKED, _PROTOCOL)

    def _translate(self, error: Exception) -> LedgerError | HostError:
        """The error of this program for an error of SQLite, with advice."""
        code = _code(error)
        if code in (_FULL, _READONLY, _IOERR, _CANTOPEN):
            return DiskError(f"cannot write {self.where}: {error}; check free space, owner and mode of its folder")
        if is_broken(error):
            return HostError(
                f"{self.where} is damaged or no SQLite database ({error}), or its disk cannot be read: look at `dmesg` "
                f"first. If the disk is well, stop the daemon and move the file and its -wal and -shm away: the next "
                f"start makes the rows again from the tasks' folders; or put a backup in its place"
            )
        if code in (_BUSY, _LOCKED, _PROTOCOL):
            return LedgerError(f"{self.where} is busy: another process held it for {self.busy_timeout:g} s; try again")
        return LedgerError(f"{self.where}: {error}")

    def _same_process(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError(f"{self.where} was opened before the fork; open it in the process that uses it")


class ReadOnly(Database):
    """A connection to a SQLite file for reading only: the file is not created, and neither its journal mode nor its
    schema is changed."""

    def _connect(self) -> Any:
        try:
            return read_only(self.path)
        except self._sqlite.Error as error:
            raise self._translate(error) from error

    def _keep_files(self) -> None:
        pass


def read_only(path: Path) -> Any:
    """Open a SQLite file for reading only; the result is a connection object of the SQLite module itself. Raises the
    errors of the SQLite module."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    return module().connect(address, uri=True, timeout=10, isolation_level=None, check_same_thread=False)


def copy(source: Path, target: Path) -> None:
    """Copy a SQLite database into the new file `target`, which only the owner can read; other processes may use the
    database meanwhile."""
    with closing(Database(source)) as database:
        database.execute("VACUUM INTO :target", target=str(target))
    target.chmod(0o600)


def is_broken(error: Exception) -> bool:
    """Whether an error of SQLite means that the content of the file is damaged, not that access to it failed."""
    return _code(error) in (_CORRUPT, _NOTADB)


def _code(error: Exception) -> int:
    """The primary result code of SQLite in an error (the low byte of the extended code), 0 when the module does not
    report it."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def open_tasks(base_dir: Path) -> Database:
    """Open `base_dir/tasks.db` and bring it to the newest schema; a missing file is created."""
    return open_file(base_dir / TASKS)


def open_file(path: Path) -> Database:
    """Open a SQLite file with rows of tasks and bring it to the newest schema; a missing file is created."""
    from agent.store import migrate

    return migrate.bring_up(Database(path), migrate.apply)
