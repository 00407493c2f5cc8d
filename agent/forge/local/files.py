"""Reads and writes the files of a local tracker: reads take no lock; writes require the tracker's lock and are atomic.

People edit the tracker's files with editors that take no lock. So that no change of such an editor is lost, `files.py`
changes a file by writing a temporary file and renaming it, and starts again when the file has changed in the meantime;
it appends by a single write. Symbolic links below the tracker's folder are not followed, so that a link in the tracker
cannot show a file from elsewhere to a model.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from agent import durable_files
from agent.errors import ForgeError, IssueUnreadable, PictureRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODE = 0o644  # the files are readable for all, since people read and edit them; the umask may remove rights
LARGEST = 256 << 20
LARGEST_PICTURE = 10_000_000
TRIES = 20
_NUMBERED = re.compile(r"([0-9]+)\.md")

_READ_ADVICE = {
    errno.ELOOP: "it is a symbolic link, which is not followed; put the file itself there",
    errno.ENOTDIR: "a part of its path is not a folder, or is a symbolic link",
    errno.EACCES: "permission denied; check owner and mode",
    errno.EISDIR: "it is a folder, a file is expected",
}


class _ChangedMeanwhileError(Exception):
    """Somebody saved a file of the tracker while `files.py` was preparing its new content."""


class TrackerFiles:
    """The files of a tracker; methods get the path of a file relative to the tracker's folder `root`
    (`issues/7.md`)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def numbers(self, folder: str) -> tuple[list[int], list[str]]:
        """The numbered files in a folder, such as `7.md`: (their numbers, ascending; the names with leading zeros,
        which are not read).

        If the tracker lacks the folder `folder`, both lists are empty. Raises ForgeError if the tracker is missing or
        the folder cannot be read.
        """
        try:
            names = os.listdir(self.root / folder)  # noqa: PTH208 - this function needs the file names only
        except FileNotFoundError:
            if self.root.is_dir():
                return [], []
            raise ForgeError(
                f"the tracker {self.root} is not there; make the folder with `issues/` in it, or set local.tracker"
            ) from None
        except OSError as error:
            raise ForgeError(f"the folder {self.root / folder} cannot be read: {_error_reason(error)}") from error
        found = [match[1] for name in names if (match := _NUMBERED.fullmatch(name))]
        return (
            sorted(int(text) for text in found if text == str(int(text))),
            sorted(f"{folder}/{text}.md" for text in found if text != str(int(text))),
        )

    def unnumbered(self, folder: str) -> list[str]:
        """The names of the `*.md` files in a folder that have another name than a number, without hidden files; no
        names when the folder cannot be listed."""
        try:
            names = os.listdir(self.root / folder)  # noqa: PTH208 - this function needs the file names only
        except OSError:
            return []
        others = (name for name in names if name.endswith(".md") and not name.startswith("."))
        return sorted(f"{folder}/{name}" for name in others if not _NUMBERED.fullmatch(name))

    def read(self, relative: str, limit: int | None = None) -> bytes:
        """The content of a file, or its first `limit` bytes.

        Raises FileNotFoundError when the file does not exist, IssueUnreadable when the file cannot be read for another
        reason, and ForgeError when the tracker's folder cannot be read.
        """
        descriptor = self._open(relative)
        try:
            return _read(descriptor, limit, self.root / relative)
        finally:
            os.close(descriptor)

    def picture(self, address: str) -> bytes:
        """The content of a file in the tracker's folder that an issue shows as a picture; at most LARGEST_PICTURE + 1
        bytes, so that the caller sees when the picture is too large.

        The address of a picture is a path relative to `issues/` or to the tracker's folder.  Raises PictureRefused if
        the tracker has no such file, if the path contains a symbolic link, and for a URL.
        """
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            raise PictureRefused("it lies on the web; put the file into the tracker's folder")
        path = unquote(parts.path)
        for relative in (f"issues/{path}", path) if not path.startswith("/") else (path.lstrip("/"),):
            relative = posixpath.normpath(relative)  # noqa: PLW2901 - `normpath` removes `..`, which the path may contain
            if relative.startswith("../"):
                continue
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                descriptor = durable_files.open_beneath(root, relative)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    continue
                raise PictureRefused(f"{relative} cannot be read: {_error_reason(error)}") from error
            finally:
                os.close(root)
            with os.fdopen(descriptor, "rb") as file:
                if not durable_files.is_regular(file.fileno()):
                    raise PictureRefused(f"{relative} is no file")
                return file.read(LARGEST_PICTURE + 1)
        raise PictureRefused("there is no such file in the tracker's folder")

    def modified(self, relative: str) -> float:
        """The time of the last change of a file, in seconds since 1970; 0 if the file does not exist."""
        try:
            return os.lstat(self.root / relative).st_mtime
        except OSError:
            return 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the tracker's lock, a flock on the file `.lock`; people's scripts can take this lock too."""
        with durable_files.locked(self.root / ".lock"):
            yield

    def rewrite(self, relative: str, change: Callable[[bytes], bytes]) -> None:
        """Replace the content of a tracker's file by `change(content)`; the caller must hold the tracker's lock
        (`locked`).

        `rewrite` preserves the owner and mode of the file; if `change` returns the same bytes, nothing is written.
        """
        path = self.root / relative
        _sweep(path)
        for _ in range(TRIES):
            descriptor = self._open(relative)
            try:
                before = os.fstat(descriptor)
                data = _read(descriptor, None, path)
            finally:
                os.close(descriptor)
            new = change(data)
            if new == data:
                return
            if _replace(path, new, before):
                return
        raise ForgeError(f"{path} was saved by somebody else {TRIES} times while it was to be changed; try again")

    def create(self, relative: str, data: bytes) -> None:
        """Write a new file of the tracker; the caller must hold the tracker's lock (`locked`)."""
        path = self.root / relative
        durable_files.make_dir(path.parent, 0o755)
        _sweep(path)
        with durable_files.replacing(path, MODE) as temporary:
            durable_files.write_all(temporary, data)
            _take_owner(temporary, os.stat(self.root))  # noqa: PTH116 - `_take_owner` needs an os.stat_result

    def append_line(self, relative: str, line: bytes, *, torn: Callable[[bytes], bool]) -> None:
        """Append `line` and a newline to a tracker's file in one write, and flush the file to the disk; the caller must
        hold the tracker's lock (`locked`).

        If the last line of the file has no newline and `torn` recognises that line as the rest of an interrupted write
        of this program, `append_line` removes that line. If `torn` does not recognise the unfinished last line, another
        program wrote it: `append_line` first adds a newline, so that the two lines do not join.
        """
        path = self.root / relative
        with durable_files.writing(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, MODE)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                _take_owner(descriptor, os.stat(self.root))  # noqa: PTH116 - `_take_owner` needs an os.stat_result
            glue = b""
            if size and durable_files.read_at(descriptor, 1, size - 1) != b"\n":
                start, rest = next(durable_files.read_backwards(descriptor, size))
                if torn(rest):
                    with durable_files.writing(path):
                        os.ftruncate(descriptor, start)
                else:
                    glue = b"\n"
            durable_files.append(descriptor, glue + line + b"\n", path)
            with durable_files.writing(path):
                durable_files.fsync(descriptor, path)
        finally:
            os.close(descriptor)
        if not size:
            with durable_files.writing(path):
                durable_files.sync_dir(path.parent)

    def _open(self, relative: str) -> int:
        path = self.root / relative
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ForgeError(f"the tracker {self.root} cannot be read: {_error_reason(error)}") from error
        try:
            descriptor = durable_files.open_beneath(root, relative)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise IssueUnreadable(f"{path} cannot be read: {_error_reason(error)}") from error
        finally:
            os.close(root)
        if not durable_files.is_regular(descriptor):
            os.close(descriptor)
            raise IssueUnreadable(f"{path} is not a file")
        return descriptor


def _replace(path: Path, new: bytes, before: os.stat_result) -> bool:
    """Replace the content of the file `path` by `new`; returns False and changes nothing if the file no longer has the
    state `before` (inode, size, time)."""
    try:
        with durable_files.replacing(path, MODE) as temporary:
            durable_files.write_all(temporary, new)
            _take_after(temporary, before)
            durable_files.fsync(temporary, path)
            _compare(path, before)
    except _ChangedMeanwhileError:
        return False
    return True


def _sweep(path: Path) -> None:
    """Remove the temporary files that an interrupted rewrite of the file `path` has left; no other process can be using
    these temporary files, since the caller holds the lock."""
    leftover = re.compile(rf"\.{re.escape(path.name)}\.[0-9]+\.tmp")
    for name in os.listdir(path.parent):  # noqa: PTH208 - this function needs the file names only
        if leftover.fullmatch(name):
            with suppress(OSError):
                (path.parent / name).unlink()


def _compare(path: Path, before: os.stat_result) -> None:
    if _version(path) != _version_of(before):
        raise _ChangedMeanwhileError


def _read(descriptor: int, limit: int | None, path: Path) -> bytes:
    size = os.fstat(descriptor).st_size
    if size > LARGEST:
        raise IssueUnreadable(f"{path} has {size} bytes; at most {LARGEST} are read")
    left = LARGEST if limit is None else limit
    chunks = []
    while left > 0 and (chunk := os.read(descriptor, min(left, durable_files.COPY))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        return _version_of(os.lstat(path))
    except FileNotFoundError:
        return None


def _version_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _take_after(descriptor: int, before: os.stat_result) -> None:
    """Give the new file the owner and the mode of the old file that it replaces."""
    _take_owner(descriptor, before)
    with suppress(PermissionError):
        os.fchmod(descriptor, before.st_mode & 0o777)


def _take_owner(descriptor: int, like: os.stat_result) -> None:
    """When running as root, set the owner and group of a file to those of `like`; any other user cannot change
    owners."""
    if os.geteuid() == 0:
        with suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)


def _error_reason(error: OSError) -> str:
    return _READ_ADVICE.get(error.errno or 0, error.strerror or str(error))
