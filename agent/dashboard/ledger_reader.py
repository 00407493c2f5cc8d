"""Reads the ledger for the page: it never writes, and never waits for long.

A ledger file of this host (SQLite) is opened again for each use, so that a replaced file is noticed. For a ledger on a
database server, one connection stays open. Waiting for a locked ledger ends after BUSY_SECONDS, or STATEMENT_SECONDS on
a database server; the page then shows the error.

A database server may also accept connections and never answer, because the server or its network is stopped. A reader
waits at most TURN_SECONDS for a new connection, or for the connection that another reader uses; in the second case it
then ends that connection. For SILENT_SECONDS after a reader waited in vain, each reader that would have to wait for
another reader gets the error at once.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import HostError, LedgerError, MakimonoError
from agent.store.configured_ledger import LedgerKind
from agent.taskqueue import row_holder
from agent.taskqueue.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.store.base import Database

BUSY_SECONDS = 0.5
BUSY_REST_SECONDS = 2.0
"""Seconds after a vain wait for a locked ledger file in which each reader gets the error at once."""
STATEMENT_SECONDS = 3.0
TURN_SECONDS = 4.0
"""The maximum number of seconds that a reader waits for a new connection to the database server, or for the connection
that another thread uses."""
SILENT_SECONDS = 10.0
"""After a reader waited TURN_SECONDS in vain, no reader waits during this number of seconds for a connection that
another thread uses or opens."""


class NoLedgerError(LedgerError):
    """The error that no ledger exists yet."""

    code = "no_ledger"


class LedgerReader:
    """The connections of one process to the ledger, which the process only reads. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kind = LedgerKind.from_settings(settings)
        self._lock = threading.Lock()
        self._held: Database | None = None
        self._opening: Future[Database] | None = None
        """The connection that a thread is opening."""
        self._silent_until, self._why = 0.0, ""

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, opened only for reading.

        Raises NoLedgerError when no ledger exists yet, LedgerError when the ledger is busy or cannot be read, DiskError
        when a disk fails, and HostError when this host cannot use this kind or version of database.
        """
        if not self.kind.exists():
            raise NoLedgerError(f"{self.settings.base_dir} has no {self.kind.title} yet: no task was ever queued here")
        place = row_holder.place(self.settings.base_dir)
        if self.kind.is_local:
            with self._not_waiting_again():
                database = self.connect()
                try:
                    yield _local(Ledger(database, place=place))
                finally:
                    database.close()
            return
        self._take_turn()
        try:
            if self._held is None:
                self._held = self._opened()
            yield Ledger(self._held, place=place)
            self._silent_until = 0.0
        except (LedgerError, HostError):
            self._drop()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection that stays open, if there is one; a connection that a reader uses is interrupted
        instead."""
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            self._interrupt()
            return
        self._drop()
        self._lock.release()

    @contextmanager
    def _not_waiting_again(self) -> Iterator[None]:
        """A context manager for the use of a ledger file. After a use that failed and took BUSY_SECONDS or more, each
        use in the next BUSY_REST_SECONDS raises the same error at once."""
        started = clock.monotonic()
        if started < self._silent_until:
            raise LedgerError(self._why)
        try:
            yield
        except LedgerError as error:
            if clock.monotonic() - started >= BUSY_SECONDS:
                self._silent_until, self._why = clock.monotonic() + BUSY_REST_SECONDS, str(error)
            raise

    def _take_turn(self) -> None:
        """Take the lock of the connection to the database server. Raises LedgerError when another reader still uses the
        connection after TURN_SECONDS, or at once during the SILENT_SECONDS after a vain wait."""
        is_used = self._lock.locked() or (self._opening is not None and not self._opening.done())
        if is_used and clock.monotonic() < self._silent_until:
            raise self._silent()
        if not self._lock.acquire(timeout=TURN_SECONDS):
            self._interrupt()
            raise self._silent()

    def _opened(self) -> Database:
        """A connection to the database server. The connection is opened in a thread of its own, since that may take
        long."""
        if self._opening is None:
            self._opening = Future()
            threading.Thread(target=self._open, args=(self._opening,), daemon=True).start()
        try:
            found = self._opening.result(TURN_SECONDS)
        except FutureTimeout as error:
            raise self._silent() from error
        except BaseException:
            self._opening = None
            raise
        self._opening = None
        return found

    def _open(self, made: Future[Database]) -> None:
        try:
            made.set_result(self.connect())
        except BaseException as error:  # noqa: BLE001 - the reader that waits for the connection raises the error
            made.set_exception(error)

    def _silent(self) -> LedgerError:
        """The error that the database server does not answer. Unless they are running already, the SILENT_SECONDS begin
        now, in which no reader waits for another reader."""
        if clock.monotonic() >= self._silent_until:
            self._silent_until = clock.monotonic() + SILENT_SECONDS
        return LedgerError(f"{self.kind.where} does not answer")

    def _interrupt(self) -> None:
        """End the connection that another reader uses, if its class can do this."""
        if (interrupt := getattr(self._held, "interrupt", None)) is not None:
            interrupt()

    def _drop(self) -> None:
        if self._held is not None:
            with suppress(MakimonoError):
                self._held.close()
            self._held = None

    def connect(self) -> Database:
        """A new connection that only reads and does not wait long; the caller closes it."""
        database = self.kind.open_for_reading()
        try:
            if self.kind.is_local:
                database.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            else:
                milliseconds = int(STATEMENT_SECONDS * 1000)
                settings = (
                    *(f"{name} = {milliseconds}" for name in ("statement_timeout", "lock_timeout")),
                    "default_transaction_read_only = on",
                )
                for setting in settings:
                    database.execute(f"SET {setting}")
                # with `session_settings` a database applies the settings again on each new connection
                if hasattr(database, "session_settings"):
                    database.session_settings = settings
        except MakimonoError:
            if self.kind.is_local:
                database.close()
                raise
            # the database of a plug-in may lack the time-outs and the read-only mode; its connection is used without
            # them
        return database


def _local(ledger: Ledger) -> Ledger:
    ledger.is_local = True
    return ledger
