"""Compares a work tree as it is now with its base commit, for the carry-over of a compaction; nothing is staged."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from agent import durable_files
from agent.gitcmd import fields_of, git
from agent.work import changes, untrusted_tree
from agent.work.commit import HOLES, TRUE_STAT, holes_of
from agent.work.lfs import LfsTree

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from agent.values import FileChange


def present_changes(
    git_dir: Path,
    tree: Path,
    base: str,
    committed: Collection[str],
    *,
    env: Mapping[str, str],
    largest: int | None,
    seconds: float,
) -> list[FileChange]:
    """The files of the work tree that differ from the commit or tree `base`, whether the change is committed or not;
    sorted by modification time, the newest file last.

    `committed` are the paths that the task's commits change; `largest` is the maximum number of bytes that the host
    accepts for one file. Files that no commit will contain (ignored files) are left out. Raises GitError if git takes
    more than `seconds`.
    """
    listing = ("ls-files", "-z", "--others", "--exclude-standard")
    done = git(*listing, git_dir=git_dir, work_tree=tree, env=env, config=TRUE_STAT, timeout=seconds)
    new = [path for path in fields_of(done.output) if _is_plain(tree, path, largest)]
    found = changes.of_tree(git_dir, tree, base, new, env=env, seconds=seconds)
    content = LfsTree(git_dir, tree, env)
    same = content.unchanged([one.path for one in found if one.how != "deleted"]) - set(committed)
    return sorted((one for one in found if one.path not in same), key=lambda one: _written_at(tree, one.path))


def _is_plain(tree: Path, path: str, largest: int | None) -> bool:
    """Whether a new file is safe to read: a regular file or a symlink (reading does not block), not a repository or a
    part of one, with at most HOLES bytes in holes, and not larger than the host accepts."""
    if untrusted_tree.has_git_name(path):
        return False
    try:
        status = durable_files.stat_beneath(tree, path)
    except OSError:
        return False
    if stat.S_ISREG(status.st_mode):
        fits = largest is None or status.st_size <= largest
        return fits and holes_of(tree, path, status, HOLES) <= HOLES
    return stat.S_ISLNK(status.st_mode)


def _written_at(tree: Path, path: str) -> int:
    try:
        return durable_files.stat_beneath(tree, path).st_mtime_ns
    except OSError:
        return 0
