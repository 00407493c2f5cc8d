"""Ends whatever a task's attempt has started: by its mark (`proc.end_tree`), and by its control group where there is
one (`agent/cgroups.py`).

A worker joins the group `makimono-{base_dir}-{uuid}-{attempt}` after its claim.  It cannot remove it itself: the
supervisor does when it has ended, and a later daemon what an earlier one left.  Only a worker is in a group; `solve`
stays where its terminal put it.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent import cgroups, proc
from agent.config.kinds import memory_in_bytes, memory_text

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings


@cache
def places() -> cgroups.Places:
    """Where this process can make groups; looked for once, before it joins one."""
    return cgroups.find()


def join(settings: Settings, uuid: str, attempt: int) -> None:
    """Put this process, the attempt's worker, into its group."""
    cgroups.join(_name(settings.base_dir, uuid, attempt), places(), in_bytes(settings.limits.memory))


def end_tree(base_dir: Path, uuid: str) -> None:
    """End every process of the task but this one."""
    proc.end_tree(uuid)
    cgroups.end(_name(base_dir, uuid), places())


def remove(base_dir: Path, uuid: str = "") -> None:
    """Remove the groups of the task, or of every one of this base_dir, in which nothing runs any more."""
    cgroups.remove(_name(base_dir, uuid), places())


def ran_over(base_dir: Path, uuid: str, attempt: int) -> bool:
    """Whether the kernel ended a process of the attempt because `limits.memory` was used up."""
    return cgroups.ran_over(_name(base_dir, uuid, attempt), places())


@cache
def machine() -> int:
    """Bytes of memory that this machine, or the container that this process runs in, has."""
    return cgroups.machine_memory()


def in_bytes(limit: int | str | None) -> int | None:
    """A memory limit of the configuration in bytes."""
    return memory_in_bytes(limit, machine()) if limit is not None else None


def used(base_dir: Path, uuid: str, attempt: int) -> int | None:
    """Bytes that the attempt's group holds; None where no group of this process tells."""
    return cgroups.used(_name(base_dir, uuid, attempt), places())


def too_large(limit: int | str, used: int | None = None) -> str:
    """What a person is told of a task that is too large for this machine."""
    held = f"held {used / (1 << 20):,.0f} MiB together" if used else "wanted more memory than they may have"
    return (
        f"the task's processes {held}; `limits.memory` is {memory_text(limit)}. What it committed is on its branch. "
        f"Raise the limit, or make the commands smaller (fewer jobs at once), and put the label on again"
    )


def _name(base_dir: Path, uuid: str = "", attempt: int | None = None) -> str:
    place = blake2b(str(base_dir.resolve()).encode(), digest_size=4).hexdigest()
    return f"makimono-{place}-{uuid}" + ("" if attempt is None else f"-{attempt}")
