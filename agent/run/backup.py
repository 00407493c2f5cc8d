"""`backup DIR`: a copy of base_dir from which everything goes on, taken while a daemon and its workers run.

`tasks.db` (and `memory.db`) are copied by SQLite itself: opening and closing their files here would drop the locks of
whoever has them open in this process.  A closed task's folder does not change.  A running one's is copied in the order
in which one file needs the other: a line that refers to another file is copied before that file, so that the copy is
a state that a kill could have left, and the next start mends it (`reconcile.py`, the stores' own repair).  Rows are
copied after the folders, since a row without a folder is a task that starts again and a folder without a row is none.

Not copied: locks, the cache of set-ups, copies of `replay`; they come again by themselves.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from agent import clock, disk
from agent.errors import UsageError
from agent.run.folders import QUARANTINE
from agent.run.solo import FOLDER as SOLO
from agent.store.db import Database, open_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.config import Settings

FIRST = ("compactions.jsonl", "messages.jsonl", "summaries.jsonl", "tools.jsonl")
"""Of a task's folder, each before what its lines refer to."""

REFS_FIRST = ("HEAD", "packed-refs", "refs", "index", "makimono.json")
"""Of a git directory: names before the objects that they name."""

LEFT_OUT = ("lock", "request.json", "kept.json", ".room")
OTHERS = (SOLO, QUARANTINE)


@dataclass
class Backup:
    """What was copied.  `rows` says how: `tasks.db`, or `tasks.jsonl` for a PostgreSQL ledger."""

    folder: Path
    rows: str = "tasks.db"
    completed: int = 0
    running: int = 0
    size: int = 0
    at: str = field(default_factory=clock.stamp)


def backup(settings: Settings, target: Path) -> Backup:
    """Copy base_dir to `target`, a new or empty folder.  UsageError for any other; DiskError."""
    base_dir = settings.base_dir.resolve()
    target = target.absolute()
    if not disk.is_real_dir(base_dir):
        raise UsageError(f"{base_dir} is not there; nothing was kept yet")
    if target.resolve().is_relative_to(base_dir):
        raise UsageError(f"{target} lies in {base_dir}; give a folder elsewhere, better on another disk")
    if target.exists() and not (disk.is_real_dir(target) and not any(target.iterdir())):
        raise UsageError(f"{target} is there already and holds something; give a new folder")
    disk.make_dir(target)
    target.chmod(disk.passable())
    made = Backup(target)
    copy = _Copy()
    for name in ("repos", *OTHERS):
        copy.tree(base_dir / name, target / name)
    _completed(base_dir, target, copy)
    _running(base_dir, target, copy)
    made.rows = _rows(settings, target)
    _completed(base_dir, target, copy)  # those that ended meanwhile
    made.completed = len(_names(target / "completed"))
    made.running = len(_names(target / "running"))
    made.size = copy.size + sum(path.stat().st_size for path in target.glob("*.db"))
    facts = {"at": made.at, "base_dir": str(base_dir), "rows": made.rows, "tasks": made.completed + made.running}
    disk.write_file(target / "backup.json", orjson.dumps(facts, option=orjson.OPT_INDENT_2))  # last: it is whole
    disk.sync_tree(target)
    return made


def _completed(base_dir: Path, target: Path, copy: _Copy) -> None:
    for name in _names(base_dir / "completed"):
        if not (target / "completed" / name).exists():
            copy.task(base_dir / "completed" / name, target / "completed" / name)
            copy.remove(target / "running" / name)  # it was copied while it ran


def _running(base_dir: Path, target: Path, copy: _Copy) -> None:
    for name in _names(base_dir / "running"):
        copy.task(base_dir / "running" / name, target / "running" / name)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if disk.is_real_dir(path)) if folder.is_dir() else []


def _rows(settings: Settings, target: Path) -> str:
    """The rows, as a database of their own; a PostgreSQL ledger's as lines to look at (`pg_dump` restores it)."""
    if (memory := settings.base_dir / "memory.db").is_file():
        _database(Database(memory), target / "memory.db")
    if settings.taskqueue.ledger == "sqlite":
        if (settings.base_dir / "tasks.db").is_file():
            _database(Database(settings.base_dir / "tasks.db"), target / "tasks.db")
        return "tasks.db"
    with closing(open_tasks(settings.base_dir, settings.taskqueue.ledger)) as database:
        rows = database.run("task_list", status=None, limit=2**31 - 1)
    lines = (orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    disk.write_file(target / "tasks.jsonl", lines)
    return "tasks.jsonl"


def _database(source: Database, target: Path) -> None:
    with closing(source):
        source.execute("VACUUM INTO :target", target=str(target))
    target.chmod(0o600)


class _Copy:
    """Copies trees that others change meanwhile: what is gone is left out, what grows is copied as it was."""

    def __init__(self) -> None:
        self.size = 0

    def task(self, source: Path, target: Path) -> None:
        """One task's folder."""
        disk.make_dir(target.parent, disk.passable())
        self.tree(source, target, FIRST)

    def tree(self, source: Path, target: Path, first: Iterable[str] = ()) -> None:
        """A folder and all below it; links are copied as links, pipes and sockets not at all."""
        try:
            status = source.lstat()
            names = os.listdir(source)  # noqa: PTH208 - names that are no text stay as they are
        except OSError:
            return
        if not stat.S_ISDIR(status.st_mode):
            return
        first = (*first, *REFS_FIRST)
        names.sort(key=lambda name: (first.index(name) if name in first else len(first), name))
        with disk.writing(target):
            target.mkdir(mode=0o700, exist_ok=True)
        for name in names:
            if name not in LEFT_OUT and not name.endswith(".lock"):
                with suppress(FileNotFoundError):
                    self._entry(source / name, target / name)
        with disk.writing(target):
            _give(target, status)

    def _entry(self, source: Path, target: Path) -> None:
        status = source.lstat()
        if stat.S_ISDIR(status.st_mode):
            self.tree(source, target)
        elif stat.S_ISLNK(status.st_mode):
            place = os.readlink(source)  # noqa: PTH115 - as it stands there
            with disk.writing(target):
                os.symlink(place, target)  # noqa: PTH211
        elif stat.S_ISREG(status.st_mode):
            self._file(source, target)

    def _file(self, source: Path, target: Path) -> None:
        reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(reader)
            with disk.writing(target):
                writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    with suppress(EOFError):  # it was cut meanwhile
                        _copy_bytes(reader, writer, status.st_size)
                finally:
                    os.close(writer)
                _give(target, status)
        finally:
            os.close(reader)
        self.size += status.st_size

    def remove(self, folder: Path) -> None:
        """Take back the copy of a folder."""
        if folder.exists():
            disk.remove_tree(folder)


def _copy_bytes(reader: int, writer: int, size: int) -> None:
    position = 0
    while position < size:
        moved = os.sendfile(writer, reader, position, size - position)
        if moved == 0:
            raise EOFError
        position += moved


def _give(target: Path, status: os.stat_result) -> None:
    """Owner, mode and time of what was copied, as far as this user can give them."""
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    target.chmod(stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
