"""`backup DIR`: a copy of base_dir from which everything goes on, taken while a daemon and its workers run.

`tasks.db` (and `memory.db`) are copied by SQLite itself: opening and closing their files here would drop the locks of
whoever has them open in this process.  A closed task's folder does not change.  A running one's is copied in the order
in which one file needs the other: a line that refers to another file is copied before that file, so that the copy is
a state that a kill could have left, and the next start mends it (`reconcile.py`, the stores' own repair).  Rows are
copied after the folders, since a row without a folder is a task that starts again and a folder without a row is none.

Not copied: locks, the cache of set-ups, copies of `replay`; they come again by themselves.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from agent import clock, disk, filetree, treecopy
from agent.errors import DiskError, UsageError
from agent.observe.items import Items
from agent.run.folders import QUARANTINE
from agent.run.solo import FOLDER as SOLO
from agent.store.db import Database, open_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.filetree import Entry

FIRST = ("compactions.jsonl", "messages.jsonl", "requests.jsonl", "summaries.jsonl", "tools.jsonl")
"""Of a task's folder, each before what its lines refer to."""

REFS_FIRST = ("HEAD", "packed-refs", "refs", "index", "makimono.json")
"""Of a git directory: names before the objects that they name."""

LEFT_OUT = ("lock", "request.json", "kept.json", ".room", "replica.json")
OTHERS = (SOLO, QUARANTINE)


@dataclass
class Backup:
    """What was copied.  `rows` says how: `tasks.db`, or `tasks.jsonl` for a PostgreSQL ledger.  `missed` names what
    could not be read, one line each."""

    folder: Path
    rows: str = "tasks.db"
    completed: int = 0
    running: int = 0
    size: int = 0
    missed: tuple[str, ...] = ()
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
        copy.folder(base_dir / name, target / name)
    _completed(base_dir, target, copy)
    _running(base_dir, target, copy)
    made.rows = _rows(settings, target)
    _completed(base_dir, target, copy)  # those that ended meanwhile
    made.completed = len(_names(target / "completed"))
    made.running = len(_names(target / "running"))
    made.missed = tuple(copy.missed)
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


class _Copy(treecopy.Copy):
    """Copies trees that others change meanwhile: what is gone is left out, what grows is copied as it was.  A folder
    that cannot be read stops nothing; it is in `missed`."""

    def __init__(self) -> None:
        super().__init__(keep_owners=True)

    def task(self, source: Path, target: Path) -> None:
        """One task's folder."""
        disk.make_dir(target.parent, 0o700 if target.parent.name == "completed" else disk.passable())
        self.folder(source, target, task=True)

    def folder(self, source: Path, target: Path, *, task: bool = False) -> None:
        """A folder and all below it, if it is there."""
        told = len(self.missed)
        items = Items(lambda _name, why: self.missed.append(why), whole=(DiskError,))
        with items.one(source.name), suppress(FileNotFoundError, NotADirectoryError):
            self.tree(source, target, order=_order, wanted=_of_task if task else _of_repository)
        items.end()
        self.missed[told:] = [f"{source}: {line}" for line in self.missed[told:]]

    def remove(self, folder: Path) -> None:
        """Take back the copy of a folder."""
        with disk.writing(folder), suppress(FileNotFoundError):
            filetree.remove(folder)


def _order(names: list[str], depth: int) -> list[str]:
    first = (*FIRST, *REFS_FIRST) if depth == 0 else REFS_FIRST
    return sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))


def _of_task(entry: Entry) -> bool:
    """Not the locks of git and of ours; a file of that name in the work tree is the repository's (`Cargo.lock`)."""
    if entry.depth == 0:
        return entry.name not in LEFT_OUT
    return not (entry.name.endswith(".lock") and entry.path.startswith("git/"))


def _of_repository(entry: Entry) -> bool:
    return entry.name not in LEFT_OUT and not entry.name.endswith(".lock")
