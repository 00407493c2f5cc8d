"""Removes the bytes of forgotten texts from memory.db and its exports, and checks that they are gone.

SQLite overwrites a deleted row with zeros (`secure_delete`). The terms of a deleted row nevertheless stay in the
internal tables of FTS5 until the index is merged, and old pages stay in the write-ahead log until the log is truncated.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files
from agent.memory.log import data_of
from agent.memory.log_projection import UNPURGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.memory.database import MemoryDatabase
    from agent.memory.log_projection import LogProjection

SIZE = 32
"""Maximum number of bytes of a piece of a forgotten text; `purge` searches files for such pieces.  The boundary of a
database page is more likely to split a longer piece, and a piece that is split is not found."""
LEAST = 6
"""Minimum number of bytes of a piece of a forgotten text.  A piece of fewer bytes would also be found in other texts by
chance."""
MOST = 300
"""Maximum number of pieces of forgotten texts that are searched for."""
PATIENCE = 5.0
"""Maximum seconds that `purge` waits for readers, which prevent the truncation of the write-ahead log."""
_UNFINISHED = re.compile(r"\..*\.([0-9]+)\.tmp")
"""Matches the name of a file that a process is writing, with the id of the process (`durable_files.replacing`)."""
_PLAIN = re.compile(r"[^\s\"\\\x00-\x1f]+(?: [^\s\"\\\x00-\x1f]+)*")
"""Matches text without characters that JSON escapes, so that its bytes are the same in a row and in JSON."""

ELSEWHERE = (
    "the folders of tasks in base_dir (running/ and completed/) and replicas of them",
    "backups, and exports outside of base_dir/memory/",
)
"""Places that may contain forgotten texts, and that `forget` does not change."""


def purge(database: MemoryDatabase, projection: LogProjection, exports: Path, pieces: Sequence[bytes]) -> list[str]:
    """Remove from memory.db and its exports the bytes of all texts that were ever forgotten.

    At the end memory.db, its write-ahead log and the exports are searched for `pieces` (from `pieces_of`, parts of the
    forgotten texts); the result names the files that still contain a piece, each with a reason.  If the state
    `unpurged` exists, a reader prevents the truncation of the write-ahead log, and no piece was found, the result names
    that log, since it may contain forgotten texts that `pieces` does not cover. The state `unpurged` in memory.db is
    removed if no file contains a piece and the log was truncated: if a process dies before that, the state remains, and
    the next purge repeats the work.
    """
    unpurged = database.run("state_get", name=UNPURGED)
    projection.optimize()
    _remove_lines(exports, _forgotten_ids(database))
    busy = _truncate_log(database)
    files = [database.path, database.path.with_name(f"{database.path.name}-wal"), *_exports(exports)]
    is_unknown = bool(unpurged) and not pieces  # the forgotten texts are unknown, or too short to be searched for
    if not busy and (is_unknown or _files_with_pieces(database, files, pieces)):
        database.execute("VACUUM")
        busy = _truncate_log(database)
    left = _files_with_pieces(database, files, pieces)
    if not (left or busy) and unpurged:
        database.run("state_drop", name=UNPURGED, value=unpurged[0]["value"])
    if busy and unpurged and not left:
        left = [files[1]]
    return [f"{path}: {busy or 'a text was found in it after everything was removed'}" for path in left]


def _forgotten_ids(database: MemoryDatabase) -> set[str]:
    """The ids of all events and records that were ever forgotten."""
    found = (data_of(row["payload"], "an entry of the log") for row in database.run("log_forgotten"))
    return {str(one) for payload in found for one in (*payload["events"], *payload["records"])}


def _files_with_pieces(database: MemoryDatabase, files: Iterable[Path], pieces: Sequence[bytes]) -> list[Path]:
    """The files that contain a piece of a forgotten text, unless a remaining text contains the same piece."""
    found = {path: _pieces_in_file(path, pieces) for path in files}
    deleted = set(_only_deleted(database, sorted(set().union(*found.values()))))
    return [path for path, some in found.items() if some & deleted]


def _truncate_log(database: MemoryDatabase) -> str:
    """Write the write-ahead log into the database file and truncate it; return the reason if a reader prevents that,
    else ""."""
    until = clock.monotonic() + PATIENCE
    while True:
        (row,) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not row["busy"]:
            return ""
        if clock.monotonic() >= until:
            return "another process is reading memory.db; forget again when it has ended"
        clock.sleep(0.1)


def pieces_of(texts: Iterable[str]) -> list[bytes]:
    """At most MOST pieces of forgotten texts, for which files are searched: beginning, middle and end of the longest
    run of each text without special characters."""
    found: dict[bytes, None] = {}
    for text in texts:
        run = max(_PLAIN.findall(text), key=len, default="").encode()
        for start in (0, max(0, len(run) // 2 - SIZE // 2), max(0, len(run) - SIZE)):
            piece = run[start : start + SIZE]
            if len(piece) >= LEAST:
                found[piece] = None
    pieces = list(found)
    step = -(-len(pieces) // MOST) or 1
    return pieces[::step]


def _only_deleted(database: MemoryDatabase, pieces: Sequence[bytes]) -> list[bytes]:
    """Those of `pieces` (parts of forgotten texts) that no remaining event or record contains."""
    asked = orjson.dumps([piece.hex() for piece in pieces]).decode()
    kept = {row["piece"] for row in database.run("pieces_kept", pieces=asked)}
    return [piece for piece in pieces if piece.hex() not in kept]


def _pieces_in_file(path: Path, pieces: Sequence[bytes]) -> set[bytes]:
    """The pieces that occur in the file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return {piece for piece in pieces if data.find(piece) >= 0}
    except (FileNotFoundError, ValueError):  # the file is missing or empty, so it contains no piece
        return set()


def _exports(folder: Path) -> list[Path]:
    """The files with any name in the folder of the exports."""
    return (
        sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink()) if folder.is_dir() else []
    )


def _remove_lines(folder: Path, ids: set[str]) -> None:
    """Remove from the exports the lines of the events and records with an id in `ids`, and remove the unfinished files
    of export processes that were killed."""
    for path in _exports(folder):
        if (writer := _UNFINISHED.fullmatch(path.name)) is not None:
            if not Path(f"/proc/{writer[1]}").exists():
                path.unlink(missing_ok=True)
            continue
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if _id_of(line) not in ids]
        if len(kept) < len(lines):
            durable_files.write_file(path, b"".join(kept))


def _id_of(line: bytes) -> str:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    return str(found.get("id", "")) if isinstance(found, dict) else ""
