"""What /proc tells of the processes below one of ours: who they are, how much memory they hold, which of them are dead.

A worker is a subreaper (`proc.become_subreaper`), so that whatever its commands start, by setsid or by forking twice,
stays below it.  Nothing is ended here; `proc` does that.  Linux only: elsewhere there is no process to be seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agent import proc

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


def memory_of(pid: int) -> int:
    """Bytes that `pid` and everything below it hold: of pages that several processes share, each has its part (PSS).

    Where that may not be looked at (a command of another user), what is resident counts whole.
    """
    return sum(_memory(one) for one in (pid, *descendants(pid)))


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
    dead = [pid for pid in _children() if _stat(str(pid))[:1] == [b"Z"]]
    count = 0
    for pid in set(dead) - proc.waited() - _of_multiprocessing():  # who waits is asked last: nobody starts in between
        with suppress(ChildProcessError):
            count += os.waitpid(pid, os.WNOHANG)[0] == pid
    return count


def _children() -> list[int]:
    """Children of every thread of this process."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - names only
        with suppress(OSError):
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split())
    return found


def _of_multiprocessing() -> set[int]:
    """Processes that the standard library itself started and waits for."""
    import multiprocessing.forkserver as server
    import multiprocessing.resource_tracker as tracker

    ours = (
        getattr(server._forkserver, "_forkserver_pid", None),  # noqa: SLF001 - nothing public tells
        getattr(tracker._resource_tracker, "_pid", None),  # noqa: SLF001
    )
    return {pid for pid in ours if pid is not None}


def _memory(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[_RSS]) * PAGE
    return 0


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
