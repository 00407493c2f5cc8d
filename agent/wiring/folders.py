"""Finds and makes the folders of tasks in base_dir.

`folders.py` imports no other module of the package `wiring`. `folders.py` knows only the names of task folders, not the
content of a task. A task's folder is found and made only for a valid uuid.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from agent import clock, durable_files
from agent.errors import ContextError
from agent.work import mirror

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings

QUARANTINE = "quarantine"
"""The folder below base_dir into which folders are moved that no task uses, for example entries of `running/` that
belong to no task."""

REPLAYS = "replays"
"""The folder below base_dir that has one folder for each copy that `replay` made."""

DELIBERATIONS = "deliberations"
"""The folder below base_dir that has one folder for each call of `deliberate`."""


def is_uuid(name: str) -> bool:
    """Whether `name` is a uuid in canonical form."""
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def folder_of(settings: Settings, uuid: str) -> Path | None:
    """The folder of a task that is running or has ended; None if there is none or `uuid` is not a uuid."""
    try:
        name = str(UUID(uuid))
    except ValueError:
        return None
    for parent in ("completed", "running"):
        folder = settings.base_dir / parent / name
        if folder.is_dir() and not folder.is_symlink():
            return folder
    return None


def task_folder_count(settings: Settings) -> int:
    """The number of folders of tasks that run or have ended, without those in a folder that cannot be read."""
    count = 0
    for parent in ("completed", "running"):
        with suppress(OSError):
            count += sum(is_uuid(path.name) for path in (settings.base_dir / parent).iterdir())
    return count


def make_folder(settings: Settings, uuid: str) -> Path:
    """Make the folder `running/{uuid}/` of a task, which only the user of this process can access.

    Later the sandbox gives access to the task's folder to the group under which the task's commands run. Raises
    ContextError if `uuid` is not a uuid, or if the folder is a symbolic link, since its target may not belong to the
    task.
    """
    if not is_uuid(uuid):
        raise ContextError(
            f"{uuid[:80]!r} cannot name a task's folder; only a uuid like 550e8400-e29b-41d4-a716-446655440000 can"
        )
    mode = durable_files.passable()
    running = durable_files.make_dir(durable_files.claim_dir(settings.base_dir, mode) / "running", mode)
    folder = durable_files.make_dir(running / uuid)
    if folder.is_symlink():
        raise ContextError(f"{folder} is a link, not a task's folder; remove it, the next daemon makes the folder anew")
    return folder


def keep_from_others(settings: Settings) -> None:
    """Remove the rights of other users of the machine from folders for which an earlier version of the program allowed
    them.

    The group under which a task's commands run gets access to the task's folder when a worker claims the task.
    """
    base_dir = settings.base_dir
    for top in (base_dir, *(base_dir / REPLAYS).glob("*")):
        if durable_files.is_real_dir(top / mirror.FOLDER):
            mirror.keep_from_others(top / mirror.FOLDER)
        for folder in (top / "completed", *(top / "running").glob("*")):
            if durable_files.is_real_dir(folder) and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o007:
                with suppress(OSError):
                    folder.chmod(mode & ~0o007 if folder.name != "completed" else 0o700)


def set_aside(settings: Settings, path: Path) -> Path:
    """Move the folder `path` into `quarantine/` under an unused name; returns the new path. Raises DiskError."""
    target = durable_files.make_dir(settings.base_dir / QUARANTINE) / path.name
    if os.path.lexists(target):
        target = target.with_name(f"{path.name}.{clock.stamp().replace(':', '')}")
    durable_files.move_dir(path, target)
    return target
