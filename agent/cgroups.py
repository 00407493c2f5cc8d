"""The kernel's groups of processes (cgroups, v2 and v1): whatever is started in a group stays in it until it is dead.

A worker joins a group of its own (`join`), and so everything below it is in there too, also a process that left the
session, forked twice and threw its environment away.  `end` kills what is in a group until it is empty.  With a limit
the kernel holds the group's memory, too, and `ran_over` tells whether it had to kill for that.

Nothing here is ever needed: a machine on which no hierarchy can be written (a container's read-only /sys/fs/cgroup, an
ordinary user without a delegated subtree) has no groups, every call does nothing, and what `proc` and `process_tree`
know of trees has to do.  Groups are made beside the process that joins them, so within what was delegated to it; where
v1 and v2 are both mounted, each does what it can.  Names are the caller's; `run/groups.py` makes them.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TRIES = 3
SIGNS = ("user.delegate", "trusted.delegate")
V1_KILL = ("pids", "freezer", "memory")
"""Hierarchies of v1 in which a group is made to find its processes; systemd's own is left alone."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A folder in which groups can be made; `memory` when it can hold their memory."""

    folder: Path
    version: int
    memory: bool


@dataclass(frozen=True, slots=True)
class Places:
    """Where this process can make groups: to end what is in them, and to hold their memory.  None: nowhere."""

    kill: Parent | None = None
    memory: Parent | None = None

    def all(self) -> list[Parent]:
        """Each once."""
        return [one for one in dict.fromkeys((self.kill, self.memory)) if one is not None]

    def __str__(self) -> str:
        if self.kill is None:
            return "no control group can be made here; trees are found by session and environment"
        ends = f"control groups (v{self.kill.version}) in {self.kill.folder} end trees"
        if self.memory is None:
            return f"{ends}; memory is watched from outside"
        return f"{ends}, those (v{self.memory.version}) in {self.memory.folder} hold `limits.memory`"


def find(proc: Path = Path("/proc/self")) -> Places:
    """Where this process can make groups.  Nothing is made."""
    own = _own(proc)
    found: dict[str, Parent] = {}
    for controllers, mounted in _mounts(proc):
        if controllers is None:  # v2
            for parent in _v2(mounted, own.get("")):
                found.setdefault("v2", parent)
                if parent.memory:
                    found.setdefault("v2 memory", parent)
        else:
            for name in set(controllers).intersection(V1_KILL):
                folder = _beneath(mounted, own.get(name))
                if folder is not None and _is_ours(folder):
                    found[name] = Parent(folder, 1, memory="memory" in controllers)
    kill = next((found[name] for name in ("v2 memory", "v2", *V1_KILL) if name in found), None)
    return Places(kill, found.get("v2 memory") or found.get("memory"))


def join(name: str, places: Places, memory: int | None = None) -> bool:
    """Make the group `name`, hold its memory to so many bytes, and put this process into it; whether it is in one.

    What cannot be had is left out: a group may be refused for reasons that only the try tells.
    """
    parents = places.all() if memory is not None else places.all()[:1]
    joined = [_join(parent, name, memory if parent == places.memory else None) for parent in parents]
    return any(joined)


def end(prefix: str, places: Places, seconds: float = 5.0) -> int:
    """Kill every process but this one in the groups that begin with `prefix`, until none is left; then remove the
    groups.  How many were killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while (alive := set(_members(prefix, places)) - {os.getpid()}) and time.monotonic() < deadline:
        for group in _groups(prefix, places):
            _kill(group)
        killed |= alive
        time.sleep(0.02)
    remove(prefix, places)
    return len(killed)


def remove(prefix: str, places: Places) -> list[str]:
    """Remove the empty groups that begin with `prefix`; their names.  The kernel keeps one that has a process."""
    gone = []
    for group in _groups(prefix, places):
        for folder, _, _ in os.walk(group, topdown=False):  # ours
            with suppress(OSError):
                Path(folder).rmdir()
        if not group.exists():
            gone.append(group.name)
    return gone


def ran_over(name: str, places: Places) -> bool:
    """Whether the kernel had to kill a process of the group because its memory was used up."""
    if places.memory is None:
        return False
    group = places.memory.folder / name
    said = _text(group / ("memory.events.local" if places.memory.version == 2 else "memory.oom_control"))
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in said.splitlines())


def used(name: str, places: Places) -> int | None:
    """Bytes of memory that the group holds and that the kernel cannot drop: pages of processes, memfds, System V
    segments and files of a tmpfs.  None when this process is in no such group.

    Sources: Documentation/admin-guide/cgroup-v2.rst, `memory.stat` (anon, shmem); cgroup-v1/memory.rst (total_rss,
    total_shmem)."""
    if places.memory is None:
        return None
    group = places.memory.folder / name
    try:
        if str(os.getpid()) not in (group / "cgroup.procs").read_text().split():
            return None
        said = (group / "memory.stat").read_text()
    except OSError:
        return None
    facts = dict(line.split() for line in said.splitlines() if line.count(" ") == 1)
    names = ("anon", "shmem") if places.memory.version == 2 else ("total_rss", "total_shmem")
    return sum(int(facts.get(one, 0)) for one in names)


def machine_memory(proc: Path = Path("/proc/self")) -> int:
    """Bytes of memory that this process may ever have: the machine's, or fewer where a group above it has a limit, as
    in a container."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own = _own(proc)
    for controllers, mounted in _mounts(proc):
        if controllers is None:
            folder = _beneath(mounted, own.get(""))
            while folder is not None and folder.is_relative_to(mounted.folder):
                limit = _text(folder / "memory.max").strip()
                found += [int(limit)] if limit.isdigit() else []
                folder = folder.parent
        elif "memory" in controllers and (folder := _beneath(mounted, own.get("memory"))) is not None:
            for line in _text(folder / "memory.stat").splitlines():
                key, _, value = line.partition(" ")
                found += [int(value)] if key == "hierarchical_memory_limit" else []
    return min(found)


# --- one group -----------------------------------------------------------------------------------------------


def _join(parent: Parent, name: str, memory: int | None) -> bool:
    group = parent.folder / name
    for _ in range(TRIES):
        try:
            group.mkdir(mode=0o755, exist_ok=True)
            if memory is not None:
                _hold(parent, group, memory)
            _write(group / "cgroup.procs", "0")  # who writes it
        except FileNotFoundError:
            continue  # somebody took the group for an empty one
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return False
        return True
    return False


def _hold(parent: Parent, group: Path, memory: int) -> None:
    """Give the group its limit; without one it is still good for ending a tree."""
    with suppress(PermissionError, OSError):
        if parent.version == 1:
            _write(group / "memory.limit_in_bytes", str(memory))
        else:
            if "memory" not in _text(parent.folder / "cgroup.subtree_control").split():
                _write(parent.folder / "cgroup.subtree_control", "+memory")
            _write(group / "memory.max", str(memory))


def _kill(group: Path) -> None:
    """Kill what is in the group now: v2 does it at a stroke, unless this process is in there."""
    found = set(_members_of(group))
    if os.getpid() not in found:
        with suppress(OSError):
            _write(group / "cgroup.kill", "1")
            return
    for pid in found - {os.getpid()}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _groups(prefix: str, places: Places) -> Iterator[Path]:
    for parent in places.all():
        with suppress(OSError):
            yield from [one for one in parent.folder.iterdir() if one.name.startswith(prefix) and one.is_dir()]


def _members(prefix: str, places: Places) -> Iterator[int]:
    for group in _groups(prefix, places):
        yield from _members_of(group)


def _members_of(group: Path) -> Iterator[int]:
    """Processes in the group and below; those of another pid namespace have no number here, and are left out."""
    for folder, _, _ in os.walk(group):  # ours
        yield from (pid for pid in map(int, _text(Path(folder, "cgroup.procs")).split()) if pid)


# --- where groups can be made --------------------------------------------------------------------------------


def _own(proc: Path) -> dict[str, str]:
    """controller → the group of this process in its hierarchy; "" for v2."""
    found: dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found |= {"": path} if number == "0" else dict.fromkeys(controllers.split(","), path)
    return found


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str
    folder: Path


def _mounts(proc: Path) -> Iterator[tuple[list[str] | None, _Mount]]:
    """(controllers, None for v2; where it is mounted) of every hierarchy (proc_pid_mountinfo(5))."""
    for line in _text(proc / "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        if kind in ("cgroup", "cgroup2"):
            _, _, _, root, folder, *_ = fields.split(" ")
            place = _Mount(root, Path(folder.encode().decode("unicode_escape")))
            yield options.rpartition(" ")[2].split(",") if kind == "cgroup" else None, place


def _beneath(mounted: _Mount, own: str | None) -> Path | None:
    """The folder of the group `own`; None when that part of the hierarchy is not mounted."""
    if own is None or "/.." in own:
        return None
    root = mounted.root.rstrip("/")
    if own != root and not own.startswith(f"{root}/"):
        return None
    return mounted.folder / own[len(root) :].lstrip("/")


def _v2(mounted: _Mount, own: str | None) -> Iterator[Parent]:
    """The group of this process, and the one above: a service manager may give a subtree and put its process into a
    group of that (`DelegateSubgroup=` of systemd), since a group with processes cannot hold the memory of others."""
    folder = _beneath(mounted, own)
    if folder is not None and _is_ours(folder):
        yield Parent(folder, 2, _holds_memory(folder))
        if _is_ours(folder.parent) and _is_delegated(folder.parent):
            yield Parent(folder.parent, 2, _holds_memory(folder.parent))


def _holds_memory(folder: Path) -> bool:
    """Whether groups in this one of v2 can have a limit: the controller is handed down, or can be."""
    if "memory" in _text(folder / "cgroup.subtree_control").split():
        return True
    if "memory" not in _text(folder / "cgroup.controllers").split():
        return False
    free = not (folder / "cgroup.type").exists() or not _text(folder / "cgroup.procs").strip()  # the root may have both
    return free and os.access(folder / "cgroup.subtree_control", os.W_OK)


def _is_delegated(folder: Path) -> bool:
    """Whether the group was given away: to an ordinary user, or with the sign that systemd leaves on it.  Root may
    write into every group, also into those that are somebody else's to keep."""
    if 0 != os.geteuid() == folder.stat().st_uid:
        return True
    with suppress(OSError):
        return any(os.getxattr(folder, name) == b"1" for name in SIGNS if name in os.listxattr(folder))
    return False


def _is_ours(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never made: a group has its files from the kernel
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
