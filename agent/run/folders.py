"""Where a task's folder lies, and how it is made: names in base_dir, and nothing that knows what a task is.

The lowest module of this room: whatever looks for a folder, or tells a task's folder from other things, asks here.  A
`uuid` that is not one is never made a path.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from agent import clock, disk
from agent.errors import ContextError
from agent.work import mirror

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings

QUARANTINE = "quarantine"
"""Below base_dir: what lay in `running/` and belongs to no task."""

REPLAYS = "replays"
"""Below base_dir: one folder for each copy that `replay` made."""


def is_uuid(name: str) -> bool:
    """Whether `name` is a uuid in its one form."""
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


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


def make_folder(settings: Settings, uuid: str) -> Path:
    """`running/{uuid}/`, for this process's user alone: whoever runs commands there lets those of the task in.

    ValueError when `uuid` is not one, ContextError when a link lies in its place: what it leads to is not the task's.
    """
    if not is_uuid(uuid):
        raise ValueError(f"{uuid!r} is not a uuid")
    mode = disk.passable()
    running = disk.make_dir(disk.claim_dir(settings.base_dir, mode) / "running", mode)
    folder = disk.make_dir(running / uuid)
    if folder.is_symlink():
        raise ContextError(f"{folder} is a link, not a task's folder; remove it, the next daemon makes the folder anew")
    return folder


def keep_from_others(settings: Settings) -> None:
    """Close folders that an earlier version of the program left open to other users of the machine.

    Task folders that are worked on are opened to the group of their commands when they are taken up.
    """
    base_dir = settings.base_dir
    for top in (base_dir, *(base_dir / REPLAYS).glob("*")):
        if disk.is_real_dir(top / mirror.FOLDER):
            mirror.keep_from_others(top / mirror.FOLDER)
        for folder in (top / "completed", *(top / "running").glob("*")):
            if disk.is_real_dir(folder) and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o007:
                with suppress(OSError):
                    folder.chmod(mode & ~0o007 if folder.name != "completed" else 0o700)


def set_aside(settings: Settings, path: Path) -> Path:
    """Rename `path` into `quarantine/`, under a name that is free there; returns where it lies now.  DiskError."""
    target = disk.make_dir(settings.base_dir / QUARANTINE) / path.name
    if os.path.lexists(target):
        target = target.with_name(f"{path.name}.{clock.stamp().replace(':', '')}")
    disk.move_dir(path, target)
    return target
