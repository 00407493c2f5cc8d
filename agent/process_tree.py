"""What /proc tells of the processes below one of ours: who they are, how much memory they hold, which of them are dead.

A worker is a subreaper (`proc.become_subreaper`), so that whatever its commands start, by setsid or by forking twice,
stays below it, and `end_strays` ends what is left of them.  Linux only: elsewhere there is no process to be seen.
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = os.sysconf("SC_PAGE_SIZE")
_PPID, _RSS = 1, 1  # of the fields after the name in stat, and of statm


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, without itself."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names, thousands of times
        if name.isdigit() and (fields := _stat(name)):
            children.setdefault(int(fields[_PPID]), []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


def memory_of(pid: int, *, itself: bool = True, below: bool = True) -> int:
    """Bytes that `pid` `itself` and everything `below` it hold: of pages that several processes share, each has its
    part (PSS).

    Files that live in memory count too, mapped or not: those that have no name (memfd_create(2)) and those of a tmpfs
    that only these processes see, as a sandbox's /tmp.  Where a process may not be looked at (a command of another
    user), what is resident counts whole.
    """
    own, shared = 0, 0
    files: dict[tuple[int, int], int] = {}
    mounts: dict[str, str] = {}  # mount namespace → a process in it
    for one in (*((pid,) if itself else ()), *(descendants(pid) if below else ())):
        here, mapped = _memory(one)
        own, shared = own + here, shared + mapped
        files |= _nameless(one)
        with suppress(OSError):
            mounts.setdefault(os.readlink(f"/proc/{one}/ns/mnt"), str(one))  # noqa: PTH115 - many times
    with suppress(OSError):
        mounts.pop(os.readlink("/proc/self/ns/mnt"), None)  # noqa: PTH115
    kept = sum(files.values()) + (sum(_in_memory(mounts.values()).values()) if mounts else 0)
    return own + max(shared, kept)  # what is mapped of a file in memory is one of these files, as a rule


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process (SIGSTOP, a debugger): it waits, and does not hang."""
    return _stat(str(pid))[:1] in ([b"T"], [b"t"])


def reap_orphans() -> int:
    """Collect dead children that nobody waits for: what commands left behind, inherited by a subreaper.

    Children that `proc.run` waits for, and those of `multiprocessing`, are left to them; a process that is no subreaper
    inherits none.  Returns how many.
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
    """Kill what foreign commands of this process left behind, whatever became of its session and environment, until
    nothing is left; returns how many processes were killed.

    A process whose parents are dead is a child of this subreaper.  It is told from a child that this process itself
    started by its session: a command never runs in ours, and nobody comes back into one.  `spared` are children that
    were there before the commands (`children`).  Call it while no foreign command runs.
    """
    if not proc.has_children() or not proc.reaps():
        return 0
    own, killed = os.getsid(0), set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = set(children()).difference(spared)
        if not (strays := _unattended(pid for pid in found if _session(pid) not in (None, own))):
            break
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            proc.wait_gone(pid, 0.05)  # then what it has started is a child of this process
    return len(killed)


def _session(pid: int) -> int | None:
    """The session of a process; None for one that is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def children() -> list[int]:
    """Children of every thread of this process, orphans that it inherited among them."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - names only
        with suppress(OSError):
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split())
    return found


def _unattended(found: Iterable[int]) -> set[int]:
    """Those that nobody waits for.  Asked after they were found: whoever started one before waits for it by now."""
    return set(found) - proc.waited() - _of_multiprocessing()


def _of_multiprocessing() -> set[int]:
    """Processes that the standard library itself started and waits for."""
    import multiprocessing.forkserver as server
    import multiprocessing.resource_tracker as tracker

    ours = (
        getattr(server._forkserver, "_forkserver_pid", None),  # noqa: SLF001 - nothing public tells
        getattr(tracker._resource_tracker, "_pid", None),  # noqa: SLF001
    )
    return {pid for pid in ours if pid is not None}


def _memory(pid: int) -> tuple[int, int]:
    """(bytes of its own and of files on a disk; bytes that it has mapped of memory that can be shared)."""
    with suppress(OSError):
        facts = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()[1:])
        shared = int(facts.get(b"Pss_Shmem:", 0)) << 10
        return (int(facts[b"Pss:"]) << 10) - shared, shared
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[_RSS]) * PAGE, 0
    return 0, 0


@cache
def _device_of_nameless() -> int:
    """The device that the kernel keeps memfds on."""
    descriptor = os.memfd_create("makimono", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _nameless(pid: int) -> dict[tuple[int, int], int]:
    """(device, inode) → bytes, of the memfds that a process has open."""
    found = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names only
            with suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
                if status.st_dev == _device_of_nameless():
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def _in_memory(pids: Iterable[str]) -> dict[str, int]:
    """device → bytes, of the file systems in memory that these processes see and this one does not."""
    known = {device for device, _ in _memory_mounts("self")}
    found: dict[str, int] = {}
    for pid in pids:
        for device, place in _memory_mounts(pid):
            if device not in known:
                with suppress(OSError):
                    status = os.statvfs(f"/proc/{pid}/root{place}")
                    found[device] = (status.f_blocks - status.f_bfree) * status.f_frsize
    return found


def _memory_mounts(pid: str) -> Iterator[tuple[str, str]]:
    """(device, place) of each tmpfs that a process sees (proc_pid_mountinfo(5))."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "replace").splitlines():
            fields, _, rest = line.partition(" - ")
            if rest.startswith("tmpfs "):
                _, _, device, _, place, *_ = fields.split(" ")
                yield device, place.encode().decode("unicode_escape")


def _stat(pid: str) -> list[bytes]:
    """The fields of /proc/{pid}/stat after the name; [] for a process that is gone."""
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
