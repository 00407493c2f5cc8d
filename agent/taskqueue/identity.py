"""Who holds a row: `machine:base_dir:pid:start`, and whether such a holder lives.

A holder of the same base_dir on the same machine is judged by the flock on its folder, which the kernel frees at its
death; every other one by its lease.  To take a stranger's row for one of ours would start a task twice, while the
opposite costs one lease's length; so a machine is only the same one when everything that tells machines apart agrees.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from agent import disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.taskqueue.base import Row

_START_FIELD = 22  # of /proc/self/stat (proc(5)): start time in clock ticks since boot


@cache
def machine() -> str:
    """12 hex digits: this machine since its last boot.

    Machine id, boot id and host name together: containers of one image share the first, containers of one host the
    second, copied virtual machines the third.
    """
    ids = [_text("/etc/machine-id") or _text("/var/lib/dbus/machine-id"), _text("/proc/sys/kernel/random/boot_id")]
    return blake2b("\0".join([*ids, hostname()]).encode(), digest_size=6).hexdigest()


def hostname() -> str:
    """The name of this host."""
    return socket.gethostname()


def of_another_host(row: Row) -> bool:
    """Whether another host that shares the ledger worked on the task last."""
    return row.hostname not in (None, hostname())


def place(base_dir: Path) -> str:
    """`machine:base_dir`, the beginning of every owner of this base_dir."""
    return f"{machine()}:{base_dir.resolve()}"


def owner(base_dir: Path) -> str:
    """This process as the holder of a row; no other one, before or after, is called the same."""
    return f"{place(base_dir)}:{os.getpid()}:{_started()}"


def place_of(lease_owner: str) -> str:
    """The place in an owner."""
    return lease_owner.rsplit(":", 2)[0]


def base_dir_of(lease_owner: str) -> str:
    """The base_dir in an owner, as it is called on its host."""
    return place_of(lease_owner).partition(":")[2]


def alive_by_lock(base_dir: Path) -> Callable[[Row], bool]:
    """Whether somebody holds the lock of a row of this base_dir, for `requeue_dead`.

    A folder that lies in `completed/` already has ended: only its row is late, and is not to run again.  One whose lock
    cannot be looked at is not taken for dead.
    """

    def is_alive(row: Row) -> bool:
        if (base_dir / "completed" / row.uuid).is_dir():
            return True
        try:
            return disk.is_locked(base_dir / "running" / row.uuid / "lock")
        except OSError:
            return True

    return is_alive


def living_holder(lease_owner: str | None) -> int | None:
    """The pid in an owner when that very process lives on this machine, whatever the folder's lock says."""
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
