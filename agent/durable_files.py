"""Writes files durably: one write per line, a temporary file with fsync and rename, flock; symlinks are not followed.

The functions of this module convert an OSError of a write into a DiskError with the path and advice, except `fsync`,
`sync_dir`, `write_all`, `copy_range` and `open_beneath`, whose callers use `writing`; an OSError of a read is not
changed. A kill -9 can still tear a line of a file that one call writes (docs/files.md).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

from agent import deadline
from agent.errors import DiskError, LockHeld, StopHeard
from agent.filetree import FOLDER, Identity, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

BLOCK = 1 << 16
COPY = 1 << 20
LOCK_TRIES = 10
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.2
"""Seconds between two attempts of `locked` to get the file lock: the shortest and the longest pause."""
LONGEST_WAIT = 7200.0
"""The maximum seconds that `locked` waits for the file lock, since another process that holds it may be cloning a large
repository."""

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and resume the task",
    errno.EDQUOT: "the quota is used up; free some space and resume the task",
    errno.EROFS: "the file system is read-only; make it writable or set context_storage.base_dir elsewhere",
    errno.EACCES: "permission denied; check owner and mode",
    errno.EPERM: "not permitted; check owner and mode",
    errno.EFBIG: "a file may not become that large here; raise the limit (ulimit -f) and resume the task",
}


SLOW = 1.0
"""A write or a sync that takes at least this many seconds is reported to the listener of `on_slow`."""

_listeners: list[Callable[[str, str, float], None]] = []


def on_slow(listener: Callable[[str, str, float], None]) -> None:
    """From now on call `listener(path, what, seconds)` for every slow write and sync of this process, in place of the
    listener before, which is called again after `off_slow(listener)`."""
    _listeners.append(listener)


def off_slow(listener: Callable[[str, str, float], None]) -> None:
    """Forget a listener of `on_slow`; nothing happens if it is not known."""
    with suppress(ValueError):
        _listeners.remove(listener)


def took(path: str | os.PathLike[str], what: str, started: float) -> None:
    """Report an operation that began at `started` (time.monotonic) and ended now, if it was slow."""
    seconds = time.monotonic() - started
    if seconds >= SLOW:
        for listener in _listeners[-1:]:
            listener(os.fspath(path), what, seconds)


def fsync(descriptor: int, path: str | os.PathLike[str], *, data: bool = False) -> None:
    """Call fsync, or with `data` fdatasync, on the file. A call of fsync has no time limit."""
    started = time.monotonic()
    if data:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
    took(path, "sync", started)


def advice(error: OSError) -> str:
    """The cause and advice for the operator, if the error number is in `_ADVICE`; else the error text of the system."""
    return _ADVICE.get(error.errno or 0, error.strerror or str(error))


def disk_error(path: str | os.PathLike[str], error: OSError) -> DiskError:
    """A DiskError for `error`, with the path and advice."""
    return DiskError(f"cannot write {os.fspath(path)}: {advice(error)}")


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Translate OSError to DiskError inside the block."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def make_dir(path: Path, mode: int = 0o700) -> Path:
    """Make the directory `path` and its parents.

    A new directory `path` gets exactly `mode`, its new parents the default mode; the mode of directories that existed
    before does not change.

    The names of the new directories are durable when `make_dir` returns, since synced files are lost if the name of
    their folder is lost.
    """
    if path.is_dir():
        return path
    with writing(path):
        there = next(parent for parent in path.parents if parent.is_dir())
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=mode)
            path.chmod(mode)
        for parent in path.parents:
            sync_dir(parent)
            if parent == there:
                break
    return path


def claim_dir(path: Path, mode: int) -> Path:
    """Like `make_dir`, but also sets `mode` on an empty directory that belongs to this user, as in a fresh clone.

    A directory without write permission for its owner is left unchanged, since somebody set that mode on purpose.
    Raises DiskError if the directory or a parent cannot be read or entered.
    """
    try:
        make_dir(path, mode)
        status = path.stat()
        unused = is_unused(path)
    except OSError as error:  # for example, the directory or a parent cannot be entered
        raise DiskError(f"cannot use {os.fspath(path)}: {advice(error)}") from error
    if status.st_uid == os.geteuid() and status.st_mode & stat.S_IWUSR and unused:
        with suppress(OSError):  # a file system without modes refuses `chmod`, and the mode stays
            path.chmod(mode)
    return path


def temporary(fallback: Path) -> None:
    """Make `fallback` the folder for temporary files of this process and its children, if the machine has none.

    A container without /tmp, or with a read-only root, has no folder for temporary files."""
    with suppress(FileNotFoundError):
        # The last candidate of `tempfile` is the current folder, which may contain a person's files.
        if tempfile.gettempdir() != os.path.abspath(os.curdir):  # noqa: PTH100 - `tempfile` uses abspath
            return
    make_dir(fallback.parent, passable())
    tempfile.tempdir = str(make_dir(fallback, passable()))
    # only child processes read the variable TMPDIR; in this process only `config` may use os.environ
    os.putenv("TMPDIR", tempfile.tempdir)


def is_unused(path: Path) -> bool:
    """Whether the directory is empty except for a `.gitkeep`."""
    return all(name == ".gitkeep" for name in os.listdir(path))  # noqa: PTH208 - names suffice


def is_real_dir(path: Path) -> bool:
    """Whether `path` is a directory, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def identity(path: str | os.PathLike[str]) -> Identity | None:
    """Device number and inode number of the file at `path`; None if the file cannot be examined, for example because
    there is none. As long as a process has the file open, no other file has the same numbers; later a new file may get
    them."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - a fast call of stat, since `identity` runs at each SQL statement
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sync_dir(path: Path) -> None:
    """Sync a directory, so that a rename in it is durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync(descriptor, path)
    finally:
        os.close(descriptor)


@cache
def libc() -> ctypes.CDLL:
    """The C library, for functions that the module `os` lacks.

    The object of the C library is cached, since ctypes makes a new library class for each call.
    """
    return ctypes.CDLL(None, use_errno=True)


def sync_tree(path: Path) -> None:
    """Make all writes below `path` durable by one call that syncs the whole file system: syncfs, or sync if the C
    library has no syncfs."""
    descriptor = os.open(path, FOLDER)
    try:
        started = time.monotonic()
        syncfs = getattr(libc(), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise disk_error(path, OSError(code, os.strerror(code)))
        took(path, "sync", started)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, sync: bool = True) -> Iterator[int]:
    """Write a new version of `path`: yields the descriptor of a temporary file in the same folder.

    The temporary file is synced (unless `sync` is False) and renamed over `path` at the end of the block, or removed if
    the block raises. An OSError in the block becomes a DiskError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        # The temporary file may exist already: a dead process with the same process id left it, or another user made
        # it. An existing temporary file is removed before a new one is opened: if it were a FIFO, opening it would
        # block.
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        if mode & 0o077:  # the mode of a file that other users may read must not depend on the umask
            os.fchmod(descriptor, mode)
    try:
        yield descriptor
        with writing(path):
            if sync:
                fsync(descriptor, path)
            os.close(descriptor)
            descriptor = -1
            temporary.rename(path)
            if sync:
                sync_dir(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_file(path: Path, data: bytes | Iterable[bytes], mode: int = 0o600, *, sync: bool = True) -> None:
    """Replace `path` atomically with `data`."""
    with replacing(path, mode, sync=sync) as descriptor:
        for chunk in (data,) if isinstance(data, bytes) else data:
            write_all(descriptor, chunk)


def append(descriptor: int, data: bytes, path: Path) -> None:
    """Append `data` to a descriptor that was opened with O_APPEND, in one write unless the system cuts the write short.
    If the rest after a short write cannot be written, the file gets its former length back, and DiskError is raised."""
    started = time.monotonic()
    try:
        written = os.write(descriptor, data)
    except OSError as error:
        raise disk_error(path, error) from error
    if written != len(data):
        # the file ends with what was written, since only the caller writes to the file
        before = os.fstat(descriptor).st_size - written
        try:
            # only a part of `data` was written: writing the rest usually raises the error that explains it
            write_all(descriptor, data[written:])
        except OSError as error:
            with writing(path):
                os.ftruncate(descriptor, before)
            raise disk_error(path, error) from error
    took(path, "write", started)


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """At most `size` bytes of the file from `position`.

    `read_at` moves the position of the descriptor, so two threads must not use it on the same descriptor at once.
    `pread` would not move the position, but pyfakefs lacks `pread`, and people test code that embeds the stores with
    pyfakefs."""
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.read(descriptor, size)


def read_backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file before the offset `end`, the last line first, as (offset, line without newline), without
    empty lines; the file is read in blocks of 64 KiB."""
    rest: list[bytes] = []  # the blocks of a line whose beginning is not read yet, the last block first
    position = end
    while position > 0:
        size = min(BLOCK, position)
        position -= size
        block = read_at(descriptor, size, position)  # shorter than `size` if the file has shrunk meanwhile
        lines = block.split(b"\n")
        offset = position + len(block)
        while len(lines) > 1:
            part = lines.pop()
            offset -= len(part)
            line = b"".join((part, *reversed(rest)))
            rest = []
            if line:
                yield offset, line
            offset -= 1
        rest.append(lines[0])
    if line := b"".join(reversed(rest)):
        yield 0, line


def copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy the bytes from `start` to `end` of the file `source` to the position of the descriptor `target`, inside the
    kernel. Raises OSError if `source` is shorter than `end`."""
    position = start
    while position < end:
        moved = os.sendfile(target, source, position, end - position)
        if moved == 0:
            raise OSError(errno.EIO, "source is shorter than expected")
        position += moved


def lock(path: Path, mode: int = 0o600) -> int:
    """Take the flock on `path`; returns a descriptor that holds the lock until the descriptor is closed or the process
    dies.

    Raises LockHeld if another process has the lock on `path`. The descriptor of a lock is opened with O_CLOEXEC, since
    a tool that this process starts must not inherit it. `lock` tries for a tenth of a second, because `is_locked` in
    another process holds the lock for an instant.
    """
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    for last in (False,) * LOCK_TRIES + (True,):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if last:
                os.close(descriptor)
                raise LockHeld(f"{path} is locked by another process") from None
            time.sleep(0.01)
    return descriptor


def unlock(descriptor: int) -> None:
    """Release the lock by closing the descriptor that `lock` returned."""
    os.close(descriptor)


def open_regular(path: Path) -> int:
    """Open a regular file for reading; returns its descriptor. Raises OSError if the path names a symbolic link, a
    pipe, a device or a folder; `open_regular` never waits for the writer of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a live process holds the flock on `path`.

    `is_locked` returns False if there is no file at `path`, or a link in its place. `is_locked` also finds a lock on a
    read-only file system, and on a file without write permission. Raises OSError if it cannot be determined whether the
    file is locked.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in the place of the lock file does not block
    try:
        try:
            # NFS grants an exclusive lock only to a descriptor that is open for writing
            descriptor = os.open(path, os.O_RDWR | flags)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            descriptor = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Wait for the flock on `path` and hold it inside the block; yields the descriptor of the file.

    Raises StopHeard if the task shall stop before the lock is free, LockHeld after LONGEST_WAIT, and the error of
    `deadline.interrupt`.

    A child process that inherits the descriptor of the lock also holds the lock until the child ends, even if this
    process dies first.
    """
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with deadline.within(f"wait for {path.name}", LONGEST_WAIT):
            _wait_for(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path) -> None:
    """Take the flock on `path` within LONGEST_WAIT seconds. The wait for a lock polls, since a blocking system call
    would not notice that the task shall stop."""
    until = time.monotonic() + LONGEST_WAIT
    pause = SHORTEST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            deadline.check()
            if deadline.is_stopping():
                raise StopHeard(f"the wait for {path} ended, because the task was told to end") from None
            if time.monotonic() > until:
                raise LockHeld(f"{path} has been locked by another process for {LONGEST_WAIT:g} s") from None
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def open_beneath(root: int, relative: str, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open the path `relative` below the directory descriptor `root`, following no symlink in any part of the path.

    Raises OSError: ELOOP or ENOTDIR for a symlink in the path, EXDEV for a path that leaves the directory (`..`,
    absolute). The file is opened with O_NONBLOCK, so that a FIFO does not block; the caller checks the type of the
    opened file.
    """
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if relative.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, "path leaves the work tree", relative)
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            step = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = step
        name = parts[-1] if parts else "."
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode, dir_fd=current)
    finally:
        os.close(current)


def stat_beneath(top: Path, relative: str) -> os.stat_result:
    """The status of `relative` below the folder `top`; for a link the status of the link itself, following no symlink
    in the path.

    Raises OSError.
    """
    folder, _, name = relative.rpartition("/")
    root = open_folder(top)
    try:
        parent = open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(root)
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def is_regular(descriptor: int) -> bool:
    """Whether the descriptor belongs to a regular file."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def move_dir(source: Path, target: Path) -> None:
    """Rename a directory and sync both parent folders, so that the move survives a power loss."""
    with writing(target):
        source.rename(target)
        sync_dir(target.parent)
        sync_dir(source.parent)


def passable() -> int:
    """The mode of the folders above a task's work tree: 0711 for root, since commands run under another uid, else 0700
    (docs/security.md, "Commands")."""
    return 0o711 if os.geteuid() == 0 else 0o700
