"""Measures how much disk space a folder and everything below it use."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.filetree.descent import pass_over, walk

if TYPE_CHECKING:
    import os
    from collections.abc import Generator


def size(top: str | os.PathLike[str]) -> int:
    """The total bytes of the regular files below `top`; files in folders that cannot be read count as 0."""
    total = 0
    with suppress(OSError):
        for entry in walk(top, on_error=pass_over):
            if entry.is_file:
                total += entry.status.st_size
    return total


@dataclass(slots=True)
class Use:
    """The disk usage of a tree: `size` is in bytes on disk, `files` is the number of files and folders; a file with
    several hard links counts once. `whole` is True when the measurement of the tree is complete."""

    size: int = 0
    files: int = 0
    whole: bool = False


STEP = 256


def measuring(top: str | os.PathLike[str]) -> Generator[Use]:
    """Measure the disk usage of the tree `top`: yields the usage so far (the same object) after every STEP entries, and
    at the end with `whole` set.

    The caller of `measuring` decides when the measurement continues, so a large tree does not block the caller."""
    use = Use()
    names_of: set[tuple[int, int]] = set()
    with suppress(OSError):
        for count, entry in enumerate(walk(top, on_error=pass_over)):
            status = entry.status
            if count % STEP == STEP - 1:
                yield use
            if entry.left:
                continue
            if status.st_nlink > 1 and not entry.is_folder:
                if (status.st_dev, status.st_ino) in names_of:
                    continue
                names_of.add((status.st_dev, status.st_ino))
            use.files += 1
            use.size += status.st_blocks * 512
    use.whole = True
    yield use
