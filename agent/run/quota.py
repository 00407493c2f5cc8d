"""How large a task's folder may get (`limits.folder_size`): its work tree, what its commands left, its own records.

Looked at before each turn and while a command runs, as often as looking is cheap.  Called by `limits.TaskLimits` and,
during a command, by `control.TaskControl`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock
from agent.config.kinds import size_text
from agent.values import End, Outcome

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 15.0
SHARE = 20
"""A look may take a twentieth of the time: a tree of many files is looked at less often."""


@dataclass
class FolderQuota:
    """Calling it returns the outcome when the folder is too large, None while it is not, or was looked at just now."""

    folder: Path
    limit: int | None
    next_look: float = field(default_factory=clock.monotonic)

    def __call__(self) -> Outcome | None:
        started = clock.monotonic()
        if self.limit is None or started < self.next_look:
            return None
        used = held_by(self.folder)
        now = clock.monotonic()
        self.next_look = now + max(SECONDS, SHARE * (now - started))
        if used <= self.limit:
            return None
        self.next_look = now  # it stays too large until something is removed
        return Outcome(
            End.LIMIT,
            code="limit_folder_size",
            summary=f"`limits.folder_size` is {size_text(self.limit)}; the task's folder holds {used / (1 << 20):,.0f} "
            f"MiB. Raise it in config.yaml, or leave less in the work tree, and start the task again to go on.",
        )


def held_by(folder: Path) -> int:
    """Bytes on disk of what lies below `folder`; no link is followed, a file of several names counts once."""
    total = 0
    names_of: set[tuple[int, int]] = set()
    waiting = [os.fspath(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it is gone
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    if (status.st_dev, status.st_ino) in names_of:
                        continue
                    names_of.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
