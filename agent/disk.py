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
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.errors import DiskError, LockHeld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BLOCK = 1 << 16
COPY = 1 << 20
LOCK_TRIES = 10

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and resume the task",
    errno.EDQUOT: "the quota is used up; free some space and resume the task",
    errno.EROFS: "the file system is read-only; make it writable or set context_storage.base_dir elsewhere",
    errno.EACCES: "permission denied; check owner and mode",
    errno.EPERM: "not permitted; check owner and mode",
    errno.EFBIG: "the file would be larger than allowed",
}


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
    """Make `path` and its parents; a directory that is made gets exactly `mode`, an existing one keeps its own."""
    if path.is_dir():
        return path
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=mode)
            path.chmod(mode)
    return path


def claim_dir(path: Path, mode: int) -> Path:
    """`make_dir`; a directory of ours that holds nothing yet, as a fresh clone has it, gets `mode` too."""
    make_dir(path, mode)
    if is_unused(path) and path.stat().st_uid == os.geteuid():
        with suppress(OSError):  # a file system without modes
            path.chmod(mode)
    return path


def is_unused(path: Path) -> bool:
    """Whether the directory holds nothing, or a `.gitkeep` only."""
    return all(name == ".gitkeep" for name in os.listdir(path))  # noqa: PTH208 - names only


def sync_dir(path: Path) -> None:
    """fsync a directory, so that a rename in it is durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Make all that was written below `path` durable: one syncfs (elsewhere sync) for thousands of files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise disk_error(path, OSError(code, os.strerror(code)))
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
                os.fsync(descriptor)
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
    try:
        written = os.write(descriptor, data)
    except OSError as error:
        # Nothing or a part may be there; only the length tells.  The caller is the one writer of this file.
        raise disk_error(path, error) from error
    if written != len(data):
        with writing(path):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise disk_error(path, OSError(errno.ENOSPC, "short write"))


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
    """Whether a live process holds the flock on `path` (False when the file is not there)."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the flock on `path`, waiting for it; yields its descriptor.

    A child that inherits the descriptor holds the lock too, until it ends, also when this process dies first.
    """
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


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
