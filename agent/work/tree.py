"""What may lie in a work tree: the one `.git` file that is ours, and what must never be there.

After a command has run, the tree is hostile: everything here looks with lstat and descriptors, follows no symlink and
opens no FIFO.  It judges and repairs; it stages nothing.  Called by `Workspace`.

Security facts: section 4.4 (any `.git`, in any case, `git~1`, forms that HFS ignores), section 4.5 rows 23 and 26.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import disk, filetree

if TYPE_CHECKING:
    from pathlib import Path

INSIDE = "/git"
"""Where commands see the git directory, bound read-only: what the `.git` file says means something only there."""

shown = filetree.printable

_HFS_IGNORED = dict.fromkeys(
    (0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF),
)


def is_git_name(name: str) -> bool:
    """Whether some file system takes `name` for `.git`."""
    plain = name.translate(_HFS_IGNORED).split(":", 1)[0].rstrip(" .").casefold()
    return plain in (".git", "git~1")


def has_git_name(path: str) -> bool:
    """Whether any part of `path` is taken for `.git`; a backslash parts a path on Windows."""
    return any(is_git_name(part) for part in path.replace("\\", "/").split("/"))


def enterable(tree: Path) -> None:
    """Give the owner of the tree's own folder all rights to it, where a command took them away."""
    mode = tree.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        with disk.writing(tree):
            filetree.grant(tree, None, 0o700)


def write_gitfile(tree: Path, target: str = INSIDE) -> bool:
    """Put the `.git` file in its place; True when something else, or nothing, was there.

    `target` is the git directory as commands see it: `/git`, or its own path where they run without a sandbox.
    """
    wanted = f"gitdir: {target}\n".encode()
    top = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _gitfile_is_ours(top, wanted):
            return False
        with disk.writing(tree / ".git"):
            with suppress(FileNotFoundError):
                filetree.remove(".git", within=top)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(".git", flags, 0o644, dir_fd=top)
            try:
                os.fchmod(descriptor, 0o644)
                disk.write_all(descriptor, wanted)
            finally:
                os.close(descriptor)
        return True
    finally:
        os.close(top)


def _gitfile_is_ours(top: int, wanted: bytes) -> bool:
    try:
        descriptor = disk.open_beneath(top, ".git")
    except OSError:
        return False
    try:
        return disk.is_regular(descriptor) and os.read(descriptor, len(wanted) + 1) == wanted
    finally:
        os.close(descriptor)


def clear(tree: Path) -> None:
    """Remove the tree and make it anew, empty."""
    remove(tree)
    disk.make_dir(tree, 0o700)


def remove(path: Path) -> None:
    """Remove whatever is at `path`, if anything is.  DiskError."""
    with disk.writing(path), suppress(FileNotFoundError):
        filetree.remove(path)


def give(tree: Path, uid: int) -> None:
    """Give the whole tree to `uid` (and its group of the same number); symlinks themselves, not what they name."""
    with disk.writing(tree):
        filetree.give(tree, uid, uid)


def closed_folders(tree: Path) -> list[str]:
    """Folders of the tree that cannot be looked into, because their mode forbids it."""
    found: list[str] = []
    if os.geteuid() != 0:
        for _ in filetree.walk(tree, on_error=lambda entry, _error: found.append(entry.path)):
            pass
    return found


def leaves_tree(path: str, target: str) -> bool:
    """Whether a symlink at `path` that says `target` may point out of the tree, or at its `.git`.

    `..` is taken only at the front: after a name, which can be a symlink itself, nobody knows where it leads.
    """
    if target.startswith("/") or "\0" in target:
        return True
    parts: list[str] = posixpath.dirname(path).split("/") if "/" in path else []
    gone_down = False
    for part in target.split("/"):
        if part == "..":
            if not parts or gone_down:
                return True
            parts.pop()
        elif part not in ("", "."):
            if is_git_name(part):
                return True
            gone_down = True
    return False
