"""How much memory a task and each of its commands may hold: `limits.memory` and `sandbox.limits.memory`.

Where the worker is in a control group that holds memory, the kernel knows what the group holds, whatever it is: pages
of processes, memfds, System V segments, files of a tmpfs.  Elsewhere this process counts them from /proc
(`process_tree.py`) a few times a second; there a System V segment counts while a process has it mapped.  A command over
its limit is ended, and the model is told; a task over its own ends.  Called by `TaskRun` around each command, and by
`limits` and `control` for the task.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, process_tree
from agent.config.kinds import memory_text
from agent.run import groups
from agent.values import End, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings

SECONDS = 0.2
SHARE = 20
"""A look may take a twentieth of the time."""


@dataclass
class TaskMemory:
    """The memory of one attempt.  Calling it returns the outcome when the task holds too much and no kernel says so."""

    settings: Settings
    uuid: str
    attempt: int
    held: int = 0
    """Bytes at the newest look: of the group, or of what runs below this process."""
    next_look: float = field(default_factory=clock.monotonic)

    def __call__(self) -> Outcome | None:
        wanted = self.settings.limits.memory
        limit = groups.in_bytes(wanted)
        if wanted is None or limit is None or groups.places().memory is not None or not self.look():
            return None
        used = self.held + process_tree.memory_of(os.getpid(), below=False)
        if used <= limit:
            return None
        return Outcome(End.LIMIT, code="memory", summary=groups.too_large(wanted, used))

    def look(self) -> bool:
        """Look what is held, unless that was done just now; whether it was."""
        started = clock.monotonic()
        if started < self.next_look:
            return False
        held = groups.used(self.settings.base_dir, self.uuid, self.attempt)
        self.held = process_tree.memory_of(os.getpid(), itself=False) if held is None else held
        now = clock.monotonic()
        self.next_look = now + max(SECONDS, SHARE * (now - started))
        return True

    def command(self) -> CommandMemory:
        """The watch over a command that is about to start."""
        limit = groups.in_bytes(self.settings.sandbox.limits.memory)
        if limit is not None:  # nothing runs below this process yet
            self.held = groups.used(self.settings.base_dir, self.uuid, self.attempt) or 0
            self.next_look = max(self.next_look, clock.monotonic() + SECONDS)
        return CommandMemory(self, limit, self.held)


@dataclass
class CommandMemory:
    """Calling it says whether the command holds too much; `why` is then the reason, for the model."""

    task: TaskMemory
    limit: int | None
    before: int
    why: str = ""

    def __call__(self) -> bool:
        if self.limit is None or self.why:
            return bool(self.why)
        self.task.look()
        if (held := self.task.held - self.before) > self.limit:
            most = memory_text(self.task.settings.sandbox.limits.memory)
            self.why = (
                f"ended because it held {held >> 20:,} MiB of memory, files in /tmp and /dev/shm among them; "
                f"`sandbox.limits.memory` is {most}. Use fewer jobs at once, or less data"
            )
        return bool(self.why)


def both(*asked: Callable[[], Outcome | None]) -> Callable[[], Outcome | None]:
    """The first outcome that one of them says."""
    return lambda: next((outcome for one in asked if (outcome := one()) is not None), None)
