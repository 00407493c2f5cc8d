"""The user that commands run as.

As root every task has a uid of its own, so that one task's commands can neither read nor signal another's and a
folder's mode is enough to keep them out.  As an ordinary user there is only that user, and `own_uid` says None.

Other users of the machine pass no folder that holds what tasks keep: a task's folder is root's and of the group whose
number is the task's uid, the folder of mirrors of the group `readers()`, which every command has beside its own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

NOBODY = 65534
FIRST, LAST = 0x7000_0000, 0x7FFF_FFFE
"""A range that nobody else hands out: above systemd's containers, below what overflows a signed number
(https://systemd.io/UIDS-GIDS)."""
SMALL_FIRST = 100_000


def spans(path: Path = Path("/proc/self/uid_map")) -> list[tuple[int, int]]:
    """The uids that exist here, as (first, last): a container's user namespace maps few of them."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except OSError:
        return [(0, 0xFFFF_FFFE)]
    return [(int(first), int(first) + int(count) - 1) for first, _, count in rows]


def uid_of(uuid: str, mapped: list[tuple[int, int]] | None = None) -> int:
    """The uid of a task: always the same one for the same uuid.

    65534 (nobody), which tasks then share, when this process's user namespace maps no uid from 100000 up.
    """
    try:
        number = UUID(uuid).int
    except ValueError:
        number = uuid5(NAMESPACE_URL, uuid).int
    mapped = spans() if mapped is None else mapped
    for first, last in mapped:
        if first <= FIRST and last >= LAST:
            return FIRST + number % (LAST - FIRST + 1)
    for first, last in mapped:
        low = max(first, SMALL_FIRST)
        if last > low:
            return low + number % (last - low + 1)
    return NOBODY


def own_uid(uuid: str) -> int | None:
    """`uid_of` when this process is root and can become that user, else None: also for the root of a container whose
    user namespace maps nobody else, or whose capabilities were taken."""
    if os.geteuid() != 0:
        return None
    uid = uid_of(uuid)
    return uid if can_become(uid) else None


def readers(mapped: list[tuple[int, int]] | None = None) -> int:
    """The group whose members may pass the folder of mirrors: commands, and nobody else on this machine.

    The number before the first uid of a task; where none is mapped that of nobody.
    """
    mapped = spans(Path("/proc/self/gid_map")) if mapped is None else mapped
    if any(first < FIRST <= last for first, last in mapped):
        return FIRST - 1
    return next((max(first, SMALL_FIRST) for first, last in mapped if last > SMALL_FIRST), NOBODY)


def share(path: Path, group: int | None) -> None:
    """Let the members of `group` pass the folder `path`, and no other user; None: this process's user alone."""
    mode = 0o700 if group is None else 0o710
    status = path.stat()
    if group is not None and status.st_gid != group:
        os.chown(path, -1, group)
    if stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)


NEEDED = (0, 6, 7)
"""CAP_CHOWN, CAP_SETGID, CAP_SETUID (capabilities(7)): what root needs to give files away and to become another."""

SETFCAP = 31
"""CAP_SETFCAP: since Linux 5.12 root needs it to map itself into a new user namespace (user_namespaces(7))."""


def has(*capabilities: int, status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process has them all in effect; True where that cannot be read."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return True
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), None)
    return effective is None or all(effective >> number & 1 for number in capabilities)


def can_become(uid: int, mapped: list[tuple[int, int]] | None = None, status: Path = Path("/proc/self/status")) -> bool:
    """Whether this root may give files to `uid` and start commands as it: a container's may map no such user, or have
    had its capabilities taken."""
    if not any(first <= uid <= last for first, last in (spans() if mapped is None else mapped)):
        return False
    return has(*NEEDED, status=status)


def reachable(path: Path, uid: int | None) -> bool:
    """Whether a command of user `uid`, a member of the group of that number and of `readers()`, can pass every folder
    on the way to `path`.

    True for None, this process's own user.  Access lists are not looked at.
    """
    if uid is None:
        return True
    groups = (uid, readers())
    for folder in path.resolve().parents:
        try:
            found = folder.stat()
        except OSError:
            return False
        bit = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid in groups else stat.S_IXOTH
        if not found.st_mode & bit:
            return False
    return True
