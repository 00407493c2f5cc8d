"""Limits the memory of a task and of each of its commands: `limits.memory` and `sandbox.limits.memory`.

In a control group with a memory controller, the kernel counts all memory of the group: that of processes, memfds,
System V segments, and files in a tmpfs.  Without a control group that counts memory, this process sums up the memory of
its processes from /proc (`process_tree.py`) a few times a second; a System V segment then counts only while a process
has it mapped.

Kernel memory that a command uses (socket buffers, page tables, semaphores) belongs to no process in /proc.  So if this
process is in no container, the growth of the machine's kernel memory since the command started counts as memory of the
command.  A command over its limit is killed, and the model gets the reason; a task over its limit is ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, proc, process_tree
from agent.config.value_kinds import memory_text
from agent.values import End, Outcome
from agent.worker import process_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings

SECONDS = 0.2
KERNEL_NOISE = 256 << 20
"""The number of bytes by which the kernel's own memory may grow for other reasons than the command."""

SHARE = 20
"""Measurements of memory take at most 1/SHARE of the time."""


@dataclass
class TaskMemory:
    """Measures the memory of one attempt. A call returns an outcome if it measures that the task uses more than
    `limits.memory`, else None. A call measures nothing if the last measurement was just before, if there is no limit,
    or if a control group enforces the limit."""

    settings: Settings
    uuid: str
    attempt: int
    held: int = 0
    """Bytes at the newest measurement: of the control group, or of the processes below this one."""
    kernel: int | None = None
    """Bytes of the machine's kernel memory at the newest measurement; None if they cannot be attributed to this
    task."""
    next_look: float = field(default_factory=clock.monotonic)

    def __call__(self) -> Outcome | None:
        wanted = self.settings.limits.memory
        limit = process_groups.in_bytes(wanted)
        if wanted is None or limit is None or process_groups.group_places().memory is not None or not self.measure():
            return None
        used = self.held + process_tree.memory_of(os.getpid(), below=False)
        if used <= limit:
            return None
        return Outcome(End.LIMIT, code="memory", summary=process_groups.too_large(wanted, used))

    def measure(self) -> bool:
        """Measure the task's memory, unless that was done just before; returns whether it was measured."""
        started = clock.monotonic()
        if started < self.next_look:
            return False
        held = process_groups.memory_used(self.settings.base_dir, self.uuid, self.attempt)
        self.held = process_tree.memory_of(os.getpid(), itself=False) if held is None else held
        self.kernel = _of_the_kernel()
        now = clock.monotonic()
        self.next_look = now + max(SECONDS, SHARE * (now - started))
        return True

    def ran_over(self) -> bool:
        """Whether the kernel has killed a process of the attempt because its control group used too much memory."""
        return process_groups.ran_over(self.settings.base_dir, self.uuid, self.attempt)

    def watch_command(self) -> CommandMemory:
        """Make a monitor for a command that is about to start."""
        limit = process_groups.in_bytes(self.settings.sandbox.limits.memory)
        if limit is not None:
            held = process_groups.memory_used(self.settings.base_dir, self.uuid, self.attempt)
            if held is None:  # before the command, only MCP servers can run below this process
                held = process_tree.memory_of(os.getpid(), itself=False) if proc.has_children() else 0
            self.held = held
            self.next_look = max(self.next_look, clock.monotonic() + SECONDS)
        self.kernel = None if limit is None else _of_the_kernel()
        return CommandMemory(self, limit, self.held, self.kernel)


@dataclass
class CommandMemory:
    """Monitors the memory of one command.  A call returns whether the command uses too much memory; `why` is the reason
    for the model."""

    task: TaskMemory
    limit: int | None
    before: int
    kernel: int | None = None
    """Bytes of kernel memory at the start of the command; None if they are not counted."""
    why: str = ""

    def __call__(self) -> bool:
        if self.limit is None or self.why:
            return bool(self.why)
        self.task.measure()
        grown = 0 if self.kernel is None or self.task.kernel is None else self.task.kernel - self.kernel
        if (held := self.task.held - self.before + max(0, grown - KERNEL_NOISE)) > self.limit:
            most = memory_text(self.task.settings.sandbox.limits.memory)
            self.why = (
                f"ended because it held {held >> 20:,} MiB of memory, files in /tmp and /dev/shm, sockets and "
                f"tables of the kernel among them; `sandbox.limits.memory` is {most}. "
                "Use fewer jobs at once, or less data"
            )
        return bool(self.why)


@dataclass
class ServerMemory:
    """Monitors the memory of an MCP server.  A call returns whether the server uses too much memory; if it does, `why`
    is the reason.

    `pid` is the topmost process of the server, 0 before the server has started.
    """

    settings: Settings
    pid: int = 0
    why: str = ""
    next_look: float = field(default_factory=clock.monotonic)

    def __call__(self) -> bool:
        limit = process_groups.in_bytes(self.settings.sandbox.limits.memory)
        started = clock.monotonic()
        if self.why or limit is None or not self.pid or started < self.next_look:
            return bool(self.why)
        held = process_tree.memory_of(self.pid, enough=limit)
        now = clock.monotonic()
        self.next_look = now + max(5 * SECONDS, SHARE * (now - started))
        if held > limit:
            most = memory_text(self.settings.sandbox.limits.memory)
            self.why = f"it held {held >> 20:,} MiB of memory; `sandbox.limits.memory` is {most}"
        return bool(self.why)


def _of_the_kernel() -> int | None:
    """The machine's kernel memory; None in a container, where it depends on other processes too."""
    return process_tree.kernel_memory() if process_groups.is_whole_machine() else None


def first_outcome(*asked: Callable[[], Outcome | None]) -> Callable[[], Outcome | None]:
    """A function that calls the given functions in order and returns the first outcome that one of them returns."""
    return lambda: next((outcome for one in asked if (outcome := one()) is not None), None)
