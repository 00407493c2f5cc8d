"""Checks the file system of base_dir: free bytes, free inodes, and whether it is writable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent import durable_files
from agent.config.value_kinds import size_text
from agent.errors import DiskError

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings

OUTCOME = "disk"
"""The `outcome` of a row that is paused for lack of disk space; the daemon resumes such a row by itself
(`daemon/disk_monitor.py`)."""

LEAST_FILES = 10_000
"""The number of inodes that must be free; a hundredth of the file system's inodes suffices if that is less."""

_PROBE = 64 << 10


def shortage(settings: Settings, *, probe: bool = False) -> str:
    """The reason why base_dir has no disk space for another task (unreadable, read-only, too few free bytes or inodes);
    "" if it has.

    With `probe` a small file is also written to base_dir as a test, and the error of the test is a reason too.
    """
    folder, least = settings.base_dir, settings.scheduling.min_free
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror}"
    left = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        return f"the file system of {folder} is read-only; make it writable"
    if least is not None and left < least:
        return (
            f"{left / (1 << 20):,.0f} MiB are free for {folder}, `scheduling.min_free` is {size_text(least)}; "
            f"free some space (`cleanup` removes old tasks)"
        )
    if found.f_favail < min(LEAST_FILES, found.f_files // 100):  # a file system that counts no inodes reports 0 of 0
        return (
            f"{found.f_favail:,} more files are possible on the file system of {folder}, which has room for "
            f"{found.f_files:,}; remove some (`cleanup` removes old tasks)"
        )
    return _refused(folder) if probe else ""


LEAST_SIZE = 16 << 20
"""The number of bytes that must be free if `scheduling.min_free` is not set: as much as a running task needs to end
properly."""


def missing_space(settings: Settings, times: int = 1, beside: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """How many (bytes, inodes) must become free on the disk of base_dir; (0, 0) if enough are free, or if the numbers
    are unknown.

    The number of inodes that must be free is multiplied by `times`; the bytes and inodes in `beside` are required in
    addition."""
    try:
        found = os.statvfs(settings.base_dir)
    except OSError:
        return 0, 0
    wanted = settings.scheduling.min_free or LEAST_SIZE
    size = wanted + beside[0] - found.f_bavail * found.f_frsize
    files = times * min(LEAST_FILES, found.f_files // 100) - found.f_favail
    if found.f_files:  # the file system counts inodes; else none has to become free
        files += beside[1]
    return max(0, size), max(0, files)


def _refused(folder: Path) -> str:
    """The error of a test write, "" if there is none: an exceeded quota or a missing permission is detected only by a
    write."""
    try:
        durable_files.write_file(folder / ".room", b"\0" * _PROBE)
        (folder / ".room").unlink()  # ours
    except (DiskError, OSError) as error:
        return str(error)
    return ""


def free(folder: Path) -> int:
    """Bytes that this user may still write in `folder`."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
