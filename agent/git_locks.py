"""Locks that a killed git has left in a git directory of ours: a file `….lock` whose owner is dead.

Git takes a lock by making the file and gives it back by a rename or a removal; a git that is killed does neither, and
the next one refuses to work and tells people to remove the file by hand.  Our git directories have one owner each (a
task's process, or who holds the mirror's flock), so a lock that no process has open is nobody's.  Called by `gitcmd`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from agent import clock

SECONDS = 0.2
"""How long a lock must lie there without an owner: a living git may have closed it, and is about to rename it."""

_NAMED = (
    re.compile(r"unable to create '([^'\n]+\.lock)': File exists", re.IGNORECASE),
    re.compile(r"could not lock config file (\S+): File exists"),
)
"""lockfile.c and config.c of git."""


def named(stderr: str, git_dir: Path) -> Path | None:
    """The lock inside `git_dir` that stood in git's way, None when that was something else."""
    for pattern in _NAMED:
        for found in pattern.findall(stderr):
            path = Path(found if found.endswith(".lock") else f"{found}.lock")
            path = path if path.is_absolute() else git_dir / path
            if path.parent.resolve().is_relative_to(git_dir.resolve()):
                return path
    return None


def remove(path: Path) -> bool:
    """Remove a lock that nobody has; False when somebody has it, and True too when it is gone already."""
    for _ in range(2):
        if _is_open(path):
            return False
        clock.sleep(SECONDS / 2)
    with suppress(FileNotFoundError):
        path.unlink()
    return True


def _is_open(path: Path) -> bool:
    """Whether a process that can be seen from here has the file open."""
    try:
        wanted = path.stat(follow_symlinks=False)
    except OSError:
        return False
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is another user's
            for descriptor in os.scandir(f"{entry.path}/fd"):
                with suppress(OSError):
                    found = os.stat(descriptor.path)  # noqa: PTH116 - thousands of them
                    if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                        return True
    return False
