"""Represents the items that a cleanup removed, with their sizes. The size of a removed item does not include the
targets of its symlinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import filetree
from agent.errors import LedgerError
from agent.observe.error_tolerant_loop import ItemLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    OnFailure = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Removed:
    """One task that was removed, or in a dry run would be removed; `size` is the number of bytes of the files that were
    removed.

    A removed item that is not a task has its own name or path as `uuid`, and `replay`, `deliberation`, `quarantine`,
    `unlisted`, `setup`, `check`, `mirror` or `branch` as status. `until`: the row, and the files about the task's end,
    stay until this time; only the other files of the folder are removed."""

    uuid: str
    status: str
    completed_at: str
    size: int
    until: str = ""


def remove_each(
    items: Iterable[Path], remove: Callable[[Path], Removed | None], failed: OnFailure
) -> Iterator[Removed]:
    """Call `remove` for each item and yield the results.

    An item that cannot be removed is passed to `failed(name, why)`, and the loop continues. After the loop, LedgerError
    is raised if the ledger failed.
    """
    loop = ItemLoop(failed, whole=(LedgerError,))
    for item in items:
        removed = None
        with loop.handling(item.name):
            removed = remove(item)
        if removed is not None:
            yield removed
    loop.finish()


def size_of(path: Path) -> int:
    """The bytes of a file, or of the regular files below a folder."""
    return path.lstat().st_size if path.is_file() and not path.is_symlink() else tree_size(path)


def tree_size(folder: Path) -> int:
    """The bytes of the regular files below `folder`."""
    return filetree.size(folder)
