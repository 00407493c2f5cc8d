"""Removes a file, or a folder with everything below it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from agent.filetree.descent import walk


def remove(path: str | os.PathLike[str], *, within: int | None = None) -> None:
    """Remove the file or tree at `path`, without following links. `within` is the descriptor of the folder that `path`
    is relative to.

    Each folder without write permission is made writable before its content is removed.  Raises FileNotFoundError if
    `path` does not exist, otherwise the OSError of the first entry that cannot be removed.
    """
    if within is not None:
        _remove(os.fspath(path), within)
        return
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - the absolute path of the file to remove, without resolving links
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove(name, parent)
    finally:
        os.close(parent)


def _remove(name: str, within: int) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=within)
        return
    for entry in walk(name, within=within, repair=True):
        if entry.is_folder and not entry.left:
            continue
        with suppress(FileNotFoundError):  # another process may remove the tree too, so a missing entry is no error
            if entry.left:
                os.rmdir(entry.name, dir_fd=entry.folder)
            else:
                os.unlink(entry.name, dir_fd=entry.folder)
    os.rmdir(name, dir_fd=within)
