"""The work tree for the tools: a path is opened only beneath the root, even if the task's commands have put symlinks or
devices there.

The work tree is treated as hostile (docs/security.md: symlinks to /etc/shadow, symlinked parents, FIFOs). In the work
tree no symlink is followed at any step, and only regular files are read; `..`, foreign absolute paths and `.git` are
refused with advice. Commands see the tree at `/work`, so a path from the model may begin with `/work`.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from agent import durable_files, filetree, git_guard
from agent.errors import DiskError, ToolError
from agent.filetree import kind_of, printable
from agent.gitcmd import unquoted
from agent.tools.encodings import escape_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.filetree import WalkedEntry

INSIDE = "/work"
JUNK = frozenset(
    (
        *("node_modules", "bower_components", ".next", ".nuxt"),
        *(
            "__pycache__",
            ".venv",
            ".tox",
            ".nox",
            ".eggs",
            ".mypy_cache",
            ".ruff_cache",
            ".pytest_cache",
            ".hypothesis",
        ),
        *(".gradle", ".terraform", ".svn", ".hg"),
    )
)
MAX_DEPTH = 100
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
# Characters that a case-folding file system, or HFS+, ignores in `.git`.
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])


@dataclass(frozen=True, slots=True)
class WorkTreeEntry:
    """One entry of the work tree: its path below the root, and its kind: "file", "symbolic link" or another."""

    path: str
    kind: str


def is_git(part: str) -> bool:
    """Whether a path component is `.git`, including forms that other file systems treat as the same."""
    plain = unicodedata.normalize("NFC", part).translate(_IGNORED).casefold().rstrip(". ")
    return plain in (".git", "git~1") or plain.startswith(".git:")


def _sorted(names: list[str], _depth: int) -> list[str]:
    return sorted(names)


class Tree:
    """The work tree with the top folder `root`.

    If this process is root, new files belong to `owner_uid` and to the group of the root folder.
    """

    def __init__(self, root: Path, owner_uid: int | None = None) -> None:
        self.root = root
        self.owner_uid = owner_uid if os.geteuid() == 0 else None

    def relative(self, path: str) -> str:
        """A `path` from the model, relative to the root of the work tree ("" for the root itself); raises ToolError
        when the path is refused."""
        shown = escape_surrogates(path)
        if path != shown or "\0" in (path := unquoted(path)):
            raise ToolError(f"path {shown!r} has a character that no file name can have")
        for prefix in (INSIDE, str(self.root)):
            if path == prefix or path.startswith(prefix + "/"):
                path = path[len(prefix) :].lstrip("/")
                break
        if path.startswith("/") and path.strip("/"):
            raise ToolError(
                f"path {shown!r} is outside the work tree; give a path relative to its root, or below /work"
            )
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ToolError(f"path {shown!r} has '..' in it; give the path from the root of the work tree")
        if any(is_git(part) for part in parts):
            raise ToolError(
                f"path {shown!r}: .git belongs to the program; use git commands (log, diff, blame) in run_command"
            )
        return self._as_stored("/".join(parts))

    def _as_stored(self, relative: str) -> str:
        r"""`relative` in which each part that has the form of `printable` (`caf\xe9.txt`) is replaced by the stored
        name.

        A part of the path that exists in the given form, or that matches no stored name, is unchanged.
        """
        if "\\" not in relative:
            return relative
        found = ""
        for part in relative.split("/"):
            path = f"{found}/{part}" if found else part
            if "\\" in part and not self._is_there(path):
                with suppress(OSError):
                    shown = ((printable(entry.path.rpartition("/")[2]), entry.path) for entry in self._entries(found))
                    path = next((stored for name, stored in shown if name == part), path)
            found = path
        return found

    def _is_there(self, relative: str) -> bool:
        folder, _, name = relative.rpartition("/")
        try:
            parent = self._open(folder, _DIRECTORY)
        except OSError:
            return False
        try:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return False
        finally:
            os.close(parent)
        return True

    @contextmanager
    def _root(self) -> Iterator[int]:
        descriptor = os.open(self.root, _DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, relative: str, flags: int) -> int:
        """Open a path beneath the root of the work tree; if it is missing, the path in the Unicode forms NFC and NFD is
        tried. Raises OSError."""
        with self._root() as root:
            try:
                return durable_files.open_beneath(root, relative, flags)
            except FileNotFoundError:
                for form in ("NFC", "NFD"):
                    other = unicodedata.normalize(form, relative)
                    if other != relative:
                        with suppress(FileNotFoundError):
                            return durable_files.open_beneath(root, other, flags)
                raise

    @contextmanager
    def open(self, path: str, *, known: bool = False) -> Iterator[int]:
        """A descriptor of the regular file at `path` (with `known` the path is one that `walk` returned); raises
        ToolError for anything else."""
        relative = path if known else self.relative(path)
        try:
            descriptor = self._open(relative, os.O_RDONLY)
        except OSError as error:
            raise self._refusal(relative, error) from error
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{relative or '.'} is a folder; use list_files")
            if not stat.S_ISREG(mode):
                raise ToolError(f"{relative} is a {kind_of(mode)}, not a regular file; it is not opened")
            yield descriptor
        finally:
            os.close(descriptor)

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder; raises ToolError when the path is refused or cannot be opened, for example
        because it is missing or a symlink."""
        relative = self.relative(path)
        try:
            descriptor = self._open(relative, os.O_RDONLY)
        except OSError as error:
            raise self._refusal(relative, error) from error
        try:
            return stat.S_ISDIR(os.fstat(descriptor).st_mode)
        finally:
            os.close(descriptor)

    def link_target(self, relative: str) -> str:
        """The target of the symlink at `relative`, as text; "?" when it cannot be read."""
        folder, _, name = relative.rpartition("/")
        try:
            parent = self._open(folder, _DIRECTORY)
        except OSError:
            return "?"
        try:
            return printable(os.readlink(name, dir_fd=parent))
        except OSError:
            return "?"
        finally:
            os.close(parent)

    def _refusal(self, relative: str, error: OSError) -> ToolError:
        """The ToolError for a path that cannot be opened."""
        shown = printable(relative) or "."
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return ToolError(self._obstacle(relative, shown))
        if error.errno == errno.ENOENT:
            near = self._near(relative)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; list_files shows what is there"
            return ToolError(f"{shown}: no such file or folder{hint}")
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
            return ToolError(f"{shown} is a socket, pipe or device, not a regular file; it is not opened")
        return ToolError(f"{shown} cannot be opened: {error.strerror}")

    def _obstacle(self, relative: str, shown: str) -> str:
        parts = relative.split("/")
        for count in range(1, len(parts) + 1):
            prefix = "/".join(parts[:count])
            target = self.link_target(prefix)
            if target != "?":
                return (
                    f"{printable(prefix)} is a symbolic link (to {target}); links are not followed. "
                    "If it points into the work tree, use the path it points to"
                )
        return f"{shown}: a part of this path is a file, not a folder"

    def _near(self, relative: str) -> list[str]:
        """Up to three existing names that are similar to a missing name."""
        folder, _, name = relative.rpartition("/")
        with suppress(OSError, ToolError):
            names = [entry.path for _, entry in zip(range(2000), self._entries(folder), strict=False)]
            wanted = f"{folder}/{name}" if folder else name
            return [printable(path) for path in get_close_matches(wanted, names, n=3, cutoff=0.6)]
        return []

    def _entries(self, relative: str) -> list[WorkTreeEntry]:
        """The entries of one folder, sorted by name; raises OSError."""
        descriptor = self._open(relative, _DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                found = []
                for entry in entries:
                    kind = "folder" if entry.is_dir(follow_symlinks=False) else "file"
                    if kind == "file" and not entry.is_file(follow_symlinks=False):
                        kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
                    found.append(WorkTreeEntry(f"{relative}/{entry.name}" if relative else entry.name, kind))
        finally:
            os.close(descriptor)
        return sorted(found, key=lambda entry: entry.path)

    def walk(self, path: str, left_out: list[str]) -> Iterator[WorkTreeEntry]:
        """The files, symlinks and other entries below `path` in the work tree, without folders themselves, sorted
        within each folder.

        `walk` leaves `.git` out. Folders of generated files (JUNK), and folders that are unreadable or too deep, are
        not entered; their paths are added to `left_out`.
        """
        start = self.relative(path)
        try:
            top = self._open(start, _DIRECTORY)
        except OSError as error:
            raise self._refusal(start, error) from error
        begin = f"{start}/" if start else ""

        def unreadable(entry: WalkedEntry, _error: OSError) -> None:
            left_out.append(begin + entry.path)

        try:
            for entry in filetree.walk(".", within=top, order=_sorted, on_error=unreadable):
                if is_git(entry.name):
                    entry.enter = False
                elif not entry.is_folder:
                    yield WorkTreeEntry(begin + entry.path, kind_of(entry.status.st_mode))
                elif entry.name in JUNK or entry.depth >= MAX_DEPTH:
                    entry.enter = False
                    left_out.append(begin + entry.path)
        finally:
            os.close(top)

    def replace(self, path: str, data: bytes, *, like: os.stat_result | None = None) -> None:
        """Write `data` as the whole content of `path`, by a temporary file and a rename in the same folder; missing
        parent folders are created.

        The mode is that of `like` (the previous file), else 0644. If this process is root, the owner is that of `like`,
        or `owner_uid` if `like` is None. Raises ToolError when the path cannot be written, DiskError when the disk is
        full, read-only or broken.
        """
        relative = self.relative(path)
        folder, _, name = relative.rpartition("/")
        if not name:
            raise ToolError(f"path {path!r} is the work tree itself; name a file in it")
        parent = self._make_folders(folder)
        try:
            # The target is named by the descriptor of its folder, so that the file is written into the folder that was
            # checked, even if a symlink has replaced the folder's name meanwhile.
            target = Path(f"/proc/self/fd/{parent}", name)
            with durable_files.replacing(target) as descriptor:
                self._own(descriptor, like)
                durable_files.write_all(descriptor, data)
        except DiskError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno in _FULL:
                reason = cause if isinstance(cause, OSError) else OSError(errno.EIO, str(error))
                raise durable_files.disk_error(self.root / relative, reason) from error
            raise ToolError(f"{printable(relative)} cannot be written: {cause.strerror}") from error
        finally:
            os.close(parent)
            if name in git_guard.RULES:
                git_guard.forget_checks()

    def _own(self, descriptor: int, like: os.stat_result | None) -> None:
        if os.geteuid() == 0 and like is not None:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        elif self.owner_uid is not None:
            os.fchown(descriptor, self.owner_uid, self.root.stat().st_gid)
        os.fchmod(descriptor, like.st_mode & 0o777 if like is not None else 0o644)

    def _make_folders(self, folder: str) -> int:
        """A descriptor of the folder; missing folders are created, parents first."""
        with self._root() as root:
            current = os.dup(root)
        done = ""
        try:
            for part in [part for part in folder.split("/") if part]:
                done = f"{done}/{part}" if done else part
                made = False
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
                    # after a power failure a synced file is still lost if the entry of its new folder was not synced
                    durable_files.fsync(current, done)
                    made = True
                step = os.open(part, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
                os.close(current)
                current = step
                if made:
                    if self.owner_uid is not None:
                        os.fchown(current, self.owner_uid, self.root.stat().st_gid)
                    os.fchmod(current, 0o755)
        except OSError as error:
            os.close(current)
            if error.errno in _FULL:
                raise durable_files.disk_error(self.root / done, error) from error
            raise self._refusal(done, error) from error
        return current
