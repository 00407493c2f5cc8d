"""Finds the ledger that the setting `taskqueue.ledger` names, and its properties before it is opened.

Ledgers are opened, and the names of ledgers interpreted, only in this module. The contract of an entry of LEDGERS, and
of a plug-in for a ledger, is in `taskqueue/base.py`. `configured_ledger.py` is in the package `store`, which
`taskqueue` and `context` import, because the stores of a task (`context`) write a row to the same database.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.config.url_passwords import without_passwords
from agent.errors import ConfigError
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.config import Settings
    from agent.registry import Guard
    from agent.store.base import Database

LEDGERS = Registry(
    "ledger",
    {"sqlite": "agent.taskqueue.sqlite:SqliteLedger", "postgresql": "agent.taskqueue.postgresql:PostgresLedger"},
)
"""Name, or URL scheme, in the setting `taskqueue.ledger` → class or function that gets `(base_dir, address)` and
returns a BaseLedger."""

OWN = "sqlite"
"""The name of the default ledger, the file `tasks.db` in base_dir, which needs no server."""

ALL = 2**31 - 1
LINES = "tasks.jsonl"
TO_LOOK_AT = f"{LINES} is to look at; the rows are restored from a backup of the ledger itself"

Finding = tuple[bool, str, str]
"""A finding of `doctor` about a ledger: (whether it is usable, a description, advice)."""


def entry_of(address: str, guard: Guard | None = None) -> Any:
    """The entry of LEDGERS, or the plug-in, for a value of `taskqueue.ledger`.

    Raises ConfigError when the value names neither an entry of LEDGERS nor a usable plug-in.
    """
    return LEDGERS.load(address.partition("://")[0], guard)


def is_local(address: str, guard: Guard | None = None) -> bool:
    """Whether only one host can use the ledger with this address."""
    return bool(getattr(entry_of(address, guard), "is_local", False))


@dataclass(frozen=True, slots=True)
class LedgerKind:
    """The ledger that a configuration names, before it is opened.

    If `entry` (the class of the ledger) has an attribute with the name of a property or method of this class, that
    attribute replaces the default of LedgerKind.

    The methods that open a database raise LedgerError, DiskError or HostError.
    """

    base_dir: Path
    address: str
    entry: Any
    remembers: bool = False
    """Whether long-term memories are extracted from tasks of the ledger when they end."""

    @classmethod
    def from_settings(cls, settings: Settings) -> LedgerKind:
        """The ledger that the settings name.  Raises ConfigError when the ledger's class cannot be loaded."""
        address = settings.taskqueue.ledger
        return cls(settings.base_dir, address, entry_of(address, settings.plugin_guard), settings.remembers)

    @property
    def is_local(self) -> bool:
        """Whether only one host can use the ledger."""
        return bool(getattr(self.entry, "is_local", False))

    @property
    def where(self) -> str:
        """The location of the ledger, for messages: a path, or an address without its password."""
        asked = getattr(self.entry, "where", None)
        return without_passwords(self.address) if asked is None else str(asked(self.base_dir, self.address))

    @property
    def title(self) -> str:
        """A name of the ledger for messages, in one word."""
        return str(getattr(self.entry, "title", "ledger"))

    @property
    def preload(self) -> tuple[str, ...]:
        """The modules that a worker needs for the ledger; the process that forks workers imports them before the fork.

        The list is empty for a plug-in, since each process has to check a plug-in before importing it."""
        if self.address.partition("://")[0] not in LEDGERS.entries:
            return ()
        named: Iterable[str] | None = getattr(self.entry, "preload", None)
        return tuple(named) if named is not None else (str(self.entry.__module__),)

    def exists(self) -> bool:
        """Whether the ledger exists (True if its class has no method `exists`); a command that only reads calls
        `exists` first, so that it does not create the ledger."""
        asked = getattr(self.entry, "exists", None)
        return asked is None or bool(asked(self.base_dir, self.address))

    def open(self) -> Any:
        """Open the ledger (a BaseLedger) with the newest schema; a ledger that does not exist is created.

        Raises ConfigError when the entry returns an object that is no ledger.
        """
        ledger = self.entry(self.base_dir, self.address)
        if not hasattr(ledger, "db"):
            raise ConfigError(
                f"taskqueue.ledger: {self.where} returned {type(ledger).__name__}, which has no `db`; return a ledger "
                f"like agent.taskqueue.Ledger over a database (agent/taskqueue/base.py)"
            )
        if self.remembers and hasattr(ledger, "remember_ends"):
            ledger.remember_ends()
        return ledger

    def open_for_reading(self) -> Database:
        """Open the database of the ledger for reading. If the class of the ledger has a method `look`, nothing is
        created and the schema is not migrated; otherwise the ledger is opened by `open`, which may do both."""
        look = getattr(self.entry, "look", None)
        found: Database = look(self.base_dir, self.address) if look is not None else self.open().db
        return found

    def memory_log(self) -> Callable[[], Any] | None:
        """A function that opens the database with the log of long-term memory, if the hosts of this ledger share one;
        None if each host has a memory of its own."""
        asked = getattr(self.entry, "memory_log", None)
        return None if asked is None else partial(asked, self.base_dir, self.address)

    def check(self) -> Finding:
        """Check the ledger for `doctor`."""
        check = getattr(self.entry, "check", None)
        if check is not None:
            found: Finding = check(self.base_dir, self.address)
            return found
        if not self.exists():
            return True, f"{self.where} is not there yet; it is made at the first use", ""
        with closing(self.open()) as ledger:
            return True, f"{self.where} answers, {sum(ledger.counts().values())} task(s)", ""

    def backup(self, target: Path) -> tuple[str, str]:
        """Copy the rows of the ledger into the folder `target`.  Returns the name of the new file, and a sentence about
        it for a person, "" if the file can be used unchanged to restore the ledger."""
        backup = getattr(self.entry, "backup", None)
        if backup is not None:
            made: tuple[str, str] = backup(self.base_dir, self.address, target)
            return made
        with closing(self.open_for_reading()) as database:
            return LINES, write_lines(database, target)


def write_lines(database: Database, target: Path) -> str:
    """Write every row of the ledger as a line of `tasks.jsonl` in `target`; returns a sentence about that file for a
    person."""
    rows = database.run("task_list", status=None, limit=ALL)
    durable_files.write_file(
        target / LINES, (orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    )
    return TO_LOOK_AT
