"""Copies a tree that a foreign command may have written, or moves it into another tree.

`treecopy` is built on `filetree`: on both sides no link is followed, no paths are joined, and no function is recursive.
A copied file is not longer than the file was when it was opened, even if another process appends to it meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent import durable_files
from agent.errors import DiskError
from agent.filetree import Descent, WalkedEntry, open_folder, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.filetree.descent import Order

BLOCK = 1 << 16
SHOWN = 200
UNFIT = (errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG)
"""Error numbers with which a file system rejects a name: vfat rejects `a:b`, and file systems with a character set
reject other bytes."""


class Copy:
    """Copies trees: files, folders and links, with their modes, times and hard links.

    Pipes, sockets and devices are not copied.

    `owner` becomes the owner and the group of the copy. Without `owner`, `keep_owners` preserves the owners if this
    process runs as root. Only with `keep_owners` the copies keep the setuid, setgid and sticky bits. `size` is the sum
    of the sizes of the copied files in bytes. `missed` has one line for each entry that could not be copied, except
    entries that vanished or changed their type meanwhile.
    """

    def __init__(self, owner: int | None = None, *, keep_owners: bool = False) -> None:
        self.owner = owner
        self.keep_owners = keep_owners and os.geteuid() == 0
        self.mode_bits = 0o7777 if keep_owners else 0o777
        self.size = 0
        self.missed: list[str] = []
        self._first: dict[tuple[int, int], tuple[Path, tuple[str, ...], str]] = {}

    def tree(
        self,
        source: Path,
        target: Path,
        *,
        order: Order | None = None,
        wanted: Callable[[WalkedEntry], bool] = lambda _entry: True,
    ) -> None:
        """Copy the folder `source` to `target`, which may exist already.

        `wanted(entry)` returns whether an entry is copied, a folder with its content; `order` sorts the names of each
        folder (`filetree.walk`). Raises OSError if `source` is not a folder, DiskError if the copy cannot be written.
        """
        top = open_folder(source)
        try:
            status = os.fstat(top)
        finally:
            os.close(top)
        with durable_files.writing(target):
            target.mkdir(mode=0o700, exist_ok=True)
            way = Descent(open_folder(target))
        try:
            for entry in walk(source, order=order, on_error=self._miss):
                if entry.left:
                    with durable_files.writing(target):
                        self._settle(way.here, entry.status)
                        way.leave()
                elif not wanted(entry):
                    entry.enter = False
                else:
                    with self._unless_unfit(entry):
                        self._entry(entry, way, target)
            with durable_files.writing(target):
                self._settle(way.here, status)
        finally:
            way.close()

    def _miss(self, entry: WalkedEntry, error: OSError) -> None:
        self.missed.append(f"{entry.path[:SHOWN]}: {error.strerror}")

    @contextmanager
    def _unless_unfit(self, entry: WalkedEntry) -> Iterator[None]:
        """If the target file system rejects the entry's name (as vfat does with `a:b`), add the entry to `missed`;
        every other error is raised."""
        try:
            yield
        except DiskError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in UNFIT):
                raise
            entry.enter = False
            self._miss(entry, cause)

    def _entry(self, entry: WalkedEntry, way: Descent, target: Path) -> None:
        if entry.is_folder:
            with durable_files.writing(target):
                with suppress(FileExistsError):
                    os.mkdir(entry.name, 0o700, dir_fd=way.here)
                way.enter(entry.name)
            return
        try:
            if entry.is_link:
                place = os.readlink(entry.name, dir_fd=entry.folder)
                with durable_files.writing(target):
                    os.symlink(place, entry.name, dir_fd=way.here)
                    if (owner := self._owner(entry.status)) is not None:
                        os.chown(entry.name, *owner, dir_fd=way.here, follow_symlinks=False)
            elif entry.is_file:
                known = (entry.status.st_dev, entry.status.st_ino)
                if entry.status.st_nlink > 1 and known in self._first:
                    self._link(known, entry.name, way)
                    return
                self.file(entry, way.here, target)
                if entry.status.st_nlink > 1:
                    self._first[known] = target, tuple(way.names), entry.name
        except OSError as error:
            # the entry is gone, or a file of another type has replaced it
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                self._miss(entry, error)

    def file(self, entry: WalkedEntry, folder: int, target: Path) -> None:
        """Copy one regular file into the folder with the descriptor `folder`, which is inside `target`; does nothing if
        the entry is no regular file any more."""
        reader = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=entry.folder)
        try:
            status = os.fstat(reader)
            if not stat.S_ISREG(status.st_mode):
                return
            with durable_files.writing(target):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                writer = os.open(entry.name, flags, 0o600, dir_fd=folder)
                try:
                    copy_bytes(reader, writer, status)
                    self._settle(writer, status)
                finally:
                    os.close(writer)
        finally:
            os.close(reader)
        self.size += status.st_size

    def _link(self, known: tuple[int, int], name: str, way: Descent) -> None:
        """Make a hard link to a file that the copy contains already."""
        target, parents, first = self._first[known]
        with durable_files.writing(target):
            above = open_folder(target)
            try:
                for parent in parents:
                    below = open_folder(parent, above)
                    os.close(above)
                    above = below
                os.link(first, name, src_dir_fd=above, dst_dir_fd=way.here, follow_symlinks=False)
            finally:
                os.close(above)

    def _owner(self, status: os.stat_result) -> tuple[int, int] | None:
        if self.owner is not None:
            return self.owner, self.owner
        return (status.st_uid, status.st_gid) if self.keep_owners else None

    def _settle(self, descriptor: int, status: os.stat_result) -> None:
        """Set the owner, mode and times of an entry that was copied."""
        if (owner := self._owner(status)) is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & self.mode_bits)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_bytes(reader: int, writer: int, status: os.stat_result) -> None:
    """Copy the bytes of a file up to the size in `status`.

    In a file larger than BLOCK, holes remain holes in the copy, since a file of a terabyte may occupy no block. If a
    file is truncated during the copying, the copy ends at the new end, or at the end of the bytes copied before."""
    size = status.st_size
    if size <= BLOCK:
        durable_files.write_all(writer, os.read(reader, size))
        return
    position = 0
    while position < size:
        try:
            start = os.lseek(reader, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # the rest of the file is a hole
        end = min(size, os.lseek(reader, start, os.SEEK_HOLE))
        position = _copy_range(reader, writer, start, end)
        if position < end:
            break
    size = min(size, os.fstat(reader).st_size)
    if os.fstat(writer).st_size < size:
        os.ftruncate(writer, size)


def _copy_range(reader: int, writer: int, start: int, end: int) -> int:
    """Copy bytes of a file from `start` on, sharing blocks if the file system supports it; returns the offset that was
    reached."""
    position = start
    os.lseek(writer, start, os.SEEK_SET)
    while position < end:
        try:
            moved = os.copy_file_range(reader, writer, end - position, position)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            moved = os.sendfile(writer, reader, position, end - position)
        if moved == 0:
            break
        position += moved
    return position


def merge(source: Path, target: Path) -> None:
    """Move every entry of `source` that `target` lacks into `target`; folders that both have are merged.

    Entries that `target` has already are not replaced, and links in it are not followed. Each move of an entry is one
    rename, so an interrupted merge leaves no partial file and can be repeated. Raises DiskError.
    """
    with durable_files.writing(target):
        way = Descent(open_folder(target))
        try:
            for entry in walk(source):
                if entry.left:
                    way.leave()
                    continue
                entry.enter = _merged(entry, way)
        finally:
            way.close()


def _merged(entry: WalkedEntry, way: Descent) -> bool:
    """Move the entry if its name is unused in the target; returns True if the entry is a folder on both sides, which is
    then entered."""
    try:
        there = os.stat(entry.name, dir_fd=way.here, follow_symlinks=False)
    except FileNotFoundError:
        try:
            os.rename(entry.name, entry.name, src_dir_fd=entry.folder, dst_dir_fd=way.here)
        except PermissionError:
            if not entry.is_folder:
                raise
            _move_read_only(entry, way)
        return False
    if not (entry.is_folder and stat.S_ISDIR(there.st_mode)):
        return False
    way.enter(entry.name)
    return True


def _move_read_only(entry: WalkedEntry, way: Descent) -> None:
    """Move a folder that has no write permission: the mode of the folder is changed for the move, since otherwise only
    root could move it."""
    folder = open_folder(entry.name, entry.folder, repair=True)
    try:
        os.rename(entry.name, entry.name, src_dir_fd=entry.folder, dst_dir_fd=way.here)
        os.fchmod(folder, stat.S_IMODE(entry.status.st_mode))
    finally:
        os.close(folder)
