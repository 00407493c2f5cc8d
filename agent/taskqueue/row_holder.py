"""The identity of the process that holds a row, `machine:base_dir:pid:start`, and whether that process is alive.

For a holder of the same base_dir on the same machine the flock on the task's folder decides; the kernel releases it
when the holder dies.  For every other holder the lease decides.  If the row of another machine were taken for one of
this machine, its task would be started twice; to take a row of this machine for another machine's costs only the length
of a lease.  So two machines count as the same only if all of their identifiers agree.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agent import durable_files
from agent.store.ledgers import is_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.taskqueue.base import Row

_START_FIELD = 22  # position of the start time in /proc/self/stat, in clock ticks since boot (proc(5))


@cache
def machine() -> str:
    """12 hexadecimal digits that identify this machine since its last boot.

    The digits are a digest of machine id, boot id and host name: containers of one image have the same machine id,
    containers of one host the same boot id, copied virtual machines the same host name.
    """
    ids = [_text("/etc/machine-id") or _text("/var/lib/dbus/machine-id"), _text("/proc/sys/kernel/random/boot_id")]
    return blake2b("\0".join([*ids, hostname()]).encode(), digest_size=6).hexdigest()


def hostname() -> str:
    """The name of this host."""
    return socket.gethostname()


def is_alone(settings: Settings) -> bool:
    """Whether only one host can use the ledger.  tasks.db is opened by one kernel, but under different host names: a
    new container on the same volume has another name each time."""
    return is_local(settings.taskqueue.ledger, settings.plugin_guard)


def of_another_host(row: Row, settings: Settings) -> bool:
    """Whether another host that shares the ledger was the last to work on the task."""
    return not is_alone(settings) and row.hostname not in (None, hostname())


def place(base_dir: Path) -> str:
    """`machine:base_dir`, the beginning of every owner of this base_dir."""
    return f"{machine()}:{base_dir.resolve()}"


def owner(base_dir: Path) -> str:
    """The text that names this process as the holder of a row; it is unique among all processes."""
    return f"{place(base_dir)}:{os.getpid()}:{_started()}"


def place_of(lease_owner: str) -> str:
    """The place that an owner's text contains."""
    return lease_owner.rsplit(":", 2)[0]


def base_dir_of(lease_owner: str) -> str:
    """The base_dir that an owner's text contains, as a path on the owner's host."""
    return place_of(lease_owner).partition(":")[2]


def alive_by_lock(base_dir: Path) -> Callable[[Row], bool]:
    """A function for `requeue_dead` that tells whether a process holds the lock of a row of this base_dir.

    A task with a folder in `completed/` has ended: only its row is not updated yet, and it must not run again, so it
    counts as alive.  A row with a lock that cannot be read counts as alive too.
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
    """The pid that an owner's text contains, if that process is alive on this machine, whether it holds the lock of the
    folder or not."""
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
