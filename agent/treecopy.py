"""Copy a tree that a foreign command may have written, or move it into another one.

Built on `filetree`: no link is followed, no path is joined, nothing calls itself, on either side.  Files that others
change meanwhile are copied as they were when they were opened.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent import disk
from agent.errors import DiskError
from agent.filetree import Descent, Entry, open_folder, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.filetree.descent import Order

BLOCK = 1 << 16
SHOWN = 200
UNFIT = (errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG)
"""What a file system says to a name that it does not take: vfat to `a:b`, those with a character set to other bytes."""


class Copy:
    """Copies trees: files, folders and links, with modes and times; a file of several names stays one file.  Pipes,
    sockets and devices are left out.

    `owner` gets everything that is made; None keeps the owners, as far as this user can.  `size` counts bytes of
    files, `missed` names what could not be read, one line each.
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
        wanted: Callable[[Entry], bool] = lambda _entry: True,
    ) -> None:
        """Copy the folder `source` as `target`, which may be there already.

        `wanted(entry)` says whether an entry is copied.  OSError when `source` is no folder, DiskError when `target`
        cannot be written.
        """
        top = open_folder(source)
        try:
            status = os.fstat(top)
        finally:
            os.close(top)
        with disk.writing(target):
            target.mkdir(mode=0o700, exist_ok=True)
            way = Descent(open_folder(target))
        try:
            for entry in walk(source, order=order, on_error=self._miss):
                if entry.left:
                    with disk.writing(target):
                        self._settle(way.here, entry.status)
                        way.leave()
                elif not wanted(entry):
                    entry.enter = False
                else:
                    with self._unless_unfit(entry):
                        self._entry(entry, way, target)
            with disk.writing(target):
                self._settle(way.here, status)
        finally:
            way.close()

    def _miss(self, entry: Entry, error: OSError) -> None:
        self.missed.append(f"{entry.path[:SHOWN]}: {error.strerror}")

    @contextmanager
    def _unless_unfit(self, entry: Entry) -> Iterator[None]:
        """A name that the file system of the copy does not take is missed; it says nothing of the disk."""
        try:
            yield
        except DiskError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in UNFIT):
                raise
            entry.enter = False
            self._miss(entry, cause)

    def _entry(self, entry: Entry, way: Descent, target: Path) -> None:
        if entry.is_folder:
            with disk.writing(target):
                with suppress(FileExistsError):
                    os.mkdir(entry.name, 0o700, dir_fd=way.here)
                way.enter(entry.name)
            return
        try:
            if entry.is_link:
                place = os.readlink(entry.name, dir_fd=entry.folder)
                with disk.writing(target):
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
            if error.errno not in (errno.ENOENT, errno.ELOOP):  # gone, or another thing by now
                self._miss(entry, error)

    def file(self, entry: Entry, folder: int, target: Path) -> None:
        """Copy one regular file into the folder with that descriptor."""
        reader = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=entry.folder)
        try:
            status = os.fstat(reader)
            if not stat.S_ISREG(status.st_mode):
                return
            with disk.writing(target):
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
        """Another name of a file that was copied."""
        target, parents, first = self._first[known]
        with disk.writing(target):
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
        """Owner, mode and times of what was copied."""
        if (owner := self._owner(status)) is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & self.mode_bits)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_bytes(reader: int, writer: int, status: os.stat_result) -> None:
    """Copy a file as `status` describes it.  Holes stay holes: a file of a terabyte may occupy no block.  One that was
    cut meanwhile is copied as far as it goes."""
    size = status.st_size
    if size <= BLOCK:
        disk.write_all(writer, os.read(reader, size))
        return
    position = 0
    while position < size:
        try:
            start = os.lseek(reader, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole is left
        end = min(size, os.lseek(reader, start, os.SEEK_HOLE))
        position = _copy_range(reader, writer, start, end)
        if position < end:
            break
    size = min(size, os.fstat(reader).st_size)
    if os.fstat(writer).st_size < size:
        os.ftruncate(writer, size)


def _copy_range(reader: int, writer: int, start: int, end: int) -> int:
    """Copy from `start` on, sharing blocks where the file system can; returns how far it came."""
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
    """Move every entry of `source` that `target` lacks into it; folders that both have are merged.

    What `target` has wins, and a link there is an entry, not a way.  Each move is one rename, so that one that is cut
    off leaves no half file and can be done again.  DiskError.
    """
    with disk.writing(target):
        way = Descent(open_folder(target))
        try:
            for entry in walk(source):
                if entry.left:
                    way.leave()
                    continue
                entry.enter = _merged(entry, way)
        finally:
            way.close()


def _merged(entry: Entry, way: Descent) -> bool:
    """Move the entry, where nothing has its name; whether it is a folder on both sides, which is then entered."""
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


def _move_read_only(entry: Entry, way: Descent) -> None:
    """Move a folder that its owner may not write: only root may do so without more."""
    folder = open_folder(entry.name, entry.folder, repair=True)
    try:
        os.rename(entry.name, entry.name, src_dir_fd=entry.folder, dst_dir_fd=way.here)
        os.fchmod(folder, stat.S_IMODE(entry.status.st_mode))
    finally:
        os.close(folder)
