"""`backup DIR` makes a copy of base_dir from which all work can continue, while a daemon and its workers run.

The rows of tasks are copied by the ledger: a SQLite file with SQLite's backup function, like `memory.db`, or a
PostgreSQL table as JSON lines.  The files of a running task are copied in the order of their references: a file that
contains references is copied before the files to which it refers.  The copy of a task's folder equals a state that a
killed process could have left behind, and the next start repairs that state (`daemon/reconcile.py`, and the stores' own
repair).  Rows are copied after the folders: a row without a folder is a task that starts again, while a folder without
a row is not a task.

A backup has no locks, no cached set-ups and no copies of `replay`, since no task needs them to continue.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files, filetree, treecopy
from agent.context.stores import file_names
from agent.errors import DiskError, UsageError
from agent.issue import claims
from agent.observe.error_tolerant_loop import ItemLoop
from agent.store.configured_ledger import LedgerKind
from agent.store.db import copy as copy_database
from agent.wiring.folders import QUARANTINE
from agent.wiring.private_tracker import FOLDER as SOLO

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.filetree import WalkedEntry

REFS_FIRST = ("HEAD", "packed-refs", "refs", "index", "makimono.json")
"""The entries of a git directory that name objects: they are copied before the objects, so that every object that a
copied entry names is in the copy."""

LEFT_OUT = ("lock", "request.json", "kept.json", ".room", "replica.json")
OTHERS = (SOLO, QUARANTINE)


@dataclass
class Backup:
    """The result of the command `backup`.

    `rows` is the name of the file with the rows: `tasks.db`, or `tasks.jsonl` for a PostgreSQL ledger. `note` is a hint
    for the person about the file of rows, or "". `missed` lists the files and folders that could not be copied, one
    line each."""

    folder: Path
    rows: str = ""
    note: str = ""
    completed: int = 0
    running: int = 0
    size: int = 0
    missed: tuple[str, ...] = ()
    at: str = field(default_factory=clock.stamp)


def backup(settings: Settings, target: Path) -> Backup:
    """Copy base_dir to `target`, a new or empty folder.  Raises UsageError if `target` exists and is not an empty
    folder, if it is in base_dir, or if base_dir does not exist, and DiskError if writing fails."""
    base_dir = settings.base_dir.resolve()
    target = target.absolute()
    if not durable_files.is_real_dir(base_dir):
        raise UsageError(f"{base_dir} is not there; nothing was kept yet")
    if target.resolve().is_relative_to(base_dir):
        raise UsageError(f"{target} lies in {base_dir}; give a folder elsewhere, better on another disk")
    if target.exists() and not (durable_files.is_real_dir(target) and not any(target.iterdir())):
        raise UsageError(f"{target} is there already and holds something; give a new folder")
    durable_files.make_dir(target)
    target.chmod(durable_files.passable())
    made = Backup(target)
    copy = _Copy()
    for name in ("repos", *OTHERS):
        copy.folder(base_dir / name, target / name)
    _completed(base_dir, target, copy)
    _running(base_dir, target, copy)
    made.rows, made.note = _rows(settings, target)
    _completed(base_dir, target, copy)  # `_completed` runs a second time to copy tasks that ended during the backup
    made.completed = len(_names(target / "completed"))
    made.running = len(_names(target / "running"))
    made.missed = tuple(copy.missed)
    made.size = copy.size + sum(path.stat().st_size for path in target.glob("*.db"))
    facts = {"at": made.at, "base_dir": str(base_dir), "rows": made.rows, "tasks": made.completed + made.running}
    durable_files.write_file(
        target / "backup.json", orjson.dumps(facts, option=orjson.OPT_INDENT_2)
    )  # this file is written last, as a sign that the backup is complete
    durable_files.sync_tree(target)
    return made


def _completed(base_dir: Path, target: Path, copy: _Copy) -> None:
    for name in _names(base_dir / "completed"):
        if not (target / "completed" / name).exists():
            copy.task(base_dir / "completed" / name, target / "completed" / name)
            copy.remove(target / "running" / name)  # it was copied as a running task, and has ended since


def _running(base_dir: Path, target: Path, copy: _Copy) -> None:
    for name in _names(base_dir / "running"):
        copy.task(base_dir / "running" / name, target / "running" / name)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if durable_files.is_real_dir(path)) if folder.is_dir() else []


def _rows(settings: Settings, target: Path) -> tuple[str, str]:
    """Copy the rows with the ledger, and beside them memory.db, mcp.lock and the file with the id of the ledger
    (`HOME_FILE`)."""
    if (memory := settings.base_dir / "memory.db").is_file():
        copy_database(memory, target / "memory.db")
    if (lock := settings.base_dir / "mcp.lock").is_file():
        durable_files.write_file(target / "mcp.lock", lock.read_bytes())
    if not claims.has_address(settings):
        durable_files.write_file(target / claims.HOME_FILE, f"{claims.home_of(settings)}\n".encode())
    return LedgerKind.from_settings(settings).backup(target)


class _Copy(treecopy.Copy):
    """Copies trees that other processes change at the same time.

    A file that vanishes meanwhile is left out, and a growing file is copied up to the length that it had when it was
    opened. A folder that cannot be read does not stop the copy; it is listed in `missed`.
    """

    def __init__(self) -> None:
        super().__init__(keep_owners=True)

    def task(self, source: Path, target: Path) -> None:
        """Copy the folder of one task."""
        durable_files.make_dir(target.parent, 0o700 if target.parent.name == "completed" else durable_files.passable())
        self.folder(source, target, task=True)

    def folder(self, source: Path, target: Path, *, task: bool = False) -> None:
        """Copy a folder with its content, if it exists, without the entries that `_of_task` (with `task`) or
        `_of_repository` leaves out."""
        told = len(self.missed)
        items = ItemLoop(lambda _name, why: self.missed.append(why), whole=(DiskError,))
        with items.handling(source.name), suppress(FileNotFoundError, NotADirectoryError):
            self.tree(source, target, order=_order, wanted=_of_task if task else _of_repository)
        items.finish()
        self.missed[told:] = [f"{source}: {line}" for line in self.missed[told:]]

    def remove(self, folder: Path) -> None:
        """Remove the copy of a folder."""
        with durable_files.writing(folder), suppress(FileNotFoundError):
            filetree.remove(folder)


def _order(names: list[str], depth: int) -> list[str]:
    first = (*reversed(file_names()), *REFS_FIRST) if depth == 0 else REFS_FIRST
    return sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name))


def _of_task(entry: WalkedEntry) -> bool:
    """Whether an entry of a task's folder is copied: the names in LEFT_OUT and git's lock files are left out; a file
    `*.lock` in the work tree is copied, since it belongs to the repository (`Cargo.lock`)."""
    if entry.depth == 0:
        return entry.name not in LEFT_OUT
    return not (entry.name.endswith(".lock") and entry.path.startswith("git/"))


def _of_repository(entry: WalkedEntry) -> bool:
    return entry.name not in LEFT_OUT and not entry.name.endswith(".lock")
