"""Give a tree to another user."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.filetree.descent import PINNED, open_folder, walk

if TYPE_CHECKING:
    from agent.filetree.descent import Entry


def give(top: str | os.PathLike[str], uid: int, gid: int, *, only_from: int | None = None) -> None:
    """Give everything below `top`, and `top` itself, to `uid` and `gid`; of a link the link.

    With `only_from` only files and folders below it that belong to that uid.  A file with several names is left as it
    is unless it is `uid`'s already: another of its names may lie outside the tree.  OSError.
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


def _give_one(entry: Entry, uid: int, gid: int) -> None:
    """The very entry that was looked at, whatever has its name by now; of a link the link: the way by /proc ends there
    (proc_pid_fd(5))."""
    pinned = os.open(entry.name, PINNED, dir_fd=entry.folder)
    try:
        now = os.fstat(pinned)
        if (now.st_dev, now.st_ino) == (entry.status.st_dev, entry.status.st_ino):
            os.chown(f"/proc/self/fd/{pinned}", uid, gid)
    finally:
        os.close(pinned)
