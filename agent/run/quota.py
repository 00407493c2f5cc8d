"""How large a task's folder may get (`limits.folder_size`): its work tree, what its commands left, its own records.

Looked at before each turn and while a command runs, as often as looking is cheap.  Called by `limits.TaskLimits` and,
during a command, by `control.TaskControl`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, filetree
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
        used = filetree.disk_use(self.folder)
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
