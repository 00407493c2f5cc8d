"""Makes the tables of memory.db again, for `memory rebuild`: a table may have been dropped, or an index damaged.

`remake` drops and creates the tables that are made from the log, and its caller fills these tables.  The tables of the
history of commits are made again when one of them is missing or damaged; the next indexing of the history fills them.
A table that is made neither from the log nor from the history of commits is created when it is missing.  `memory_log`
itself cannot be made again.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from agent.errors import MemoryUnavailable
from agent.store import migrate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.store.db import Database

MIGRATIONS = "memory_log"
LOG, VERSIONS = "memory_log", "schema_version"
_DEFINED = re.compile(r"CREATE (?:VIRTUAL |UNIQUE )?(?:TABLE|INDEX) (\w+)(?: ON (\w+))?")
_KEPT = (LOG, "memory_state", "memory_jobs", "memory_vectors")
_HISTORY = (
    *("memory_histories", "memory_commits", "memory_files", "memory_touched"),
    *("memory_commit_terms", "memory_file_terms", "memory_commit_words", "memory_file_words"),
)
_INDEX = "USING fts5("
_SHADOWS = ("data", "idx", "docsize", "config")
"""Suffixes of the tables in which FTS5 keeps a contentless index (https://www.sqlite.org/fts5.html, 11)."""
_CONFIG = "CREATE TABLE IF NOT EXISTS {name}_config (k PRIMARY KEY, v) WITHOUT ROWID"


@cache
def _objects() -> dict[str, tuple[str, str]]:
    """Name of each table or index → (name of the table itself or of the index's table, statement that creates the table
    or index), in the order of the migrations."""
    found = {}
    for _, _, path in migrate.migrations(MIGRATIONS):
        for statement in migrate.statements(path.read_text(encoding="utf-8")):
            if (defined := _DEFINED.match(statement)) is not None:
                found[defined[1]] = (defined[2] or defined[1], statement)
    return found


def _there(database: Database) -> set[str]:
    return {row["name"] for row in database.execute("SELECT name FROM sqlite_master")}


def _tables_of(name: str) -> list[str]:
    """The names of a table, of its indexes and, for an FTS5 index, of the tables in which FTS5 keeps it."""
    made = [one for one, (table, _) in _objects().items() if table == name]
    return [*made, *(f"{name}_{part}" for part in _SHADOWS if _INDEX in _objects()[name][1])]


def is_whole(database: Database) -> bool:
    """Whether memory.db has every table and every index that the migrations create."""
    return _there(database).issuperset(one for table, _ in _objects().values() for one in _tables_of(table))


def remake(database: Database) -> None:
    """Drop and create every table that is made from the log, and the tables of the history of commits if one of them is
    missing or damaged; create what else is missing. The caller opens a transaction."""
    history = () if _is_sound(database) else _HISTORY
    tables = dict.fromkeys(table for table, _ in _objects().values())
    _drop_tables(database, [name for name in tables if name in history or name not in (*_KEPT, *_HISTORY)])
    there = _there(database)
    for name, (_, statement) in _objects().items():
        if name not in there:
            database.define(statement)


def _is_sound(database: Database) -> bool:
    """Whether the tables of the history of commits are all there, and their indexes are sound."""
    if not _there(database).issuperset(one for name in _HISTORY for one in _tables_of(name)):
        return False
    try:
        for name in _HISTORY:
            if _INDEX in _objects()[name][1]:
                database.execute(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')")  # noqa: S608 - the table's name comes from this module
    except MemoryUnavailable:
        return False
    return True


def _drop_tables(database: Database, names: Iterable[str]) -> None:
    there = _there(database)
    for name in names:
        if _INDEX in _objects()[name][1] and name in there and f"{name}_config" not in there:
            # FTS5 opens no index without its table `{name}_config`, not even to drop the index
            database.define(_CONFIG.format(name=name))
            database.define(f"INSERT INTO {name}_config VALUES ('version', 4)")  # noqa: S608
        database.define(f"DROP TABLE IF EXISTS {name}")


def check(database: Database) -> None:
    """Raise MemoryUnavailable for a database of another program, and for a memory.db that has lost its log; make
    `schema_version` again if a memory.db lacks it. For a database without tables no error is raised."""
    there = _there(database)
    if LOG in there:
        if VERSIONS not in there:
            _restore_versions(database)
        return
    if VERSIONS in there and there & _objects().keys():
        raise MemoryUnavailable(
            f"{database.where} has lost its table {LOG}, from which all others are made. Stop what uses it and put a "
            f"backup in its place, or move it, its -wal and its -shm away: memory then begins anew, or follows the "
            f"shared log"
        )
    if others := sorted(there - {VERSIONS} - {name for name in there if name.startswith("sqlite_")}):
        raise MemoryUnavailable(
            f"{database.where} is the database of another program (it has {', '.join(others[:3])}); move it away, its "
            f"-wal and its -shm too"
        )


def _restore_versions(database: Database) -> None:
    """Record a migration as applied if the database has a table or an index that the migration creates."""
    with database.transaction():
        there = _there(database)
        migrate.note(database, MIGRATIONS, [number for number, made in _made_by() if there.intersection(made)])


def _made_by() -> Iterator[tuple[int, list[str]]]:
    """Yields (number of a migration, names of the tables and indexes that it creates)."""
    for number, _, path in migrate.migrations(MIGRATIONS):
        defined = map(_DEFINED.match, migrate.statements(path.read_text(encoding="utf-8")))
        yield number, [one[1] for one in defined if one is not None]
