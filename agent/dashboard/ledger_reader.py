"""Reads the ledger for the page: it never writes, and never waits for long.

A ledger file of this host (SQLite) is opened again for each use, so that a replaced file is noticed. For a ledger on a
database server, one connection stays open. Waiting for a locked ledger ends after BUSY_SECONDS, or STATEMENT_SECONDS on
a database server; the page then shows the error.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.errors import HostError, LedgerError, MakimonoError
from agent.store.ledgers import LedgerKind
from agent.taskqueue import row_holder
from agent.taskqueue.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.store.base import Database

BUSY_SECONDS = 0.5
STATEMENT_SECONDS = 3.0
TURN_SECONDS = 4.0
"""Seconds that a reader waits for the connection to the database server while another thread uses the connection."""


class NoLedgerError(LedgerError):
    """The error that no ledger exists yet."""

    code = "no_ledger"


class LedgerReader:
    """The connections to the ledger of one process that only reads. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kind = LedgerKind.of(settings)
        self._lock = threading.Lock()
        self._held: Database | None = None

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, opened for reading alone.

        Raises NoLedgerError when no ledger exists yet, LedgerError when the ledger is busy or cannot be read.
        """
        if not self.kind.exists():
            raise NoLedgerError(f"{self.settings.base_dir} has no {self.kind.title} yet: no task was ever queued here")
        place = row_holder.place(self.settings.base_dir)
        if self.kind.is_local:
            database = self.look()
            try:
                yield _local(Ledger(database, place=place))
            finally:
                database.close()
            return
        if not self._lock.acquire(timeout=TURN_SECONDS):
            raise LedgerError(f"{self.kind.where} does not answer")
        try:
            if self._held is None:
                self._held = self.look()
            yield Ledger(self._held, place=place)
        except (LedgerError, HostError):
            self._drop()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection that stays open, if there is one."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._held is not None:
            with suppress(MakimonoError):
                self._held.close()
            self._held = None

    def look(self) -> Database:
        """A new connection that only reads and does not wait long; the caller closes it."""
        database = self.kind.look()
        try:
            if self.kind.is_local:
                database.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            else:
                milliseconds = int(STATEMENT_SECONDS * 1000)
                for setting in ("statement_timeout", "lock_timeout"):
                    database.execute(f"SET {setting} = {milliseconds}")
                database.execute("SET default_transaction_read_only = on")
        except MakimonoError:
            if self.kind.is_local:
                database.close()
                raise
            # a plug-in may use another database, which does not have these settings
        return database


def _local(ledger: Ledger) -> Ledger:
    ledger.is_local = True
    return ledger
