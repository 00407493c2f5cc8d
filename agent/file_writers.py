"""Finds out who else may write a file or folder, for templates and plug-ins, which decide what this program does."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def other_writers(status: os.stat_result) -> str:
    """Names the users besides this one and root who may write the file, as text; "" if there are none.

    The private group of the owner (same name, no other member), which many systems make for each user, does not count
    as another writer, and neither does a group without members, such as `staff` on Debian.  In a folder with the sticky
    bit nobody can replace the files of others, so it counts as safe.
    """
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to the user {_user(status.st_uid)}"
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
        if who := other_writers(folder.stat()):
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
