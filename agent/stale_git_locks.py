"""Removes stale locks that a killed git left in git directories of this program: files `….lock` without a living owner.

Git takes a lock by creating the file and releases it by a rename or a removal.  A git process that is killed does not
release its lock; the next git then fails, and its message advises people to remove the file by hand.  Each of the
program's git directories has one owner (the process of a task, or the holder of the mirror's flock), so a lock file
that no process has open is stale.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from agent import clock

SECONDS = 0.2
"""Seconds for which no process may have a lock file open before it is removed: a living git may have closed the file
and be about to rename it."""

_NAMED = (
    re.compile(r"unable to create '([^'\n]+\.lock)': File exists", re.IGNORECASE),
    re.compile(r"could not lock config file (\S+): File exists"),
)
"""Patterns for git's messages about an existing lock file (lockfile.c and config.c of git)."""


def lock_in_error(stderr: str, git_dir: Path) -> Path | None:
    """The lock inside `git_dir` that git's error message says exists already; None if the message names no such
    lock."""
    for pattern in _NAMED:
        for found in pattern.findall(stderr):
            path = Path(found if found.endswith(".lock") else f"{found}.lock")
            path = path if path.is_absolute() else git_dir / path
            if path.parent.resolve().is_relative_to(git_dir.resolve()):
                return path
    return None


def remove(path: Path) -> bool:
    """Remove a stale lock file of git. Returns False if a process has the lock file open, else True, even if the file
    is already gone."""
    for _ in range(2):
        if _is_open(path):
            return False
        clock.sleep(SECONDS / 2)
    with suppress(FileNotFoundError):
        path.unlink()
    return True


def _is_open(path: Path) -> bool:
    """Whether a process has the file open, among those of which this process may read the descriptors."""
    try:
        wanted = path.stat(follow_symlinks=False)
    except OSError:
        return False
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # a process that has ended, or is another user's, is left out
            for descriptor in os.scandir(f"{entry.path}/fd"):
                with suppress(OSError):
                    found = os.stat(descriptor.path)  # noqa: PTH116 - faster, for thousands of descriptors
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        return True
    return False
