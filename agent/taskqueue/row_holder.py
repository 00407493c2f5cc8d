"""Names the process that holds a row, as the text `machine:base_dir:pid:start` (the owner), and finds out whether it is
alive.

A process with the same base_dir on the same machine is alive if it holds the flock on the task's folder, which the
kernel releases when the process dies. Whether a process on another machine or with another base_dir is alive is decided
by the lease in the row. If a process of another machine were mistaken for one of this machine, its task would be
started a second time; the opposite mistake only delays a task until its lease ends. Because the first mistake is worse,
two machines count as the same only if all their identifiers are equal.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agent import durable_files
from agent.store.configured_ledger import is_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.taskqueue.base import Row

_START_FIELD = 22  # position of the field starttime (in clock ticks since boot) in /proc/self/stat, see proc(5)


@cache
def machine() -> str:
    """12 hexadecimal digits that identify this machine since its last boot.

    The digits are a digest of machine id, boot id and host name, since no single one of these suffices: containers of
    one image have the same machine id, containers of one host the same boot id, copied virtual machines the same host
    name.
    """
    ids = [_text("/etc/machine-id") or _text("/var/lib/dbus/machine-id"), _text("/proc/sys/kernel/random/boot_id")]
    return blake2b("\0".join([*ids, hostname()]).encode(), digest_size=6).hexdigest()


def hostname() -> str:
    """The name of this host."""
    return socket.gethostname()


def is_alone(settings: Settings) -> bool:
    """Whether only one host can use the ledger that the settings name. The rows of a ledger that only one host can use
    may nevertheless have several host names, since each new container on the same volume has another name."""
    return is_local(settings.taskqueue.ledger, settings.plugin_guard)


def of_another_host(row: Row, settings: Settings) -> bool:
    """Whether the host that last worked on the task is another host that shares the ledger."""
    return not is_alone(settings) and row.hostname not in (None, hostname())


def place(base_dir: Path) -> str:
    """`machine:base_dir`, the beginning of the owner text of every process with this base_dir on this machine."""
    return f"{machine()}:{base_dir.resolve()}"


def owner(base_dir: Path) -> str:
    """The owner text of this process, `machine:base_dir:pid:start`, which no other process has."""
    return f"{place(base_dir)}:{os.getpid()}:{_started()}"


def place_of(lease_owner: str) -> str:
    """The place (`machine:base_dir`) in an owner text."""
    return lease_owner.rsplit(":", 2)[0]


def base_dir_of(lease_owner: str) -> str:
    """The base_dir in an owner text, a path on the host of that process."""
    return place_of(lease_owner).partition(":")[2]


def alive_by_lock(base_dir: Path) -> Callable[[Row], bool]:
    """A function for `requeue_dead` that finds out whether a process holds the lock of a task's folder in this
    base_dir.

    If the folder of the task is in `completed/`, the task has ended and only its row is not updated yet; the holder of
    its row counts as alive, since the task must not run again.  If the lock of a task's folder cannot be read, the
    holder counts as alive too.
    """

    def is_alive(row: Row) -> bool:
        if (base_dir / "completed" / row.uuid).is_dir():
            return True
        try:
            return durable_files.is_locked(base_dir / "running" / row.uuid / "lock")
        except OSError:
            return True

    return is_alive


def living_holder(lease_owner: str | None) -> int | None:
    """The pid in an owner text if that process is alive on this machine, also if it no longer holds the lock of the
    task's folder; otherwise None."""
    if lease_owner is None or lease_owner.partition(":")[0] != machine():
        return None
    _, pid, started = lease_owner.rsplit(":", 2)
    return int(pid) if pid.isdigit() and _started(pid) == started != "0" else None


def _started(pid: str = "self") -> str:
    stat = _text(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()
    return fields[_START_FIELD - 3] if len(fields) > _START_FIELD - 3 else "0"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
