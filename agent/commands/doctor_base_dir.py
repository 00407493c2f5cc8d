"""Findings of `doctor` about the folder of all stored data, base_dir, and about the disk that it is on."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.commands.doctor_check import FAIL, OK, WARN, DoctorCheck
from agent.config.value_kinds import size_text
from agent.daemon import program_version, start_holds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings

LOW = 2 << 30
"""`doctor` warns if the disk of base_dir has fewer free bytes than LOW; the daemon starts no task below
`scheduling.min_free`."""

SYNCS, SLOW_SYNC = 5, 0.25
"""The number of disk syncs that `doctor` times, and the median duration in seconds from which it warns."""

FEW_FILES = 50_000
"""`doctor` warns if the disk has fewer than FEW_FILES free inodes, since a work tree may have many files."""

_WRITE = "give this user the folder (chown, chmod), or set context_storage.base_dir elsewhere"


def base_dir(settings: Settings) -> Iterator[DoctorCheck]:
    """Check the folder of all stored data: whether it is writable, and only this user can access it."""
    folder, name = settings.base_dir, "base_dir"
    if not settings.context_storage.enabled:
        yield DoctorCheck(
            "task folders",
            WARN,
            "context_storage.enabled is false: a task whose worker ends before it is done (a pause, a question, a stop "
            "of the daemon, a crash) forgets its conversation and begins anew",
            "set context_storage.enabled to true, unless nothing may stay on this disk",
        )
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            yield DoctorCheck(
                name, FAIL, f"{folder} is not a folder", "move it away, or set context_storage.base_dir elsewhere"
            )
            return
        if why := _why_not_made(folder):
            yield DoctorCheck(name, FAIL, f"{folder} is not there and cannot be made: {why}", _WRITE)
        else:
            yield DoctorCheck(name, OK, f"{folder} is not there yet; it is made at the first use")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield DoctorCheck(name, FAIL, f"{folder} cannot be written by this user", _WRITE)
        return
    yield from _modes(folder) or [DoctorCheck(name, OK, f"{folder} (mode {mode_of(folder):04o})")]
    try:
        if any(map(durable_files.is_locked, folder.glob("daemon*.lock"))):
            old = program_version.restart_reason(settings)
            yield DoctorCheck(
                "daemon", WARN if old else OK, old or f"a daemon works on {folder}", program_version.RESTART * bool(old)
            )
        for line in start_holds.lines(folder):
            yield DoctorCheck("starts", WARN, line, "mend what the newest of these tasks failed by (`show UUID`)")
    except OSError:
        pass  # another user owns the daemon's files and so also base_dir, which is a finding already


def _why_not_made(folder: Path) -> str:
    """The reason why a folder that does not exist cannot be made, "" if it can be made: as a test, a temporary folder
    is made in the nearest existing folder above it."""
    parent = nearest_existing(folder)
    first = parent / folder.relative_to(parent).parts[0]
    if first.exists() or first.is_symlink():
        return f"{first} is not a folder"
    try:
        with tempfile.TemporaryDirectory(prefix=".makimono-", dir=parent):
            return ""
    except OSError as error:
        return f"{parent}: {error.strerror}"


def _modes(folder: Path) -> list[DoctorCheck]:
    """Findings about folders and files that other users can read, or that have modes that block the sandbox."""
    found = []
    passable = durable_files.passable()
    modes = {
        folder: passable,
        folder / "running": passable,
        folder / "completed": 0o700,
        folder / "repos": passable & 0o710,
    }
    for path, wanted in modes.items():
        if not path.is_dir() or (path == folder and durable_files.is_unused(path)):
            continue  # the program sets the mode of an empty base_dir at its first use
        mode = mode_of(path)
        if mode & ~wanted & 0o077:
            more = "others may look into what tasks keep"
            found.append(
                DoctorCheck("base_dir", WARN, f"{path} has mode {mode:04o}: {more}", f"chmod {wanted:o} {path}")
            )
        elif wanted & 0o001 & ~mode:
            found.append(
                DoctorCheck(
                    "base_dir",
                    WARN,
                    f"{path} has mode {mode:04o}: commands run under another user and cannot reach their work tree",
                    f"chmod {wanted:o} {path}",
                )
            )
    private = [path for path in (folder / "tasks.db", folder / "memory.db") if path.is_file() and mode_of(path) & 0o077]
    found += [
        DoctorCheck("base_dir", WARN, f"{path} has mode {mode_of(path):04o}", f"chmod 600 {path}") for path in private
    ]
    return found


def mode_of(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def disk(settings: Settings) -> Iterator[DoctorCheck]:
    """Check the disk of base_dir: writable, enough free space and files, duration of a sync."""
    folder, least = settings.base_dir, settings.scheduling.min_free or 0
    place = nearest_existing(folder)
    found = os.statvfs(place)
    if not found.f_flag & os.ST_RDONLY and not folder.exists() and _why_not_made(folder):
        # No disk is checked: base_dir cannot be made (the check `base_dir` reports that), and the nearest existing
        # folder above it may be on another disk.
        return
    if folder.is_dir() and os.access(folder, os.W_OK):
        yield _speed(folder)
    free = found.f_bavail * found.f_frsize
    text = f"{free / (1 << 30):,.1f} GiB free for {folder}"
    advice = "free some space (`cleanup` removes old tasks), or set context_storage.base_dir elsewhere"
    if found.f_flag & os.ST_RDONLY:
        yield DoctorCheck("disk", FAIL, f"the file system of {place} is read-only", _WRITE)
    elif free < least:
        yield DoctorCheck(
            "disk", FAIL, f"{text}; `scheduling.min_free` is {size_text(least)}, so that no task is started", advice
        )
    elif free < max(LOW, 2 * least):
        yield DoctorCheck("disk", WARN, text, advice)
    elif found.f_files and found.f_favail < FEW_FILES:
        yield DoctorCheck("disk", WARN, f"{text}, but only {found.f_favail:,} more files are possible", advice)
    else:
        yield DoctorCheck("disk", OK, text)


def _speed(folder: Path) -> DoctorCheck:
    """A finding about the duration of a disk sync: the median of a few syncs of an unnamed temporary file."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), b"\0" * 4096)
            started = clock.monotonic()
            os.fsync(file.fileno())
            times.append(clock.monotonic() - started)
    median = sorted(times)[SYNCS // 2]
    text = f"a sync on the disk of {folder} takes {median * 1000:,.1f} ms"
    if median < SLOW_SYNC:
        return DoctorCheck("disk speed", OK, text)
    return DoctorCheck(
        "disk speed", WARN, f"{text}; a turn has several", "put context_storage.base_dir on a faster, local disk"
    )


def nearest_existing(path: Path) -> Path:
    """`path`, or the nearest existing folder above it."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return folder
    return Path("/")
