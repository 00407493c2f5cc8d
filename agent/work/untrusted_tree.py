"""Checks and repairs the layout of a work tree: the one `.git` file of this program, and names that must not exist.

After a command has run, the work tree is untrusted: this module uses only lstat and descriptors, follows no symlink and
opens no FIFO. The module checks and repairs the tree, but adds nothing to the index.

A file name counts as `.git` in upper or lower case, as `git~1`, and in the other forms that NTFS or HFS treats as equal
(docs/security.md, "Git beside a work tree").
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import durable_files, filetree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

INSIDE = "/git"
"""The path at which commands in the sandbox see the task's git directory, read-only; the `.git` file of the work tree
names this path."""

SHOWN = 20
"""The maximum number of names that a sentence for a person lists."""

shown = filetree.printable

_HFS_IGNORED = dict.fromkeys(
    (0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF),
)


def first_shown(names: Sequence[str]) -> str:
    """At most SHOWN names of a list as one text for a person, unprintable characters escaped."""
    return ", ".join(shown(name) for name in names[:SHOWN])


def is_git_name(name: str) -> bool:
    """Whether any file system treats `name` as `.git`."""
    plain = name.translate(_HFS_IGNORED).split(":", 1)[0].rstrip(" .").casefold()
    return plain in (".git", "git~1")


def has_git_name(path: str) -> bool:
    """Whether any part of `path` counts as `.git`; a backslash counts as a separator, as on Windows."""
    return any(is_git_name(part) for part in path.replace("\\", "/").split("/"))


def enterable(tree: Path) -> None:
    """Give the owner of the work tree all rights to its top folder again, if a command removed them."""
    mode = tree.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        with durable_files.writing(tree):
            filetree.grant(tree, None, 0o700)


def write_gitfile(tree: Path, target: str = INSIDE) -> bool:
    """Write the `.git` file of the work tree; returns True if it was missing or different.

    `target` is the path of the git directory for commands: `/git`, or its host path if they run without a sandbox.
    """
    wanted = f"gitdir: {target}\n".encode()
    top = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _gitfile_is_ours(top, wanted):
            return False
        with durable_files.writing(tree / ".git"):
            with suppress(FileNotFoundError):
                filetree.remove(".git", within=top)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(".git", flags, 0o644, dir_fd=top)
            try:
                os.fchmod(descriptor, 0o644)
                durable_files.write_all(descriptor, wanted)
            finally:
                os.close(descriptor)
        return True
    finally:
        os.close(top)


def _gitfile_is_ours(top: int, wanted: bytes) -> bool:
    try:
        descriptor = durable_files.open_beneath(top, ".git")
    except OSError:
        return False
    try:
        return durable_files.is_regular(descriptor) and os.read(descriptor, len(wanted) + 1) == wanted
    finally:
        os.close(descriptor)


def clear(tree: Path) -> None:
    """Remove the work tree and create an empty one."""
    remove(tree)
    durable_files.make_dir(tree, 0o700)


def remove(path: Path) -> None:
    """Remove the file or folder at `path`, if it exists.  Raises DiskError."""
    with durable_files.writing(path), suppress(FileNotFoundError):
        filetree.remove(path)


def change_owner(tree: Path, uid: int) -> None:
    """Change the owner of the whole work tree to `uid` (and to the group of the same number); of a symlink itself, not
    of its target."""
    with durable_files.writing(tree):
        filetree.change_owner(tree, uid, uid)


def closed_folders(tree: Path) -> list[str]:
    """Folders of the work tree that this process cannot read because of their mode; [] if it runs as root."""
    found: list[str] = []
    if os.geteuid() != 0:
        for _ in filetree.walk(tree, on_error=lambda entry, _error: found.append(entry.path)):
            pass
    return found


def leaves_tree(path: str, target: str) -> bool:
    """Whether a symlink at `path` with the target `target` may point out of the tree, or to the `.git` of the tree.

    In the target of a symlink, `..` is accepted only at the start: after a name, which can itself be a symlink, its
    meaning is unknown.
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
