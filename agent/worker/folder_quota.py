"""Limits the size of a task's folder (`limits.folder_size`, `limits.folder_files`): work tree, files of commands,
records.

The folder is measured before each turn and while a command runs; it is measured in slices, so that a large tree delays
neither the command nor a request to stop.  A measurement stops as soon as the count so far exceeds the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from agent import clock, filetree
from agent.config.value_kinds import size_text
from agent.values import End, Outcome

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from agent.filetree import Use

SECONDS = 15.0
SLICE = 0.05
SHARE = 20
"""SECONDS: the minimum seconds between a complete measurement, which has found no limit exceeded, and the next one.
SLICE: the maximum seconds of one slice, the part of a measurement that one call makes. All slices together take about
1/SHARE of the time."""


@dataclass
class FolderQuota:
    """A call returns an outcome if the task's folder is too large; otherwise, and until the next measurement is due, it
    returns None. `limit` is the maximum size in bytes; `files` is the maximum number of files and folders."""

    folder: Path
    limit: int | None
    files: int | None = None
    next_look: float = field(default_factory=clock.monotonic)
    looking: Generator[Use] | None = None
    lock: Lock = field(default_factory=Lock)

    def __call__(self) -> Outcome | None:
        if (self.limit is None and self.files is None) or clock.monotonic() < self.next_look:
            return None
        # if another thread (the watcher of a model call) is measuring the folder, this call measures nothing
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return self._measure_slice()
        finally:
            self.lock.release()

    def _measure_slice(self) -> Outcome | None:
        if self.looking is None:
            self.looking = filetree.measuring(self.folder)
        started = now = clock.monotonic()
        for use in self.looking:
            now = clock.monotonic()
            if (outcome := self._check_use(use)) is not None:
                self._close_measuring()
                self.next_look = now  # the next call measures again, as something may be removed until then
                return outcome
            if use.whole:
                self._close_measuring()
                self.next_look = now + max(SECONDS, SHARE * (now - started))
                return None
            if now - started >= SLICE:
                break
        self.next_look = now + SHARE * (now - started)
        return None

    def close(self) -> None:
        """Close the descriptors of the folder."""
        with self.lock:
            self._close_measuring()

    def _close_measuring(self) -> None:
        if self.looking is not None:
            self.looking.close()
            self.looking = None

    def _check_use(self, use: Use) -> Outcome | None:
        if self.limit is not None and use.size > self.limit:
            return _too_much("folder_size", size_text(self.limit), f"{use.size / (1 << 20):,.0f} MiB", use)
        if self.files is not None and use.files > self.files:
            return _too_much("folder_files", f"{self.files:,}", f"{use.files:,} files and folders", use)
        return None


def _too_much(key: str, limit: str, held: str, use: Use) -> Outcome:
    least = "" if use.whole else " at least"
    return Outcome(
        End.LIMIT,
        code=f"limit_{key}",
        summary=f"`limits.{key}` is {limit}; the task's folder holds{least} {held}. Raise it in config.yaml, or leave "
        f"less in the work tree, and start the task again to go on.",
    )
