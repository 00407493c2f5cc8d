"""One SQL connection with named queries: SQLite here, PostgreSQL in `postgres.py`; the contract is in `base.py`.

`open_tasks` opens the one that `taskqueue.ledger` names.  `:name` parameters only, autocommit outside
`transaction()`, which is BEGIN IMMEDIATE: a read that becomes a write would be refused at once in WAL mode.  Opened
after a fork, never before.  Rules and figures: ../docs/durability.md, section 2.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from agent import clock, disk
from agent.errors import ConfigError, DiskError, LedgerError, SurroundingsError
from agent.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path
    from types import ModuleType

    from agent.filetree import Identity
    from agent.store import base

Rows = list[dict[str, Any]]

BUSY_TIMEOUT = 30.0  # seconds that SQLite itself waits for another writer
TRIES = 3  # seed 002, 11.3
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
    """Whether this SQLite is free of the WAL-reset bug, which corrupts a database that several processes write.

    Fixed in 3.51.3, and in 3.50.7 and 3.44.6 of their lines.  https://www.sqlite.org/wal.html#walresetbug
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
    """The first SQLite module that is safe: pysqlite3, else Python's own; SurroundingsError when neither is."""
    found = []
    for candidate in _modules():
        if is_safe(candidate.sqlite_version_info):
            return candidate
        found.append(f"{candidate.__name__} has {candidate.sqlite_version}")
    raise SurroundingsError(
        f"no safe SQLite: {', '.join(found)}; several processes writing can corrupt tasks.db with it (the WAL-reset "
        f"bug). Needed is 3.51.3 or newer, 3.50.7+ or 3.44.6+: pip install 'pysqlite3>=0.6.1'"
    )


def sqlite_version() -> tuple[str, str, bool]:
    """(version, module, whether it is safe) of the SQLite that would be used, for `doctor`; never raises."""
    best = ("", "", False)
    for candidate in _modules():
        state = (candidate.sqlite_version, candidate.__name__, is_safe(candidate.sqlite_version_info))
        if state[2]:
            return state
        best = best if best[0] else state
    return best


class Database:
    """One connection to a SQLite file.  May be used from several threads; each call is one critical section.

    No other SQLite library may open the file in the same process (Python's own `sqlite3` beside pysqlite3): POSIX locks
    belong to a process, so when the other one closes its connection it takes itself for the last user and removes the
    write-ahead log under ours (https://www.sqlite.org/howtocorrupt.html, 2.2 and 2.2.1).  Use `execute`, or another
    process.  A file or a log that was removed or replaced is noticed before the next statement: the connection is
    opened again, and where the file is a new one its tables are made (`remake`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self._sqlite = module()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._wal = f"{path}-wal"
        self._log: Identity | None = None  # of the write-ahead log, None before there is one
        self._connection = self._connect()
        self._is_open = True  # False after it could not be opened again; the next statement tries it
        self._file = disk.identity(path)
        self.remake: Callable[[Database], object] | None = None  # makes tables that are not there (any more)

    def run(self, name: str, /, **params: Any) -> Rows:
        """Execute the named query; its rows as dicts, [] for none.  Outside a transaction a busy database is tried
        three times.  Errors: LedgerError, DiskError when the disk refuses."""
        statement = queries().get(name)
        if statement is None:
            raise ValueError(f"there is no query {name!r} in agent/store/sql")
        return self.execute(statement, **params)

    def execute(self, statement: str, /, **params: Any) -> Rows:
        """Execute a statement that is no named query: migrations, pragmas, a person's own SELECT."""
        self._same_process()
        with self._lock:
            if self._is_open and self._connection.in_transaction:
                return self._translated(lambda: self._once(statement, params))
            self._keep_files()
            started = time.monotonic()
            try:
                found = self._retried(lambda: self._once(statement, params))
            except LedgerError as error:
                remake, self.remake = self.remake, None  # once: it executes statements itself
                if remake is None or "no such table: tasks" not in str(error):
                    self.remake = remake
                    raise
                try:
                    remake(self)
                    found = self._retried(lambda: self._once(statement, params))
                finally:
                    self.remake = remake
            disk.took(self.path, "row", started)
            return found

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """BEGIN IMMEDIATE … COMMIT, rolled back when the block raises.  Not nested."""
        self._same_process()
        with self._lock:
            self._keep_files()
            self._retried(lambda: self._once("BEGIN IMMEDIATE", {}))
            try:
                yield self
            except BaseException:
                self._roll_back()
                raise
            started = time.monotonic()
            try:
                self._retried(lambda: self._once("COMMIT", {}))
                disk.took(self.path, "row", started)
            except BaseException:
                self._roll_back()
                raise

    def _keep_files(self) -> None:
        """Open the connection again when somebody removed or replaced its file or its write-ahead log; see the class.

        SQLite neither checkpoints nor removes the log of a file that has moved away from its name (`databaseIsUnmoved`
        in its pager.c), so that closing harms nothing that another process has made there since.
        """
        found, log = disk.identity(self.path), disk.identity(self._wal)
        if self._is_open and found == self._file and (not self._log or log == self._log):
            self._log = log
            return
        is_new = found != self._file
        self._connection.close()
        self._is_open = False
        self._connection = self._connect()
        self._is_open = True
        self._file, self._log = disk.identity(self.path), None
        if is_new and self.remake is not None:
            remake, self.remake = self.remake, None  # it executes statements itself
            try:
                remake(self)
            finally:
                self.remake = remake

    def define(self, statement: str) -> None:
        """Execute a statement of a migration."""
        self.execute(statement)

    def now(self) -> datetime:
        """The time of this machine, the only one that uses the file."""
        return clock.now()

    def has_table(self, name: str) -> bool:
        """Whether the table exists."""
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=name))

    def close(self) -> None:
        """Close the connection; a second time does nothing.  In a forked child it is only let go."""
        if self._pid == os.getpid():
            with self._lock:
                self._connection.close()

    def _connect(self) -> Any:
        disk.make_dir(self.path.parent, disk.passable())
        deadline = clock.monotonic() + OPEN_SECONDS
        while True:
            try:
                return self._open()
            except self._sqlite.Error as error:
                # The switch to WAL needs the file alone and does not wait for it by itself.
                if not self._is_busy(error) or clock.monotonic() > deadline:
                    raise self._translate(error) from error
                clock.sleep(0.05)

    def _open(self) -> Any:
        self._make_file()
        connection = self._sqlite.connect(
            str(self.path), timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
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
            raise SurroundingsError(
                f"{self.path}: the file system does not support SQLite's WAL mode (it stays {mode!r}); put "
                f"context_storage.base_dir on a local disk, or set taskqueue.ledger to a PostgreSQL address"
            )
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "mmap_size = 0", "journal_size_limit = 67108864"):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    def _make_file(self) -> None:
        """Make the empty file with our mode.  Never opened when it exists: closing it again would drop the POSIX
        locks that this process holds on it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with disk.writing(self.path), suppress(FileExistsError):
            os.close(os.open(self.path, flags, 0o600))

    def _once(self, statement: str, params: dict[str, Any]) -> Rows:
        cursor = self._connection.execute(statement, params)
        try:
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def _retried(self, call: Callable[[], Rows]) -> Rows:
        for attempt in range(TRIES):
            try:
                return call()
            except self._sqlite.Error as error:
                if not self._is_busy(error) or attempt == TRIES - 1:
                    raise self._translate(error) from error
                clock.sleep(0.05 * (attempt + 1))
        raise AssertionError  # the last try returns or raises

    def _translated(self, call: Callable[[], Rows]) -> Rows:
        try:
            return call()
        except self._sqlite.Error as error:
            raise self._translate(error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(self._sqlite.Error):
                self._connection.execute("ROLLBACK")

    def _is_busy(self, error: Exception) -> bool:
        return _code(error) in (_BUSY, _LOCKED, _PROTOCOL)

    def _translate(self, error: Exception) -> Exception:
        """SQLite's error as one of ours, with what to do."""
        code = _code(error)
        if code in (_FULL, _READONLY, _IOERR, _CANTOPEN):
            return DiskError(f"cannot write {self.where}: {error}; check free space, owner and mode of its folder")
        if is_broken(error):
            return SurroundingsError(
                f"{self.where} is damaged or no SQLite database ({error}), or its disk cannot be read: look at `dmesg` "
                f"first. If the disk is well, stop the daemon and move the file and its -wal and -shm away: the next "
                f"start makes the rows again from the tasks' folders; or put a backup in its place"
            )
        if code in (_BUSY, _LOCKED, _PROTOCOL):
            return LedgerError(f"{self.where} is busy: another process held it for {BUSY_TIMEOUT:g} s; try again")
        return LedgerError(f"{self.where}: {error}")

    def _same_process(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError(f"{self.where} was opened before the fork; open it in the process that uses it")


def is_broken(error: Exception) -> bool:
    """Whether SQLite's error is about what is in the file, not about whether it can be reached."""
    return _code(error) in (_CORRUPT, _NOTADB)


def _code(error: Exception) -> int:
    """The primary result code (the low byte of the extended one), 0 when the module does not tell."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def open_tasks(base_dir: Path, address: str = "sqlite") -> base.Database:
    """The database of `taskqueue.ledger`, with the newest schema: `base_dir/tasks.db`, made when missing, or the
    PostgreSQL database at `address`."""
    from agent.store import migrate

    if address.startswith("postgresql://"):
        from agent.store.postgres import open_postgres

        return open_postgres(address)
    if address not in ("", "sqlite"):
        raise ConfigError(f"taskqueue.ledger: {address!r} is not known; known are sqlite and postgresql://…")
    database = Database(base_dir / "tasks.db")
    try:
        migrate.apply(database)
    except BaseException:
        database.close()
        raise
    database.remake = migrate.apply
    return database
