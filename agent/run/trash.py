"""What was removed of what others filled, and how large it was.  No link is followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import filetree
from agent.errors import LedgerError
from agent.observe.items import Items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    OnFailure = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Removed:
    """One task that was (or, dry, would be) removed; `size` in bytes of its folder.  What is no task has the name of
    its folder as `uuid`, and `replay`, `quarantine`, `unlisted`, `setup`, `mirror` or `branch` as status.  `until`: the
    row and the files that say how the task ended stay until then, and only the rest of the folder goes."""

    uuid: str
    status: str
    completed_at: str
    size: int
    until: str = ""


def each(items: Iterable[Path], remove: Callable[[Path], Removed | None], failed: OnFailure) -> Iterator[Removed]:
    """What `remove` says of each item.  One that cannot be removed goes to `failed(name, why)`; the others go on."""
    loop = Items(failed, whole=(LedgerError,))
    for item in items:
        removed = None
        with loop.one(item.name):
            removed = remove(item)
        if removed is not None:
            yield removed
    loop.end()


def size_of(path: Path) -> int:
    """Bytes of a file, or of the regular files below a folder."""
    return path.lstat().st_size if path.is_file() and not path.is_symlink() else tree_size(path)


def tree_size(folder: Path) -> int:
    """Bytes of the regular files below `folder`."""
    return filetree.size(folder)
