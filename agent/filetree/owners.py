"""Changes the owner of a folder and of all files and folders below it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.filetree.descent import PINNED, open_folder, walk

if TYPE_CHECKING:
    from agent.filetree.descent import WalkedEntry


def change_owner(top: str | os.PathLike[str], uid: int, gid: int, *, only_from: int | None = None) -> None:
    """Change the owner of `top` and of everything below it to `uid` and `gid`, without following links.

    With `only_from` only the files and folders below `top` that belong to the uid `only_from` change, and neither `top`
    itself nor a symbolic link changes. A file with several hard links is left unchanged unless it belongs to `uid`
    already, since another name of the file may be outside the tree. Raises OSError if the owner of a file or folder
    cannot be changed.
    """
    descriptor = open_folder(top)
    try:
        if only_from is None:
            os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
    for entry in walk(top):
        status = entry.status
        if entry.left or (only_from is not None and status.st_uid != only_from):
            continue
        if status.st_nlink > 1 and not entry.is_folder and status.st_uid != uid:
            continue
        if entry.is_link and only_from is not None:
            continue
        with suppress(FileNotFoundError):
            _give_one(entry, uid, gid)


def _give_one(entry: WalkedEntry, uid: int, gid: int) -> None:
    """Change the owner of an entry, unless the name of the entry belongs to another inode than the one in
    `entry.status` by now.

    A path through /proc/self/fd to an open file does not follow a link (proc_pid_fd(5))."""
    pinned = os.open(entry.name, PINNED, dir_fd=entry.folder)
    try:
        now = os.fstat(pinned)
        if (now.st_dev, now.st_ino) == (entry.status.st_dev, entry.status.st_ino):
            os.chown(f"/proc/self/fd/{pinned}", uid, gid)
    finally:
        os.close(pinned)
