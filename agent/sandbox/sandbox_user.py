"""Selects the user that runs commands.

If this process is root, the commands of each task run with a uid of the task's own, so that they can neither read the
files of another task nor signal its processes.  If this process is not root, commands run as its own user: `own_uid`
returns None.

Other users of the machine have no access to the folders with tasks' data.  With a uid for each task, a task's folder
belongs to root and to the group with the number of the task's uid.  The folder of mirrors belongs to the group
`readers()`, of which every command is a member in addition to its own group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

NOBODY = 65534
FIRST, LAST = 0x7000_0000, 0x7FFF_FFFE
"""A range of uids that no other software assigns: above the range of systemd's containers, below the numbers that
overflow a signed integer (https://systemd.io/UIDS-GIDS)."""
SMALL_FIRST = 100_000


def spans(path: Path = Path("/proc/self/uid_map")) -> list[tuple[int, int]]:
    """The ranges of uids that exist in the user namespace of this process, as (first, last): the user namespace of a
    container may map only a few uids."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except OSError:
        return [(0, 0xFFFF_FFFE)]
    return [(int(first), int(first) + int(count) - 1) for first, _, count in rows]


def uid_of(uuid: str, mapped: list[tuple[int, int]] | None = None) -> int:
    """The uid of the task `uuid`; on one machine, the same uuid gives the same uid.

    No task gets the number of the group `readers()`. The uid is 65534 (nobody) for every task if the user namespace of
    this process maps fewer than two uids from 100000 up.
    """
    try:
        number = UUID(uuid).int
    except ValueError:
        number = uuid5(NAMESPACE_URL, uuid).int
    mapped = spans() if mapped is None else mapped
    for first, last in mapped:
        if first < FIRST and last >= LAST:
            return FIRST + number % (LAST - FIRST + 1)
    for first, last in mapped:
        low = max(first, SMALL_FIRST)
        if last > low:
            return low + max(1, number % (last - low + 1))  # `low` is the number of `readers()`
    return NOBODY


def own_uid(uuid: str) -> int | None:
    """The uid of the task (`uid_of`) if this process is root and can change to that user, else None.

    `own_uid` also returns None for the root of a container with a user namespace that maps no other user, or without
    the necessary capabilities.
    """
    if os.geteuid() != 0:
        return None
    uid = uid_of(uuid)
    return uid if can_become(uid) else None


def readers(mapped: list[tuple[int, int]] | None = None) -> int:
    """The group with access to the folder of mirrors: its members are commands, but no user of this machine.

    The group's number is the one before the first uid of a task; if no such number is mapped, it is that of the group
    nobody.
    """
    mapped = spans(Path("/proc/self/gid_map")) if mapped is None else mapped
    if any(first < FIRST <= last for first, last in mapped):
        return FIRST - 1
    return next((max(first, SMALL_FIRST) for first, last in mapped if last > SMALL_FIRST), NOBODY)


def share(path: Path, group: int | None) -> None:
    """Let only the owner of the folder `path` and the members of `group` enter it, and only the owner list it; with
    None nobody but the owner may do either."""
    mode = 0o700 if group is None else 0o710
    status = path.stat()
    if group is not None and status.st_gid != group:
        os.chown(path, -1, group)
    if stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)


NEEDED = (0, 6, 7)
"""CAP_CHOWN, CAP_SETGID and CAP_SETUID (capabilities(7)): root needs them to change the owner of files and its own
user."""

SETFCAP = 31
"""CAP_SETFCAP: since Linux 5.12 root needs it to map itself into a new user namespace (user_namespaces(7))."""


def has(*capabilities: int, status: Path = Path("/proc/self/status")) -> bool:
    """Whether all of the given capabilities are effective in this process; True if the process's status cannot be
    read."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return True
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), None)
    return effective is None or all(effective >> number & 1 for number in capabilities)


def can_become(uid: int, mapped: list[tuple[int, int]] | None = None, status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process, as root, may give files to `uid` and start commands as `uid`.

    In a container, root may lack the user `uid` or the necessary capabilities.
    """
    if not any(first <= uid <= last for first, last in (spans() if mapped is None else mapped)):
        return False
    return has(*NEEDED, status=status)


def reachable(path: Path, uid: int | None) -> bool:
    """Whether a command that runs as `uid`, with the group of the same number and the group `readers()`, has access to
    every folder on the way to `path`.

    The result is True if `uid` is None, which means the user of this process.  `reachable` ignores access control
    lists.
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
