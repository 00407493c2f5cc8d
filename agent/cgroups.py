"""Groups processes by cgroups (v2 and v1), so that every descendant of a worker can be found and killed.

A worker joins a cgroup of its own (`join`). All descendants of the worker are in the worker's cgroup, even a process
that left the session, forked twice and cleared its environment. `kill_groups` kills the processes of all groups with a
given name prefix, and returns when these groups are empty or a time limit is over. If a group has a memory limit, the
kernel enforces it, and `ran_over` returns whether the kernel killed a process of the group at that limit.

Cgroups are optional for this program. On a machine without a cgroup hierarchy that can be written (a container's
read-only /sys/fs/cgroup, an ordinary user without a delegated subtree) no groups are made, and no process is moved,
found or killed by this module; `proc` and `process_tree` then have to find the processes. A new cgroup is a child of
the present cgroup of the process that joins it, or of that cgroup's parent, and so lies in the subtree that is
delegated to the process. If cgroups v1 and v2 are both mounted, the group for killing processes and the group for the
memory limit may be in different hierarchies. `worker/process_groups.py` chooses the names of the cgroups.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.mountinfo import Mount, mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

TRIES = 3
SIGNS = ("user.delegate", "trusted.delegate")
V1_KILL = ("pids", "freezer", "memory")
"""The cgroup v1 hierarchies in which a group can find and kill its processes, in order of preference; systemd's own
hierarchy is not used."""


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """A folder in which this process can make cgroups; `memory` is True if these cgroups can have a memory limit."""

    folder: Path
    version: int
    memory: bool


@dataclass(frozen=True, slots=True)
class GroupPlaces:
    """Where this process can make cgroups: one folder for groups to kill processes, and one for groups to limit memory.

    If `kill` is None, this process cannot make cgroups; if `memory` is None, it cannot make cgroups with a memory
    limit.
    """

    kill: CgroupParent | None = None
    memory: CgroupParent | None = None

    def distinct_parents(self) -> list[CgroupParent]:
        """The folders in `kill` and in `memory` as a list, with one entry if both are the same folder."""
        return [one for one in dict.fromkeys((self.kill, self.memory)) if one is not None]

    def __str__(self) -> str:
        if self.kill is None:
            return "no control group can be made here; trees are found by session and environment"
        ends = f"control groups (v{self.kill.version}) in {self.kill.folder} end trees"
        if self.memory is None:
            return f"{ends}; memory is watched from outside"
        return f"{ends}, those (v{self.memory.version}) in {self.memory.folder} hold `limits.memory`"


def find(proc: Path = Path("/proc/self")) -> GroupPlaces:
    """Where this process can make cgroups. `find` only looks for the places of cgroups and makes no group."""
    own = _own_cgroups(proc)
    found: dict[str, CgroupParent] = {}
    for controllers, mounted in _mounts(proc):
        if controllers is None:  # the line in /proc/self/cgroup for v2 has no list of controllers
            for parent in _v2(mounted, own.get("")):
                found.setdefault("v2", parent)
                if parent.memory:
                    found.setdefault("v2 memory", parent)
        else:
            for name in set(controllers).intersection(V1_KILL):
                folder = _beneath(mounted, own.get(name))
                if folder is not None and _is_ours(folder):
                    found[name] = CgroupParent(folder, 1, memory="memory" in controllers)
    kill = next((found[name] for name in ("v2 memory", "v2", *V1_KILL) if name in found), None)
    return GroupPlaces(kill, found.get("v2 memory") or found.get("memory"))


def join(name: str, places: GroupPlaces, memory: int | None = None) -> bool:
    """Make the cgroup `name`, limit its memory to `memory` bytes, and move this process into it; returns True if the
    process is in a group.

    A cgroup hierarchy that refuses the new group is skipped, since only the attempt shows whether the group can be
    made. If the kernel refuses only the memory limit, the group is used without a limit.
    """
    parents = places.distinct_parents() if memory is not None else places.distinct_parents()[:1]
    joined = [_join(parent, name, memory if parent == places.memory else None) for parent in parents]
    return any(joined)


def kill_groups(prefix: str, places: GroupPlaces, seconds: float = 5.0) -> int:
    """Kill every process in the cgroups with a name that begins with `prefix`, except this process, until none is left
    or `seconds` are over; then remove the empty groups. Returns the number of processes that `kill_groups` killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while (alive := set(_members(prefix, places)) - {os.getpid()}) and time.monotonic() < deadline:
        for group in _groups(prefix, places):
            _kill(group)
        killed |= alive
        time.sleep(0.02)
    remove(prefix, places)
    return len(killed)


def remove(prefix: str, places: GroupPlaces) -> list[str]:
    """Remove the empty cgroups with a name that begins with `prefix`; returns the names of the removed groups.

    The kernel refuses to remove a cgroup that has a process.
    """
    gone = []
    for group in _groups(prefix, places):
        for folder, _, _ in os.walk(group, topdown=False):  # ours
            with suppress(OSError):
                Path(folder).rmdir()
        if not group.exists():
            gone.append(group.name)
    return gone


def ran_over(name: str, places: GroupPlaces) -> bool:
    """Whether the kernel killed a process of the cgroup `name` for exceeding the memory limit."""
    if places.memory is None:
        return False
    group = places.memory.folder / name
    said = _text(group / ("memory.events.local" if places.memory.version == 2 else "memory.oom_control"))
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in said.splitlines())


def any_ran_over(prefix: str, places: GroupPlaces) -> bool:
    """Whether the kernel killed a process of a cgroup with a name that begins with `prefix` for exceeding the memory
    limit."""
    parent = places.memory
    found = _groups(prefix, GroupPlaces(memory=parent)) if parent is not None else ()
    return any(ran_over(group.name, places) for group in found)


def memory_in_use(name: str, places: GroupPlaces) -> int | None:
    """The memory of the cgroup `name`, in bytes, that the kernel cannot reclaim: pages of processes, memfds, System V
    segments and files of a tmpfs. Returns None if this process is not in a cgroup `name` of a hierarchy that measures
    memory.

    The kernel's documents are Documentation/admin-guide/cgroup-v2.rst, `memory.stat` (anon, shmem), and
    cgroup-v1/memory.rst (total_rss, total_shmem)."""
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
    """The maximum bytes of memory for this process: the memory of the machine, or, if it is less, the smallest limit of
    a cgroup that contains the process, for example the limit of a container."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own = _own_cgroups(proc)
    for controllers, mounted in _mounts(proc):
        if controllers is None:
            folder = _beneath(mounted, own.get(""))
            while folder is not None and folder.is_relative_to(mounted.place):
                limit = _text(folder / "memory.max").strip()
                found += [int(limit)] if limit.isdigit() else []
                folder = folder.parent
        elif "memory" in controllers and (folder := _beneath(mounted, own.get("memory"))) is not None:
            for line in _text(folder / "memory.stat").splitlines():
                key, _, value = line.partition(" ")
                found += [int(value)] if key == "hierarchical_memory_limit" else []
    return min(found)


# --- one group -----------------------------------------------------------------------------------------------


def _join(parent: CgroupParent, name: str, memory: int | None) -> bool:
    group = parent.folder / name
    for _ in range(TRIES):
        try:
            group.mkdir(mode=0o755, exist_ok=True)
            if memory is not None:
                _limit_memory(parent, group, memory)
            _write(group / "cgroup.procs", "0")  # the kernel takes the pid 0 for the process that writes to the file
        except FileNotFoundError:
            continue  # another process removed the new cgroup, which was still empty: make it again
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return False
        return True
    return False


def _limit_memory(parent: CgroupParent, group: Path, memory: int) -> None:
    """Set the memory limit of the cgroup; if that fails, the group can still be used to kill its processes."""
    with suppress(PermissionError, OSError):
        if parent.version == 1:
            _write(group / "memory.limit_in_bytes", str(memory))
        else:
            if "memory" not in _text(parent.folder / "cgroup.subtree_control").split():
                _write(parent.folder / "cgroup.subtree_control", "+memory")
            _write(group / "memory.max", str(memory))


def _kill(group: Path) -> None:
    """Kill the processes of the cgroup, except this process. On cgroup v2 the kernel kills the whole group atomically,
    unless this process is in the group; then, and on v1, each process gets SIGKILL."""
    found = set(_members_of(group))
    if os.getpid() not in found:
        with suppress(OSError):
            _write(group / "cgroup.kill", "1")
            return
    for pid in found - {os.getpid()}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _groups(prefix: str, places: GroupPlaces) -> Iterator[Path]:
    for parent in places.distinct_parents():
        with suppress(OSError):
            yield from [one for one in parent.folder.iterdir() if one.name.startswith(prefix) and one.is_dir()]


def _members(prefix: str, places: GroupPlaces) -> Iterator[int]:
    for group in _groups(prefix, places):
        yield from _members_of(group)


def _members_of(group: Path) -> Iterator[int]:
    """The pids of the processes in the cgroup and in its child groups. Processes without a pid in this pid namespace
    are left out."""
    for folder, _, _ in os.walk(group):  # ours
        yield from (pid for pid in map(int, _text(Path(folder, "cgroup.procs")).split()) if pid)


# --- where groups can be made --------------------------------------------------------------------------------


def _own_cgroups(proc: Path) -> dict[str, str]:
    """Maps each cgroup controller to the cgroup of this process in the hierarchy of that controller; the controller of
    v2 is ""."""
    found: dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found |= {"": path} if number == "0" else dict.fromkeys(controllers.split(","), path)
    return found


def _mounts(proc: Path) -> Iterator[tuple[list[str] | None, Mount]]:
    """(controllers, mount point) of every cgroup hierarchy; for v2 the controllers are None."""
    for one in mounts(proc):
        if one.kind in ("cgroup", "cgroup2"):
            yield one.options.split(",") if one.kind == "cgroup" else None, one


def _beneath(mounted: Mount, own: str | None) -> Path | None:
    """The folder of the cgroup `own`; None if that part of the hierarchy is not mounted."""
    if own is None or "/.." in own:
        return None
    root = mounted.root.rstrip("/")
    if own != root and not own.startswith(f"{root}/"):
        return None
    return Path(mounted.place) / own[len(root) :].lstrip("/")


def _v2(mounted: Mount, own: str | None) -> Iterator[CgroupParent]:
    """The places for new cgroups in the v2 hierarchy: the cgroup of this process, and its parent group if that is
    delegated.

    A service manager may delegate a subtree of cgroups and put its process into a child of the top (`DelegateSubgroup=`
    of systemd), since a group with processes cannot limit the memory of child groups.
    """
    folder = _beneath(mounted, own)
    if folder is not None and _is_ours(folder):
        yield CgroupParent(folder, 2, _holds_memory(folder))
        if _is_ours(folder.parent) and _is_delegated(folder.parent):
            yield CgroupParent(folder.parent, 2, _holds_memory(folder.parent))


def _holds_memory(folder: Path) -> bool:
    """Whether child groups of this v2 group can have a memory limit: the memory controller is enabled, or can be."""
    if "memory" in _text(folder / "cgroup.subtree_control").split():
        return True
    if "memory" not in _text(folder / "cgroup.controllers").split():
        return False
    free = (
        not (folder / "cgroup.type").exists() or not _text(folder / "cgroup.procs").strip()
    )  # the root cgroup may have both processes and controllers
    return free and os.access(folder / "cgroup.subtree_control", os.W_OK)


def _is_delegated(folder: Path) -> bool:
    """Whether the cgroup is delegated: it belongs to an ordinary user, or systemd has marked it.

    If this process runs as root, its write permission to a cgroup does not prove delegation, since root may also write
    to groups that another service manages."""
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
    # no O_CREAT: the kernel provides every file of a cgroup
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
