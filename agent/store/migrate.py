"""Applies numbered migrations to databases; each migration is applied once to a database and recorded in a table there
(`schema_version`).

Each database has its own folder of migrations, such as `migrations/tasks/`; a file `NNNN_name.sql` is plain SQL with
one or more statements. A migration and its row in the table of applied migrations are written in one transaction, so
after a crash the schema is either the one before or the one after the migration. A migration file never changes after
its release: a further change of the schema gets a new number, and a new database gets a new folder. If two sets of
tables share one PostgreSQL schema (ledger and memory log), each has its own table of applied migrations.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agent import clock
from agent.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from agent.store.base import Database

Known = tuple[tuple[int, str, Path], ...]

FOLDER = Path(__file__).parent / "migrations"
TASKS = "tasks"
"""The name of the ledger's database, which is also the name of its folder of migrations."""
SHARED_LOG = "shared_memory_log"
"""The name for the tables of the memory log that are in the same PostgreSQL schema as the tables of the ledger."""
FIRST_TABLE = {SHARED_LOG: "memory_log"}
"""Name of a database → its first table, if that table has another name than the database."""
VERSIONS = {SHARED_LOG: "memory_schema_version"}
"""Name of a database → its table of applied migrations, for databases in which that table is not called
`schema_version`."""

_COMMENT = re.compile(r"--[^\n]*")
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")


@cache
def migrations(database: str) -> Known:
    """(number, name, file) of each migration of a database, in order."""
    found = []
    for path in sorted((FOLDER / database).glob("[0-9][0-9][0-9][0-9]_*.sql")):
        number, _, name = path.stem.partition("_")
        found.append((int(number), name, path))
    return tuple(found)


def statements(script: str) -> Iterator[str]:
    """The SQL statements of a migration file.

    The splitting is simple because the migration files contain no semicolon or `--` inside a string, and no trigger.
    """
    for part in _COMMENT.sub("", script).split(";"):
        if part.strip():
            yield part.strip()


class _Remade(Protocol):
    """A database that calls `remake` when its file or its tables are missing."""

    remake: Any

    def close(self) -> None: ...


_Opened = TypeVar("_Opened", bound=_Remade)


def bring_up(database: _Opened, migrate: Callable[[Any], object]) -> _Opened:
    """Bring a database that has just been opened to the newest schema by `migrate`, now and whenever its file or its
    tables are missing later; returns the database. If `migrate` fails, the database is closed."""
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    database.remake = migrate
    return database


def apply(database: Database, name: str = TASKS) -> list[int]:
    """Migrate the schema of the database `name` to the newest version; returns the numbers of the migrations that were
    applied by this call.

    Raises HostError for a database that a newer version of the program has changed.
    """
    known, versions = migrations(name), _versions(name)
    if database.has_table(versions) and not database.has_table(FIRST_TABLE.get(name, name)):
        _make_again(database, known, name)
    missing = _missing(database, known, versions)
    if not missing:
        return []
    applied = []
    for number, _, path in missing:
        with database.transaction():
            _make_versions(database, versions)
            # Another process may have applied the migration meanwhile, so its row is searched for again; inside the
            # transaction the answer is reliable.
            if database.execute(f"SELECT 1 FROM {versions} WHERE version = :version", version=number):  # noqa: S608
                continue
            for statement in statements(path.read_text(encoding="utf-8")):
                database.define(statement)
            note(database, name, [number])
            applied.append(number)
    return applied


def _make_versions(database: Database, versions: str) -> None:
    database.define(
        f"CREATE TABLE IF NOT EXISTS {versions} "
        "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
    )


def note(database: Database, name: str, numbers: Collection[int]) -> None:
    """Record migrations of the database `name` as applied; the caller has begun a transaction."""
    versions = _versions(name)
    _make_versions(database, versions)
    for number, called, _ in migrations(name):
        if number in numbers:
            database.execute(
                f"INSERT INTO {versions} (version, name, applied_at) VALUES (:version, :name, :now)",  # noqa: S608
                version=number,
                name=called,
                now=clock.stamp(),
            )


def _versions(name: str) -> str:
    """The name of the table with the applied migrations of a database."""
    return VERSIONS.get(name, "schema_version")


def _applied(database: Database, versions: str) -> set[int]:
    """The numbers of the migrations that were applied to a database."""
    return {row["version"] for row in database.execute(f"SELECT version FROM {versions}")}  # noqa: S608


def _make_again(database: Database, known: Known, name: str) -> None:
    """If the first table of the database was dropped, create it again with its indexes, by executing the migrations
    that were applied before; existing tables stay unchanged."""
    with database.transaction():
        if database.has_table(FIRST_TABLE.get(name, name)):  # another process has created the table meanwhile
            return
        applied = _applied(database, _versions(name))
        for number, _, path in known:
            for statement in statements(path.read_text(encoding="utf-8")) if number in applied else ():
                made = _TABLE.match(statement)
                if made is None or not database.has_table(made.group(1)):
                    database.define(statement)


def newer(database: Database, name: str = TASKS) -> str:
    """The reason why this version of the program must not use the database any more, "" if it may use it: another host
    that shares the database may have migrated it to a newer schema at any time."""
    return _newer(database.where, max(_applied(database, _versions(name)), default=0), migrations(name)[-1][0])


def _newer(where: str, version: int, known: int) -> str:
    if version <= known:
        return ""
    return (
        f"{where} was changed by a newer version of makimono (schema {version}, this version knows {known}); install "
        f"that version here too, or name another context_storage.base_dir or taskqueue.ledger"
    )


def _missing(database: Database, known: Known, versions: str) -> Known:
    if not database.has_table(versions):
        return known
    applied = _applied(database, versions)
    if why := _newer(database.where, max(applied, default=0), known[-1][0]):
        raise HostError(why)
    return tuple(migration for migration in known if migration[0] not in applied)
