"""How much memory a task and each of its commands may hold: `limits.memory` and `sandbox.limits.memory`.

Where the worker is in a control group that holds memory, the kernel knows what the group holds, whatever it is: pages
of processes, memfds, System V segments, files of a tmpfs.  Elsewhere this process counts them from /proc (`trees.py`)
a few times a second; there a System V segment counts while a process has it mapped.  A command over its limit is
ended, and the model is told; a task over its own ends.  Called by `TaskRun` around each command, and by `limits` and
`control` for the task.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, trees
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
    next_look: float = field(default_factory=clock.monotonic)

    def used(self, *, below: bool = True) -> int:
        """Bytes that this process and everything below it hold now; without `below`, while there is nothing."""
        held = groups.used(self.settings.base_dir, self.uuid, self.attempt)
        return trees.memory_of(os.getpid(), below=below) if held is None else held

    def __call__(self) -> Outcome | None:
        wanted = self.settings.limits.memory
        limit = groups.in_bytes(wanted)
        if wanted is None or limit is None or groups.places().memory is not None:
            return None
        used = self._look()
        if used is None or used <= limit:
            return None
        return Outcome(End.LIMIT, code="memory", summary=groups.too_large(wanted, used))

    def _look(self) -> int | None:
        """What is held; None when it was looked at just now."""
        started = clock.monotonic()
        if started < self.next_look:
            return None
        used = self.used()
        now = clock.monotonic()
        self.next_look = now + max(SECONDS, SHARE * (now - started))
        return used

    def command(self) -> CommandMemory:
        """The watch over a command that is about to start."""
        return CommandMemory(self, groups.in_bytes(self.settings.sandbox.limits.memory))


@dataclass
class CommandMemory:
    """Calling it says whether the command holds too much; `why` is then the reason, for the model."""

    task: TaskMemory
    limit: int | None
    why: str = ""
    before: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None:
            self.before = self.task.used(below=False)
            self.task.next_look = clock.monotonic() + SECONDS

    def __call__(self) -> bool:
        if self.limit is None or self.why:
            return bool(self.why)
        used = self.task._look()  # noqa: SLF001 - one clock for both
        if used is not None and (held := used - self.before) > self.limit:
            most = memory_text(self.task.settings.sandbox.limits.memory)
            self.why = (
                f"ended because it held {held >> 20:,} MiB of memory, files in /tmp and /dev/shm among them; "
                f"`sandbox.limits.memory` is {most}. Use fewer jobs at once, or less data"
            )
        return bool(self.why)


def both(*asked: Callable[[], Outcome | None]) -> Callable[[], Outcome | None]:
    """The first outcome that one of them says."""
    return lambda: next((outcome for one in asked if (outcome := one()) is not None), None)
