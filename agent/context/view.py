"""The file current.jsonl: what the model sees, derived, appended to where that is the same.

A small part of `MessageStore`, which alone decides what is in it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import disk
from agent.context import projection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.context.projection import Line


class View:
    """`tokens` are those of its lines; `size` is its length in bytes, which a reader may take as the end."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.size = 0
        self.tokens = 0
        self._sync = sync
        self._descriptor = -1
        self._name = str(path)
        self._identity = (0, 0)  # device and inode

    def settle(self, lines: Callable[[], Iterable[Line]]) -> bool:
        """Make the file hold exactly `lines()`; True when it was so already (then nothing is written)."""
        for leftover in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            leftover.unlink(missing_ok=True)
        tokens = projection.same(self.path, lines())
        if tokens is None:
            self.replace(lines())
            return False
        self.tokens = tokens
        self._reopen()
        return True

    def replace(self, lines: Iterable[Line]) -> None:
        """A new version: written aside, synced, renamed over the old one."""
        tokens = 0

        def chunks() -> Iterable[bytes]:
            nonlocal tokens
            for data, count in lines:
                tokens += count
                yield data

        with disk.replacing(self.path, sync=self._sync) as descriptor:
            projection.write(descriptor, chunks())
        self.tokens = tokens
        self._reopen()

    def is_ours(self) -> bool:
        """Whether the file is still the one that was written here, with nothing added or taken away."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - at each append
        except FileNotFoundError:
            return False
        return found.st_size == self.size and (found.st_dev, found.st_ino) == self._identity

    def append(self, data: bytes, tokens: int) -> None:
        """One more line."""
        disk.append(self._descriptor, data, self.path)
        self.size += len(data)
        self.tokens += tokens

    def cut_back(self) -> None:
        """Take away what a failed append may have left."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self.size)

    def sync(self) -> None:
        """Make it durable."""
        with disk.writing(self.path):
            disk.fsync(self._descriptor, self.path, data=True)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _reopen(self) -> None:
        self.close()
        with disk.writing(self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            status = os.fstat(self._descriptor)
            self.size, self._identity = status.st_size, (status.st_dev, status.st_ino)
