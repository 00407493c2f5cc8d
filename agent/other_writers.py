"""Finds out who else may write a file or folder, for files that decide what this program does: the configuration,
templates, plug-ins, and programs of servers."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def writers(target: Path | int) -> str:
    """Names the users besides this one and root who may write a file (a path, or an open descriptor), as text; "" if
    there are none.

    The private group of the owner (same name, no other member), which many systems make for each user, does not count
    as another writer, and neither does a group without members, such as `staff` on Debian. In a folder with the sticky
    bit nobody can replace the files of others, so such a folder counts as safe. The mode of a file on a read-only mount
    does not count, since no process on this machine can write it: in Kubernetes, a volume with a ConfigMap is a
    read-only mount with mode 0777. Raises OSError.
    """
    status = os.stat(target)  # noqa: PTH116 - the file may be given as a descriptor
    who = _foreign_owner(status)
    if who or not (who := _other_modes(status)):
        return who
    return "" if os.statvfs(target).f_flag & os.ST_RDONLY else who


def writers_of(path: Path) -> str:
    """Names the users besides this one and root who may write the file `path`, or replace it or a folder above it, as
    text that begins with the path; "" if there are none.

    If `path` is a symlink, it is followed, and the folders above the link are checked too. Raises OSError.
    """
    real = Path(os.path.realpath(path))
    if who := writers(real):
        return f"{real}: {who}"
    for place in dict.fromkeys((real, Path(os.path.realpath(path.parent), path.name))):
        if (above := writers_above(place)) is not None:
            return f"{above[0]}, a folder above {place}: {above[1]}"
    return ""


def _foreign_owner(status: os.stat_result) -> str:
    return "" if status.st_uid in (0, os.geteuid()) else f"it belongs to the user {_user(status.st_uid)}"


def _other_modes(status: os.stat_result) -> str:
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "every user may write it"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return f"the group {_group(status.st_gid)} may write it"
    return ""


def writers_above(path: Path) -> tuple[Path, str] | None:
    """The first folder above `path` (an absolute path without symlinks) that others may write, with their names; None
    if there is none."""
    for folder in path.parents:
        if who := writers(folder):
            return folder, who
    return None


def _is_private(gid: int, uid: int) -> bool:
    if gid == 0:
        return True
    try:
        group, owner = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    if group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}:
        return True
    return not group.gr_mem and all(one.pw_gid != gid for one in pwd.getpwall())


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
