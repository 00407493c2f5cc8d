"""Maintenance of memory.db: rebuilds the tables from the log, exports events and records, and counts them for `memory
status`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.errors import MemoryUnavailable
from agent.memory import schema
from agent.memory.database import FILE
from agent.memory.log import data_of
from agent.memory.log_projection import APPLIED, UNPURGED
from agent.store.db import module, read_only
from agent.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.memory.base import Log
    from agent.memory.database import MemoryDatabase
    from agent.memory.jobs import ExtractionJobs
    from agent.memory.log_projection import LogProjection

PAGE = 1000


def rebuild(log: Log, projection: LogProjection) -> int:
    """Rebuild from the log, in one transaction, every table that is used for searching; return the number of the log's
    entries.

    `rebuild` also makes tables and indexes again that are missing or damaged (`schema.py`). Raises MemoryUnavailable
    when the log has fewer entries than the number from which the tables were made.
    """
    try:
        if not schema.is_whole(projection.database):  # `rebuilding` of a shared log needs the tables
            with projection.database.transaction():
                _export(log, projection)
        with log.rebuilding():
            return _export(log, projection)
    except BaseException:
        projection.forget_stale()
        raise


def _export(log: Log, projection: LogProjection) -> int:
    schema.remake(projection.database)
    applied = next((int(row["value"]) for row in projection.database.run("state_get", name=APPLIED)), 0)
    if (last := int(projection.database.run("log_last")[0]["number"])) < applied:
        raise MemoryUnavailable(
            f"the log of {projection.database.where} ends at entry {last:,}, and the tables were made from "
            f"{applied:,}; they stay as they are. Put a backup of the file in its place"
        )
    projection.clear()
    found = apply_entries(log, projection, 0)
    projection.optimize()
    return found


def apply_entries(log: Log, projection: LogProjection, after: int) -> int:
    """Apply the log's entries with a higher number than `after` to the tables, inside a transaction; return how many
    entries were applied."""
    found = 0
    while entries := log.entries(after, PAGE):
        for entry in entries:
            projection.apply(entry)
        projection.flush()
        after = entries[-1].number
        found += len(entries)
    return found


def position(base_dir: Path) -> tuple[int, bool]:
    """The number of the last log entry in memory.db, and whether memory.db may still have bytes of forgotten texts; (0,
    False) for a file that is missing or cannot be read.  Changes nothing."""
    path = base_dir / FILE
    sqlite = module()
    if not path.exists():
        return 0, False
    try:
        with closing(read_only(path)) as connection:
            (number,) = connection.execute(queries("memory")["log_last"]).fetchone()
            unpurged = connection.execute(queries("memory")["state_get"], {"name": UNPURGED}).fetchone()
    except sqlite.Error:
        return 0, False
    return int(number), unpurged is not None


def export(database: MemoryDatabase, path: Path) -> int:
    """Write every event and record as a line of JSON into a file that only its owner can read; return the number of
    lines."""
    lines = 0

    def made() -> Iterator[bytes]:
        nonlocal lines
        for name, key, kind in (("events_page", "id", "event"), ("records_page", "key", "record")):
            after = 0
            while rows := database.run(name, after=after, limit=PAGE):
                after = rows[-1][key]
                for row in rows:
                    lines += 1
                    yield _line(kind, row)

    durable_files.make_dir(path.parent)
    durable_files.write_file(path, made())
    return lines


def _line(kind: str, row: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in row.items() if name not in ("terms", "sha", "block", "key")}
    kept["metadata"] = data_of(row["metadata"], f"the metadata of {kind} {row['id']}")
    return orjson.dumps({"kind": kind, **kept}, option=orjson.OPT_APPEND_NEWLINE)


def figures(database: MemoryDatabase, jobs: ExtractionJobs) -> dict[str, Any]:
    """Numbers for `memory status`: events, records by strategy and status, jobs by status, bytes of the file."""
    records: dict[str, dict[str, int]] = {}
    for row in database.run("records_by_status"):
        records.setdefault(row["strategy"], {})[row["status"]] = row["records"]
    try:
        by_status = jobs.by_status()
    except MemoryUnavailable:
        by_status = {}
    return {
        "events": database.run("event_total")[0]["texts"],
        "records": records,
        "jobs": by_status,
        "bytes": database.path.stat().st_size,
    }
