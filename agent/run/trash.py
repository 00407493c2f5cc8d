"""What was removed of what others filled, and how large it was.  No link is followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Removed:
    """One task that was (or, dry, would be) removed; `size` in bytes of its folder.  What is no task has the name of
    its folder as `uuid`, and `replay`, `quarantine`, `unlisted`, `setup`, `mirror` or `branch` as status."""

    uuid: str
    status: str
    completed_at: str
    size: int


def size_of(path: Path) -> int:
    """Bytes of a file, or of the regular files below a folder."""
    return path.lstat().st_size if path.is_file() and not path.is_symlink() else tree_size(path)


def tree_size(folder: Path) -> int:
    """Bytes of the regular files below `folder`."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
