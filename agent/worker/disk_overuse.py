"""If the disk is full, ends the task with the largest growth of its folder, so that the other tasks can continue.

Each worker measures the disk only on behalf of its own task, and ends only this task. If the disk of base_dir has less
free space than `scheduling.min_free` (or too few free inodes), the worker compares the growth of its task's folder with
that of the other running tasks of this base_dir. The task with the largest growth ends; the others continue. A lock
file ensures that only one task at a time ends because of a full disk.

The task that ends because of a full disk removes files that commands left in its work tree (files unknown to git that
no tool wrote) until enough space is free: the largest first if bytes are missing, the newest first if inodes are
missing. The freed space is for the other tasks and for the commit of the task that ends, in which git stores each
remaining file a second time as an object. If the removal frees enough space, the checks of the other tasks succeed
again.

If all tasks together have grown by less than the missing space, another program has filled the disk. If another program
filled the disk, no task ends, and a task that cannot write waits (`daemon/disk_monitor.py`). A task that is the only
running one also waits for disk space, unless the removal of its files frees enough.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import orjson

from agent import clock, durable_files, filetree
from agent.errors import DiskError, LockHeld
from agent.values import End, Outcome
from agent.wiring.disk_space import LEAST_SIZE, missing_space

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.filetree import Use

T = TypeVar("T")

CODE = "limit_disk"
SECONDS = 1.0
"""Seconds between two checks of the free disk space."""
PATIENCE = 10.0
"""Seconds until this task measures the folders again after it found that it need not end; also the longest time that
`DiskOveruse.check_now` waits while another task measures the folders or removes its files."""
TICK = 0.1
LONGEST = 5.0
"""Maximum seconds for measuring one task's folder; after that, the count so far is used."""
AT_ONCE = 0.2
"""Maximum seconds that a task waits at its start until its folder is measured; a folder that takes longer is measured
in a thread."""

AGAIN = 10
"""The factor by which the required number of free inodes is multiplied when files are removed: a new task needs some
hundred inodes at once.

The required number of free bytes is not multiplied; LEAST_SIZE bytes are added to it as a reserve.
"""

FAN_OUT = 256
"""The maximum number of folders in which git stores the objects of a repository."""

NAME = "size.json"
"""The file in a task's folder that has the size of the folder at the start of the attempt."""
LOCK = ".overgrown"
NAMED = 5


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much a task's folder has grown: bytes on disk, and number of files and folders."""

    uuid: str
    size: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The files in the work tree `tree` that git does not know.

    `names`: all files that git does not know. `taken`: the files of `names` that a commit would include. `written`: the
    files of `names` that tools wrote, which are not removed."""

    tree: Path
    names: Collection[str]
    taken: Collection[str]
    written: Collection[str]


class DiskOveruse:
    """Checks for the task with the folder `folder` whether the task must end because the disk is full.

    A call returns an outcome if the task must end by the rules in the module's docstring, else None. A call within
    SECONDS after the last check, or within PATIENCE after a check that did not choose this task, checks nothing and
    returns None. `left` is a function that returns the files that commands left, None while the task has no work tree.
    """

    def __init__(self, settings: Settings, folder: Path, left: Callable[[], Leftovers | None]) -> None:
        self.settings = settings
        self.folder = folder
        self.left = left
        self.next_look = clock.monotonic()
        self.lock = threading.Lock()
        self.held: int | None = None  # descriptor of the lock by which only one task ends at a time
        self.outcome: Outcome | None = None

    def start(self) -> None:
        """Record the size of the folder before the model works."""
        use = _measure(self.folder, AT_ONCE)
        if use.whole:
            self._record_size(use)
        else:
            threading.Thread(target=lambda: self._record_size(_measure(self.folder, 1e9)), daemon=True).start()

    def _record_size(self, use: Use) -> None:
        # If the size at the start cannot be recorded, the whole folder counts as growth.
        with suppress(DiskError, LockHeld, OSError):
            durable_files.write_file(
                self.folder / NAME, orjson.dumps({"size": use.size, "files": use.files}), sync=False
            )
            durable_files.unlock(durable_files.lock(self.settings.base_dir / LOCK))

    def __call__(self) -> Outcome | None:
        if clock.monotonic() < self.next_look or not self.lock.acquire(blocking=False):
            return None
        try:
            self.next_look = clock.monotonic() + SECONDS
            return self._check_disk()
        except LockHeld:
            return None
        finally:
            self.lock.release()

    def check_now(self) -> Outcome | None:
        """Check the disk now, because a write has failed; returns as `__call__` does. Once this task has been chosen to
        end, every check returns the same outcome.

        `check_now` waits up to PATIENCE while another task measures the folders or removes its files. `check_now` is
        called before a task pauses because of a full disk: a paused task would keep all its files, and no other task
        could end it."""
        until = clock.monotonic() + PATIENCE
        with self.lock:
            while clock.monotonic() < until:
                with suppress(LockHeld):
                    return self._check_disk()
                clock.sleep(TICK)
        return None

    def _check_disk(self) -> Outcome | None:
        """The outcome that ends this task because of a full disk; None if the disk has enough space, or if this task is
        not the one that should end.

        Raises LockHeld while another task measures the folders or ends because of the full disk.
        """
        if self.outcome is not None:
            return self.outcome
        size, files = missing_space(self.settings)
        if not size and not files:
            return None
        held = None
        try:
            held = durable_files.lock(self.settings.base_dir / LOCK)
        except DiskError:  # the disk has no space even for the lock file, so this task decides without it
            pass
        self.outcome = self._decide("files" if files else "size", files or size)
        if self.outcome is not None:
            self.held = held
        else:
            self.next_look = clock.monotonic() + PATIENCE
            if held is not None:
                durable_files.unlock(held)
        return self.outcome

    def _decide(self, by: str, lack: int) -> Outcome | None:
        grown = [growth_of(folder) for folder in self._running()]
        most = max(grown, key=lambda one: (getattr(one, by), one.uuid))
        if most.uuid != self.folder.name or sum(map(attrgetter(by), grown)) < lack:
            return None
        if len(grown) == 1 and self._removable(by) < lack:
            return None
        amount = f"{most.files:,} files" if by == "files" else f"{most.size / (1 << 20):,.0f} MiB"
        beside = f", most of the {len(grown)} tasks that ran" if len(grown) > 1 else ""
        grew = f"the task's folder had grown by {amount}{beside}"
        advice = "Use a larger disk, or leave less in the work tree, and start the task again to go on."
        said = f"the disk of {self.settings.base_dir} was full, and {grew}. {advice}"
        return Outcome(End.LIMIT, code=CODE, summary=said)

    def free_space(self, *, whole: bool = False) -> list[str]:
        """Remove the home folder of the commands, and files that commands left in the work tree, until the disk has
        enough free space.

        `free_space` removes the largest or newest files first, and returns sentences about the removed files. After the
        removal `free_space` releases the lock, and the other tasks check the disk again. If no check has chosen this
        task to end because of the full disk, no file is removed. With `whole` True, because a
        commit of the remaining files failed, all files that commands left are removed if the disk is still full."""
        if self.outcome is None or (whole and not any(missing_space(self.settings))):
            return []
        try:
            return self._freed(whole=whole)
        finally:
            if self.held is not None:
                durable_files.unlock(self.held)
                self.held = None

    def run_or_end(self, work: Callable[[], Outcome]) -> Outcome:
        """Returns the outcome of `work`.  If `work` fails because the disk is full and this task must end, returns the
        outcome that ends the task; any other DiskError is raised."""
        try:
            return work()
        except DiskError:
            if (outcome := self.check_now()) is None:
                raise
            return outcome

    def retry_with_space(self, call: Callable[[], T], reports: list[str]) -> T:
        """Run `call`; if that fails because the disk is full and this task ends because of that, remove all files that
        commands left, and run `call` once more.

        Sentences about the removed files are added to `reports`.  Raises DiskError if no file was removed, or if `call`
        fails again.
        """
        try:
            return call()
        except DiskError:
            removed = self.free_space(whole=True)
            if not removed:
                raise
            reports.extend(removed)
            return call()

    def _freed(self, *, whole: bool) -> list[str]:
        if not any(missing_space(self.settings)):
            return []
        with suppress(OSError):
            filetree.remove(self.folder / "home")
        by = "files" if missing_space(self.settings)[1] else "size"
        if (left := self.left()) is None:
            return []
        taken = dict(_sizes(left.tree, left.taken))
        kept, removed = sum(taken.values()), []
        times, spare = (AGAIN, 0) if by == "files" else (1, LEAST_SIZE)
        for _, size, name in sorted(_removable(left, by), reverse=True):
            # bytes and inodes that the commit needs for its copies of the files
            beside = (kept + spare, len(taken) + min(len(taken), FAN_OUT))
            if not whole and not any(missing_space(self.settings, times, beside)):
                break
            with suppress(OSError):
                _remove_beneath(left.tree, name)
                removed.append((name, size))
                kept -= taken.pop(name, 0)
        if not removed:
            return []
        listed = ", ".join(filetree.printable(name) for name, _ in removed[:NAMED])
        more = f" and {len(removed) - NAMED:,} more" if len(removed) > NAMED else ""
        total = sum(size for _, size in removed) / (1 << 20)
        return [f"the disk was full, so files that git did not know were removed ({total:,.0f} MiB): {listed}{more}"]

    def _removable(self, by: str) -> int:
        left = self.left()
        sizes = [] if left is None else [size for _, size, _ in _removable(left, by)]
        return len(sizes) if by == "files" else sum(sizes)

    def _running(self) -> list[Path]:
        """Folders of the tasks on which a process works, including this task."""
        top = self.settings.base_dir / "running"
        others = [one for one in top.iterdir() if one.name != self.folder.name and durable_files.is_real_dir(one)]
        return [self.folder, *(one for one in others if _is_worked_on(one))]


def growth_of(folder: Path) -> Growth:
    """By how much a task's folder has grown since its attempt began; its whole size if the size at the start is
    unknown."""
    use = _measure(folder)
    try:
        before = orjson.loads((folder / NAME).read_bytes())
        return Growth(folder.name, max(0, use.size - int(before["size"])), max(0, use.files - int(before["files"])))
    except (OSError, ValueError, KeyError, TypeError):
        return Growth(folder.name, use.size, use.files)


def _measure(folder: Path, seconds: float = LONGEST) -> Use:
    until = clock.monotonic() + seconds
    looking = filetree.measuring(folder)
    try:
        for use in looking:
            if use.whole or clock.monotonic() > until:
                return use
    finally:
        looking.close()
    return use


def _is_worked_on(folder: Path) -> bool:
    try:
        return durable_files.is_locked(folder / "lock")
    except OSError:
        return False


def _regular(tree: Path, names: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    for name in names:
        with suppress(OSError):
            status = durable_files.stat_beneath(tree, name)
            if stat.S_ISREG(status.st_mode):
                yield name, status


def _sizes(tree: Path, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields (name, bytes on disk) for the regular files among `names`."""
    return ((name, status.st_blocks * 512) for name, status in _regular(tree, names))


def _removable(left: Leftovers, by: str) -> Iterator[tuple[int, int, str]]:
    """Yields (sort key, bytes on disk, name) for the files in a work tree that may be removed. The sort key is the time
    of change if `by` is "files", else the bytes on disk."""
    for name, status in _regular(left.tree, left.names):
        size = status.st_blocks * 512
        if name not in left.written and (by == "files" or size):
            yield (status.st_ctime_ns if by == "files" else size), size, name


def _remove_beneath(tree: Path, path: str) -> None:
    folder, _, name = path.rpartition("/")
    top = filetree.open_folder(tree)
    try:
        parent = durable_files.open_beneath(top, folder, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(top)
    try:
        filetree.remove(name, within=parent)
    finally:
        os.close(parent)
