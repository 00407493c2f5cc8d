"""Ends all processes that an attempt of a task has started: they are found by a mark in their environment
(`proc.end_tree`), and by the attempt's control group if there is one (`agent/cgroups.py`).

After its claim a worker joins the group `makimono-{base_dir}-{uuid}-{attempt}`. A worker cannot remove its own group:
the supervisor removes it after the worker's end, and a later daemon removes what an earlier one left. A `solve` has no
such group; it stays in the group of its terminal.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent import cgroups, proc
from agent.config.value_kinds import memory_in_bytes, memory_text

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings


@cache
def group_places() -> cgroups.GroupPlaces:
    """The folders in which this process can make control groups; they are determined once, before the process joins a
    group."""
    return cgroups.find()


def join(settings: Settings, uuid: str, attempt: int) -> None:
    """Move this process, the worker of the attempt, into the attempt's control group (cgroup), if one can be made."""
    cgroups.join(_name(settings.base_dir, uuid, attempt), group_places(), in_bytes(settings.limits.memory))


def end_tree(base_dir: Path, uuid: str) -> None:
    """End every process of the task except this one."""
    proc.end_tree(uuid)
    cgroups.kill_groups(_name(base_dir, uuid), group_places())


def remove(base_dir: Path, uuid: str = "") -> None:
    """Remove the empty control groups of the task, or with `uuid` "" those of all tasks of this base_dir."""
    cgroups.remove(_name(base_dir, uuid), group_places())


def ran_over(base_dir: Path, uuid: str, attempt: int | None = None) -> bool:
    """Whether the kernel killed a process of the attempt because `limits.memory` was used up.

    With `attempt` None, any control group of the task counts; only the group of the last attempt still exists.
    """
    if attempt is None:
        return cgroups.any_ran_over(_name(base_dir, f"{uuid}-"), group_places())
    return cgroups.ran_over(_name(base_dir, uuid, attempt), group_places())


@cache
def machine() -> int:
    """Bytes of memory of this machine, or of the container in which this process runs if that is less."""
    return cgroups.machine_memory()


def is_whole_machine() -> bool:
    """Whether this process may use the memory of the whole machine: no container limits it."""
    return machine() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def in_bytes(limit: int | str | None) -> int | None:
    """A memory limit of the configuration, converted to bytes; None for no limit."""
    return memory_in_bytes(limit, machine()) if limit is not None else None


def memory_used(base_dir: Path, uuid: str, attempt: int) -> int | None:
    """Bytes that the attempt's control group uses and that the kernel cannot reclaim; None unless the calling process
    is in that group and the group counts memory."""
    return cgroups.memory_in_use(_name(base_dir, uuid, attempt), group_places())


def too_large(limit: int | str, used: int | None = None) -> str:
    """The sentence for a person about a task that exceeded `limits.memory`."""
    held = f"held {used / (1 << 20):,.0f} MiB together" if used else "wanted more memory than they may have"
    return (
        f"the task's processes {held}; `limits.memory` is {memory_text(limit)}. What it committed is on its branch. "
        f"Raise the limit, or make the commands smaller (fewer jobs at once), and ask for it again"
    )


def _name(base_dir: Path, uuid: str = "", attempt: int | None = None) -> str:
    place = blake2b(str(base_dir.resolve()).encode(), digest_size=4).hexdigest()
    return f"makimono-{place}-{uuid}" + ("" if attempt is None else f"-{attempt}")
