"""Files the way SQLite would write them: one write a line, temp + fsync + rename, flock, no symlink followed.

Every function turns an OSError of a *write* into DiskError with the path and what to do; reads raise OSError as is.
See docs/files.md; a line written by one call can still be torn by kill -9.
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

from agent import step
from agent.errors import DiskError, LockHeld, StopHeard
from agent.filetree import FOLDER, Identity, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

BLOCK = 1 << 16
COPY = 1 << 20
LOCK_TRIES = 10
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.2
"""Seconds between two tries of `locked`."""
LONGEST_WAIT = 7200.0
"""Seconds that `locked` may wait: somebody else clones a large repository meanwhile."""

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and resume the task",
    errno.EDQUOT: "the quota is used up; free some space and resume the task",
    errno.EROFS: "the file system is read-only; make it writable or set context_storage.base_dir elsewhere",
    errno.EACCES: "permission denied; check owner and mode",
    errno.EPERM: "not permitted; check owner and mode",
    errno.EFBIG: "a file may not become that large here; raise the limit (ulimit -f) and resume the task",
}


SLOW = 1.0
"""Seconds from which a write or a sync is told to whoever asked for it by `on_slow`."""

_told: Callable[[str, str, float], None] | None = None


def on_slow(listener: Callable[[str, str, float], None] | None) -> None:
    """`listener(path, what, seconds)` hears of every slow write and sync of this process from now on; None: nobody."""
    global _told  # noqa: PLW0603 - one process has one place that hears
    _told = listener


def took(path: str | os.PathLike[str], what: str, started: float) -> None:
    """Tell of what began at `started` (time.monotonic) and is done now, if it was slow."""
    seconds = time.monotonic() - started
    if seconds >= SLOW and _told is not None:
        _told(os.fspath(path), what, seconds)


def fsync(descriptor: int, path: str | os.PathLike[str], *, data: bool = False) -> None:
    """fsync, or fdatasync with `data`.  It may take as long as the disk wants to: nobody here is in a hurry."""
    started = time.monotonic()
    if data:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
    took(path, "sync", started)


def disk_error(path: str | os.PathLike[str], error: OSError) -> DiskError:
    """The DiskError for `error`, with the path and what to do."""
    advice = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    return DiskError(f"cannot write {os.fspath(path)}: {advice}")


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Translate OSError to DiskError inside the block."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def make_dir(path: Path, mode: int = 0o700) -> Path:
    """Make `path` and its parents; a directory that is made gets exactly `mode`, an existing one keeps its own.

    Their names are durable at the return: what is synced in a folder is lost with the folder's name.
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
    """`make_dir`; a directory of ours that holds nothing yet, as a fresh clone has it, gets `mode` too.  One that its
    owner may not write was made so on purpose and stays."""
    make_dir(path, mode)
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & stat.S_IWUSR and is_unused(path):
        with suppress(OSError):  # a file system without modes
            path.chmod(mode)
    return path


def temporary(fallback: Path) -> None:
    """Where this machine has no folder for temporary files (a container without /tmp, a read-only root), let `tempfile`
    and every process below this one use `fallback`, which is made."""
    with suppress(FileNotFoundError):
        # The last that `tempfile` tries is the current folder, which holds somebody's files.
        if tempfile.gettempdir() != os.path.abspath(os.curdir):  # noqa: PTH100 - as `tempfile` spells it
            return
    make_dir(fallback.parent, passable())
    tempfile.tempdir = str(make_dir(fallback, passable()))
    os.putenv("TMPDIR", tempfile.tempdir)  # read by children alone; os.environ belongs to `config`


def is_unused(path: Path) -> bool:
    """Whether the directory holds nothing, or a `.gitkeep` only."""
    return all(name == ".gitkeep" for name in os.listdir(path))  # noqa: PTH208 - names only


def is_real_dir(path: Path) -> bool:
    """Whether `path` is a directory itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def identity(path: str | os.PathLike[str]) -> Identity | None:
    """What tells the file at `path` from another one of the same name, None when there is none (that can be seen)."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - at each statement of a database
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sync_dir(path: Path) -> None:
    """fsync a directory, so that a rename in it is durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync(descriptor, path)
    finally:
        os.close(descriptor)


@cache
def libc() -> ctypes.CDLL:
    """The C library, for what `os` lacks.  Kept: to ctypes each time is a new library, with a class of its own."""
    return ctypes.CDLL(None, use_errno=True)


def sync_tree(path: Path) -> None:
    """Make all that was written below `path` durable: one syncfs (elsewhere sync) for thousands of files."""
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
    """Write a new version of `path`: yields a descriptor of a temporary file in the same folder, which is synced
    and renamed over `path` when the block ends well and removed when it does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        # Left by a process of the same number, or put there by somebody (a FIFO would hang the write).
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        if mode & 0o077:  # what others are to read must not depend on the umask
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
    """Append `data` in one write to an O_APPEND descriptor; a short or failed write is cut back before the error."""
    started = time.monotonic()
    try:
        written = os.write(descriptor, data)
    except OSError as error:
        # Nothing or a part may be there; only the length tells.  The caller is the one writer of this file.
        raise disk_error(path, error) from error
    if written != len(data):
        before = os.fstat(descriptor).st_size - written
        try:
            write_all(descriptor, data[written:])  # only the write of the rest tells what stands in its way
        except OSError as error:
            with writing(path):
                os.ftruncate(descriptor, before)
            raise disk_error(path, error) from error
    took(path, "write", started)


def read_backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines before offset `end`, last first, as (offset, line without newline); reads 64 KiB blocks."""
    rest = b""
    position = end
    while position > 0:
        size = min(BLOCK, position)
        position -= size
        block = os.pread(descriptor, size, position) + rest
        lines = block.split(b"\n")
        rest = lines[0]
        offset = position + len(block)
        for line in reversed(lines[1:]):
            offset -= len(line)
            if line:
                yield offset, line
            offset -= 1
    if rest:
        yield 0, rest


def copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy bytes `start` to `end` of one descriptor to the end of the other, inside the kernel where it can."""
    position = start
    while position < end:
        moved = os.sendfile(target, source, position, end - position)
        if moved == 0:
            raise OSError(errno.EIO, "source is shorter than expected")
        position += moved


def lock(path: Path, mode: int = 0o600) -> int:
    """Take the flock on `path`, or say who cannot; returns the descriptor, which holds it until closed or death.

    LockHeld when somebody else has it.  O_CLOEXEC: a tool that this process starts must not inherit it.  It is tried
    for a tenth of a second, because `is_locked` of another process holds it for an instant.
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
    """Give back what `lock` returned."""
    os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a live process holds the flock on `path`.

    False when there is no file, or a link in its place.  A file system that has become read-only, or a file that may
    not be written, hides no lock.  OSError when it cannot be told.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | flags)  # over NFS only a writer gets the lock for himself
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
    """Hold the flock on `path`, waiting for it; yields its descriptor.  StopHeard when the task was told to end
    meanwhile, LockHeld after LONGEST_WAIT.

    A child that inherits the descriptor holds the lock too, until it ends, also when this process dies first.
    """
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with step.within(f"wait for {path.name}", LONGEST_WAIT):
            _wait_for(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path) -> None:
    """Take the flock, at the latest after LONGEST_WAIT.  A system call that waits would hear nothing meanwhile."""
    until = time.monotonic() + LONGEST_WAIT
    pause = SHORTEST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            step.check()
            if step.told():
                raise StopHeard(f"the wait for {path} ended, because the task was told to end") from None
            if time.monotonic() > until:
                raise LockHeld(f"{path} has been locked by another process for {LONGEST_WAIT:g} s") from None
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def open_beneath(root: int, relative: str, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open `relative` below the directory descriptor `root`, following no symlink at any step.

    Raises OSError: ELOOP or ENOTDIR for a symlink on the way, EXDEV for a path that leaves (`..`, absolute).
    O_NONBLOCK keeps a FIFO from hanging; the caller checks the type.
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
    """The status of `relative` below the folder `top`, a link's own, following no symlink at any step.  OSError."""
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
    """Whether the descriptor is a regular file."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def move_dir(source: Path, target: Path) -> None:
    """Rename a directory and sync both parents, so that the move survives a power loss."""
    with writing(target):
        source.rename(target)
        sync_dir(target.parent)
        sync_dir(source.parent)


def passable() -> int:
    """Mode of a folder on the way to a task's work tree: 0711 as root, where commands run under another uid, else
    0700 (design: section 4)."""
    return 0o711 if os.geteuid() == 0 else 0o700
