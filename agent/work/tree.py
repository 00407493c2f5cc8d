"""What may lie in a work tree: the one `.git` file that is ours, and what must never be there.

After a command has run, the tree is hostile: everything here looks with lstat and descriptors, follows no symlink and
opens no FIFO.  It judges and repairs; it stages nothing.  Called by `Workspace`.

Security facts: section 4.4 (any `.git`, in any case, `git~1`, forms that HFS ignores), section 4.5 rows 23 and 26.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INSIDE = "/git"
"""Where commands see the git directory, bound read-only: what the `.git` file says means something only there."""

_HFS_IGNORED = dict.fromkeys(
    (0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF),
)
SHOWN = 20


def is_git_name(name: str) -> bool:
    """Whether some file system takes `name` for `.git`."""
    plain = name.translate(_HFS_IGNORED).split(":", 1)[0].rstrip(" .").casefold()
    return plain in (".git", "git~1")


def has_git_name(path: str) -> bool:
    """Whether any part of `path` is taken for `.git`."""
    return any(is_git_name(part) for part in path.split("/"))


def enterable(tree: Path) -> None:
    """Give the owner of the tree's own folder all rights to it, where a command took them away."""
    mode = tree.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        with disk.writing(tree):
            tree.chmod(stat.S_IMODE(mode) | 0o700)


def write_gitfile(tree: Path, target: str = INSIDE) -> bool:
    """Put the `.git` file in its place; True when something else, or nothing, was there.

    `target` is the git directory as commands see it: `/git`, or its own path where they run without a sandbox.
    """
    wanted = f"gitdir: {target}\n".encode()
    top = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _gitfile_is_ours(top, wanted):
            return False
        _remove(top, ".git")
        with disk.writing(tree / ".git"):
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


def _remove(top: int, name: str) -> None:
    """Remove whatever `name` is, following nothing."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=top, follow_symlinks=False)
        with disk.writing(name):
            if stat.S_ISDIR(status.st_mode):
                _make_removable(top, name)
                shutil.rmtree(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)


def _make_removable(top: int, name: str) -> None:
    """Give ourselves the right to list and empty a folder whose mode was taken away."""
    with suppress(OSError):
        os.chmod(name, 0o700, dir_fd=top)
        for _, folders, _, descriptor in os.fwalk(name, dir_fd=top, follow_symlinks=False):
            for folder in folders:
                if stat.S_ISDIR(os.stat(folder, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    os.chmod(folder, 0o700, dir_fd=descriptor)


def clear(tree: Path) -> None:
    """Remove the tree and make it anew, empty."""
    if tree.exists():
        parent = os.open(tree.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _remove(parent, tree.name)
        finally:
            os.close(parent)
    disk.make_dir(tree, 0o700)


def give(tree: Path, uid: int) -> None:
    """Give the whole tree to `uid` (and its group of the same number); symlinks themselves, not what they name."""
    with disk.writing(tree):
        for _, folders, files, descriptor in os.fwalk(tree, follow_symlinks=False):
            os.fchown(descriptor, uid, uid)
            for name in files:
                os.chown(name, uid, uid, dir_fd=descriptor, follow_symlinks=False)
            for name in folders:  # fwalk does not enter symlinks
                os.chown(name, uid, uid, dir_fd=descriptor, follow_symlinks=False)


def foreign_git(tree: Path) -> list[str]:
    """Every entry that some system takes for `.git`, but the file at the top, and every folder that cannot be seen."""
    found = []
    for path, is_folder, readable in _walk(tree):
        name = posixpath.basename(path)
        if path != ".git" and is_git_name(name):
            found.append(f"{shown(path)} in the work tree is taken for a git directory; remove it")
        elif is_folder and not readable:
            found.append(f"{shown(path)}/ cannot be looked into (its mode forbids it); make it readable or remove it")
        if len(found) >= SHOWN:
            found.append("and more")
            break
    return found


def _walk(tree: Path) -> Iterator[tuple[str, bool, bool]]:
    """(path, is a folder, can be listed) of all entries; symlinks are entries, not ways."""
    stack = [""]
    while stack:
        prefix = stack.pop()
        try:
            entries = list(os.scandir(os.path.join(tree, prefix)))  # noqa: PTH118 - names may not be text
        except OSError:
            yield prefix.rstrip("/"), True, False
            continue
        for entry in entries:
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            yield path, is_folder, True
            if is_folder and not is_git_name(entry.name):
                stack.append(f"{path}/")


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


def shown(path: str) -> str:
    """A path as it can be printed: control signs and what is not UTF-8 escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
