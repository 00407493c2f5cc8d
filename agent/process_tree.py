"""Finds the processes below a process of this program in /proc, measures their memory, and stops, kills or reaps them.

A worker is a subreaper (`proc.become_subreaper`), so all processes that its commands start remain below the worker,
even after setsid or a double fork; `end_strays` kills the processes that a command left running.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent import proc
from agent.mountinfo import mounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = os.sysconf("SC_PAGE_SIZE")
INODE = 1024
"""The bytes that an empty file on a tmpfs takes: its inode and its name."""
_PPID, _RSS = 1, 1  # positions in /proc/PID/stat (after the name) and statm


Parents = dict[int, list[int]]
"""Maps a pid to the pids of its child processes."""


def parents() -> Parents:
    """All processes of this machine, by their parents.

    `parents` reads one file for each process, so a caller that needs the result several times should call `parents`
    once.
    """
    found: Parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - only the names of the thousands of entries in /proc are needed
        if name.isdigit() and (fields := _stat(name)):
            found.setdefault(int(fields[_PPID]), []).append(int(name))
    return found


def descendants(pid: int, known: Parents | None = None) -> list[int]:
    """Every process below the process `pid`, without `pid` itself; `known` is an earlier result of `parents`, by
    default /proc is read now."""
    by_parent = parents() if known is None else known
    found: list[int] = []
    waiting, seen = [pid], {pid}
    while waiting:
        below = [one for one in by_parent.get(waiting.pop(), []) if one not in seen]
        found += below
        waiting += below
        seen.update(below)
    return found


def freeze(pid: int, seconds: float = 2.0) -> bool:
    """Stop `pid` and all processes below it (SIGSTOP), so that none of them does anything until `thaw`.

    Processes may start others while they are being stopped, so `freeze` repeats until all are stopped; returns False if
    that takes longer than `seconds`.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        running = [one for one in (pid, *descendants(pid)) if _stat(str(one))[:1] not in ([], [b"T"], [b"Z"], [b"X"])]
        if not running:
            return True
        _signal_all(running, signal.SIGSTOP)
        time.sleep(0.002)
    return False


def thaw(pid: int) -> None:
    """Let the process `pid` and all processes below `pid` continue after `freeze`."""
    _signal_all((pid, *descendants(pid)), signal.SIGCONT)


def _signal_all(pids: Iterable[int], sig: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)


def memory_of(
    pid: int, *, itself: bool = True, below: bool = True, known: Parents | None = None, enough: int = 0
) -> int:
    """The memory in bytes of the process `pid` (if `itself`) and of all processes below it (if `below`, as in
    `descendants`).

    Shared pages count proportionally (PSS) in the memory of processes. A result of `memory_of` that is at most `enough`
    may be too high, since it counts a shared page once for each process (RSS); computing it takes a tenth of the time.

    Files in memory also count as memory of processes, mapped or not: those without a name (memfd_create(2)), and those
    of a tmpfs that only the measured processes see, such as the /tmp of a sandbox. For a process that cannot be read (a
    command of another user) all resident pages count.
    """
    files: dict[tuple[int, int], int] = {}
    mounts: dict[str, str] = {}  # mount namespace → one process in this namespace
    processes = (*((pid,) if itself else ()), *(descendants(pid, known) if below else ()))
    for one in processes:
        files |= _nameless(one)
        with suppress(OSError):
            mounts.setdefault(os.readlink(f"/proc/{one}/ns/mnt"), str(one))  # noqa: PTH115 - `os.readlink` is faster than pathlib, and runs for many processes
    with suppress(OSError):
        mounts.pop(os.readlink("/proc/self/ns/mnt"), None)  # noqa: PTH115
    kept = sum(files.values()) + (sum(_in_memory(mounts.values()).values()) if mounts else 0)
    if enough and (most := kept + sum(map(_resident, processes))) <= enough:
        return most
    held = [_memory(one) for one in processes]
    own, shared = sum(here for here, _ in held), sum(mapped for _, mapped in held)
    # mapped pages in memory are usually pages of the files that `kept` counts, so only the larger number is added
    return own + max(shared, kept)


def kernel_memory() -> int | None:
    """Bytes that the kernel of this machine uses and cannot reclaim (socket and pipe buffers, page tables, semaphores
    and the like); None if unknown.  These bytes of the kernel are in no result of `memory_of`.

    The result of `kernel_memory` is the total memory minus free memory, memory of processes, of files, and reclaimable
    memory (proc_meminfo(5))."""
    try:
        lines = Path("/proc/meminfo").read_bytes().splitlines()
        facts = {name: int(rest.split()[0]) for name, _, rest in (line.partition(b":") for line in lines)}
        others = (b"MemFree", b"Buffers", b"Cached", b"SwapCached", b"AnonPages", b"SReclaimable")
        return (facts[b"MemTotal"] - sum(facts[name] for name in others)) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal (SIGSTOP) or a debugger, so that its silence does not mean that it
    hangs."""
    return _stat(str(pid))[:1] in ([b"T"], [b"t"])


def reap_orphans() -> int:
    """Reap dead children that no code waits for: orphans of commands, which became children of this subreaper.

    Children of `proc.run`, and the fork server and resource tracker of `multiprocessing`, are left to the code that
    waits for them. Returns the number of dead children that were reaped.
    """
    if not proc.has_children() or not proc.reaps():
        return 0
    dead = [pid for pid in children() if _stat(str(pid))[:1] == [b"Z"]]
    count = 0
    for pid in _unattended(dead):
        with suppress(ChildProcessError):
            count += os.waitpid(pid, os.WNOHANG)[0] == pid
    return count


def end_strays(spared: Iterable[int] = (), seconds: float = 5.0) -> int:
    """Kill the processes that foreign commands of this process left running, in any session and with any environment.

    Returns the number of processes that were killed. An orphan that a foreign command left is now a child of this
    process, a subreaper. The session of an orphan distinguishes it from children that this process started itself: a
    command never runs in the session of this process, and a process cannot join a session again. `spared` are children
    that existed before the foreign commands were started (`children`); they are not killed. `end_strays` must be called
    while no foreign command runs.
    """
    if not proc.has_children() or not proc.reaps():
        return 0
    own, killed, spared = os.getsid(0), set(), set(spared)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = set(children()).difference(spared)
        if not (strays := _unattended(pid for pid in found if _session(pid) not in (None, own))):
            break
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            proc.wait_gone(pid, 0.05)  # the children of a dead process become children of this one
    return len(killed)


def _session(pid: int) -> int | None:
    """The session id of a process; None if the process is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def children() -> list[int]:
    """The pids of the children of every thread of this process, including orphans that this process adopted."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - only the names of the entries are needed
        with suppress(OSError):
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split())
    return found


def _unattended(found: Iterable[int]) -> set[int]:
    """The processes in `found` that no code of this process waits for.

    `_unattended` must be called after the children in `found` were listed: by then, the code that started a child in
    the list is registered as waiting for it.
    """
    return set(found) - proc.waited() - _of_multiprocessing()


def _of_multiprocessing() -> set[int]:
    """The pids of the fork server and of the resource tracker of `multiprocessing`, which the standard library starts
    and waits for."""
    import multiprocessing.forkserver as server
    import multiprocessing.resource_tracker as tracker

    ours = (
        getattr(server._forkserver, "_forkserver_pid", None),  # noqa: SLF001 - no public attribute of the fork server has the pid
        getattr(tracker._resource_tracker, "_pid", None),  # noqa: SLF001
    )
    return {pid for pid in ours if pid is not None}


def _memory(pid: int) -> tuple[int, int]:
    """(proportional memory without files in memory, mapped pages of files in memory, also proportional) of a process in
    bytes; (all resident pages, 0) if the proportional memory (PSS) cannot be read."""
    with suppress(OSError):
        facts = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()[1:])
        shared = int(facts.get(b"Pss_Shmem:", 0)) << 10
        return (int(facts[b"Pss:"]) << 10) - shared, shared
    return _resident(pid), 0


def _resident(pid: int) -> int:
    """Bytes of all resident pages of a process, shared ones included."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[_RSS]) * PAGE
    return 0


@cache
def _device_of_nameless() -> int:
    """The device number that the kernel uses for files without a name in memory (memfds)."""
    descriptor = os.memfd_create("makimono", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _nameless(pid: int) -> dict[tuple[int, int], int]:
    """Maps (device, inode) to bytes, for the files without a name in memory (memfds) that a process has open."""
    found = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - only the names of the descriptors are needed
            with suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                if status.st_dev == _device_of_nameless():
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def _in_memory(pids: Iterable[str]) -> dict[str, int]:
    """Maps a device to bytes, for each file system in memory that one of the processes `pids` sees and this process
    does not: the bytes of all its files, and INODE bytes more for each file."""
    known = {device for device, _ in _memory_mounts("self")}
    found: dict[str, int] = {}
    for pid in pids:
        for device, place in _memory_mounts(pid):
            if device not in known:
                with suppress(OSError):
                    root = f"/proc/{pid}/root{place}"
                    number = os.stat(root).st_dev  # noqa: PTH116
                    if (
                        f"{os.major(number)}:{os.minor(number)}" == device
                    ):  # skips a mount point that another file system covers
                        status = os.statvfs(root)
                        files = max(0, status.f_files - status.f_ffree)
                        found[device] = (status.f_blocks - status.f_bfree) * status.f_frsize + files * INODE
    return found


def _memory_mounts(pid: str) -> Iterator[tuple[str, str]]:
    """(device, mount point) of each tmpfs that a process sees (proc_pid_mountinfo(5))."""
    return ((one.device, one.place) for one in mounts(Path(f"/proc/{pid}")) if one.kind == "tmpfs")


def _stat(pid: str) -> list[bytes]:
    """The fields of /proc/{pid}/stat after the name of the process; [] if the process is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(descriptor, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(descriptor)
