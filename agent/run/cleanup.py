"""Remove closed tasks that are older than `context_storage.cleanup_days`: folder first, row second.

Every closed status, by true times (design: section 11).  A running task is never touched: only closed rows are looked
at, and a folder whose lock is held stays.  A `uuid` that is not one is never made a path.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from agent import clock, disk
from agent.run import solo
from agent.taskqueue.identity import hostname

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.taskqueue.ledger import Ledger


REPLAYS = "replays"
"""Below base_dir: one folder for each copy that `replay` made."""


@dataclass(frozen=True, slots=True)
class Removed:
    """One task that was (or, dry, would be) removed; `size` in bytes of its folder.  A copy of `replay` has the name of
    its folder as `uuid` and `replay` as status."""

    uuid: str
    status: str
    completed_at: str
    size: int


def cleanup(settings: Settings, ledger: Ledger, *, days: float | None = None, dry_run: bool = False) -> list[Removed]:
    """Remove what is old enough; returns what went, oldest first."""
    age = settings.context_storage.cleanup_days if days is None else days
    before = clock.stamp(clock.now() - timedelta(days=age))
    removed = []
    for row in ledger.closed_before(before):
        folder = folder_of(settings, row["uuid"])
        if folder is not None and disk.is_locked(folder / "lock"):
            continue
        if folder is None and of_another_host(ledger, row["uuid"]):
            continue  # its folder lies there, and goes with its row when that host cleans up
        size = 0 if folder is None else tree_size(folder)
        if not dry_run:
            if folder is not None:
                _remove(folder)
            whole = ledger.get(row["uuid"])
            ledger.delete(row["uuid"])
            if whole is not None:
                solo.forget(settings, whole.instance)
        removed.append(Removed(row["uuid"], row["status"], row["completed_at"] or "", size))
    return removed + old_replays(settings, before, dry_run=dry_run)


def of_another_host(ledger: Ledger, uuid: str) -> bool:
    """Whether another host that shares the ledger worked on the task last."""
    row = ledger.get(uuid)
    return row is not None and row.hostname not in (None, hostname())


def old_replays(settings: Settings, before: str, *, dry_run: bool) -> list[Removed]:
    """Copies that `replay` made, last written before then; one that is being played stays."""
    removed = []
    top = settings.base_dir / REPLAYS
    for folder in sorted(top.iterdir()) if top.is_dir() else ():
        changed = clock.stamp(datetime.fromtimestamp(folder.lstat().st_mtime, UTC))
        if folder.is_symlink() or changed >= before or any(map(disk.is_locked, folder.glob("running/*/lock"))):
            continue
        size = tree_size(folder)
        if not dry_run:
            shutil.rmtree(folder)
        removed.append(Removed(folder.name, "replay", changed, size))
    return removed


def _remove(folder: Path) -> None:
    """Remove a folder with folders in it that were made read-only (Go's module cache); no symlink is followed."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - names that are no text stay as they are
            if not os.path.islink(path):  # noqa: PTH114
                with suppress(OSError):
                    os.chmod(path, 0o700)  # noqa: PTH101
    shutil.rmtree(folder)


def folder_of(settings: Settings, uuid: str) -> Path | None:
    """The task's folder, wherever it lies; None when there is none or `uuid` is not a uuid."""
    try:
        name = str(UUID(uuid))
    except ValueError:
        return None
    for parent in ("completed", "running"):
        folder = settings.base_dir / parent / name
        if folder.is_dir() and not folder.is_symlink():
            return folder
    return None


def tree_size(folder: Path) -> int:
    """Bytes of the regular files below `folder`, no symlink followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
