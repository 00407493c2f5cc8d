"""Numbered migrations, each applied once and recorded in `schema_version`.

`migrations/NNNN_name.sql` is plain SQL, several statements a file; a file and its record are one transaction, so a
crash leaves the schema before it or after it.  Released files never change: a new need is a new number.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import SurroundingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.store.base import Database

Known = tuple[tuple[int, str, Path], ...]

FOLDER = Path(__file__).parent / "migrations"

_COMMENT = re.compile(r"--[^\n]*")
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")


@cache
def migrations() -> Known:
    """(number, name, file), in order."""
    found = []
    for path in sorted(FOLDER.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        number, _, name = path.stem.partition("_")
        found.append((int(number), name, path))
    return tuple(found)


def statements(script: str) -> Iterator[str]:
    """The statements of a file.  Our scripts hold no semicolon or `--` inside a string, and no trigger."""
    for part in _COMMENT.sub("", script).split(";"):
        if part.strip():
            yield part.strip()


def apply(database: Database) -> list[int]:
    """Bring the schema up to date; returns the numbers that were applied now.

    A database that a newer version of the program has changed is refused with SurroundingsError.
    """
    known = migrations()
    if database.has_table("schema_version") and not database.has_table("tasks"):
        _make_again(database, known)
    missing = _missing(database, known)
    if not missing:
        return []
    applied = []
    for number, name, path in missing:
        with database.transaction():
            database.define(
                "CREATE TABLE IF NOT EXISTS schema_version "
                "(version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
            )
            # Another process may have been quicker; inside the transaction the answer is final.
            if database.execute("SELECT 1 FROM schema_version WHERE version = :version", version=number):
                continue
            for statement in statements(path.read_text(encoding="utf-8")):
                database.define(statement)
            database.execute(
                "INSERT INTO schema_version (version, name, applied_at) VALUES (:version, :name, :now)",
                version=number,
                name=name,
                now=clock.stamp(),
            )
            applied.append(number)
    return applied


def _make_again(database: Database, known: Known) -> None:
    """Define what a dropped `tasks` took with it, by the migrations that were applied; other tables stay."""
    with database.transaction():
        if database.has_table("tasks"):  # another process was quicker
            return
        versions = {row["version"] for row in database.execute("SELECT version FROM schema_version")}
        for number, _, path in known:
            for statement in statements(path.read_text(encoding="utf-8")) if number in versions else ():
                made = _TABLE.match(statement)
                if made is None or not database.has_table(made.group(1)):
                    database.define(statement)


def newer(database: Database) -> str:
    """Why this version of the program must not use the database any more, "" while it may: another host that shares it
    may have brought a newer schema at any time."""
    found = database.execute("SELECT MAX(version) AS version FROM schema_version")
    return _newer(database.where, int(found[0]["version"] or 0), migrations()[-1][0])


def _newer(where: str, version: int, known: int) -> str:
    if version <= known:
        return ""
    return (
        f"{where} was changed by a newer version of makimono (schema {version}, this version knows {known}); install "
        f"that version here too, or name another context_storage.base_dir or taskqueue.ledger"
    )


def _missing(database: Database, known: Known) -> Known:
    if not database.has_table("schema_version"):
        return known
    versions = {row["version"] for row in database.execute("SELECT version FROM schema_version")}
    if why := _newer(database.where, max(versions, default=0), known[-1][0]):
        raise SurroundingsError(why)
    return tuple(migration for migration in known if migration[0] not in versions)
