"""Removes data, other than tasks, that was not used for the age that the cleanup requests: mirrors, cached set-ups,
check results of base commits, quarantine, and folders in `completed/` without a row.

The removal of unused data is safe while a daemon runs. A mirror is removed only under its lock, and only when no task's
git directory borrows from it; branches of ended tasks in the mirror are removed with it. A cached set-up is removed
under its lock. The age of a mirror or of a set-up counts from its last use, which each use records. `garbage.py`
follows no link, and changes nothing outside base_dir.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock, durable_files, filetree
from agent.commands.removed_items import Removed, remove_each, tree_size
from agent.errors import LockHeld
from agent.wiring.folders import QUARANTINE, is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.commands.removed_items import OnFailure
    from agent.config import Settings
    from agent.taskqueue.ledger import Ledger

IN_USE = timedelta(hours=1)
"""A mirror or a set-up that was used within this time stays even if the requested age is shorter: a task may be about
to borrow or copy it."""


def remove_unused(
    settings: Settings, ledger: Ledger, before: str, failed: OnFailure, *, dry_run: bool
) -> list[Removed]:
    """Remove mirrors, set-ups, check results, quarantined items and folders without a row if they were last used or
    changed before the time `before`; returns the removed items, with their kind as status.

    Items that cannot be removed are passed to `failed`.
    """
    base_dir = settings.base_dir
    unused = min(before, clock.stamp(clock.now() - IN_USE))
    aged = partial(_aged, before=before, dry_run=dry_run)
    unlisted = partial(_unlisted, ledger=ledger, before=before, dry_run=dry_run)
    unused_setup = partial(_setup, before=unused, dry_run=dry_run)
    check = partial(_check, before=before, dry_run=dry_run)
    mirror = partial(_mirror, base_dir=base_dir, before=unused, dry_run=dry_run)
    return [
        *remove_each(_folders_below(base_dir / QUARANTINE), aged, failed),
        *remove_each(_folders_below(base_dir / "completed"), unlisted, failed),
        *remove_each(_folders_below(base_dir / "setup"), unused_setup, failed),
        *remove_each(_folders_below(base_dir / "checks"), check, failed),
        *remove_each(_mirrors(base_dir / "repos"), mirror, failed),
    ]


def _mirrors(repos: Path) -> list[Path]:
    """Complete mirrors below `repos`, at any depth: a group of GitLab may be inside another."""
    found: list[Path] = []
    if not durable_files.is_real_dir(repos):
        return found
    for entry in filetree.walk(repos, only=frozenset(), on_error=filetree.pass_over):
        if not entry.left and entry.name.endswith(".git"):
            entry.enter = False
            if (repos / entry.path / "made").exists():
                found.append(repos / entry.path)
    return sorted(found)


def _folders_below(top: Path) -> list[Path]:
    return sorted(top.iterdir()) if durable_files.is_real_dir(top) else []


def _check(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """Remove the stored result of a check on a base commit, which is made again when a task needs it; None if the
    result is not older than `before`."""
    at = _stamp(path.lstat().st_mtime)
    if at >= before or not path.is_file():
        return None
    size = path.lstat().st_size
    if not dry_run:
        path.unlink(missing_ok=True)  # ours
    return Removed(path.name, "check", at, size)


def _aged(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """Remove an item that was put into quarantine before the time `before`; None for a younger one. A rename sets the
    change time of the renamed item."""
    at = _stamp(path.lstat().st_ctime)
    if at >= before:
        return None
    size = tree_size(path) if durable_files.is_real_dir(path) else 0
    if not dry_run:
        filetree.remove(path)
    return Removed(path.name, "quarantine", at, size)


def _unlisted(path: Path, ledger: Ledger, before: str, *, dry_run: bool) -> Removed | None:
    """Remove the folder of an ended task that has no row, for example because the ledger's database was lost; None if
    the folder stays."""
    if not (is_uuid(path.name) and durable_files.is_real_dir(path)) or (at := _stamp(path.lstat().st_ctime)) >= before:
        return None
    if ledger.get(path.name) is not None or durable_files.is_locked(path / "lock"):
        return None
    size = tree_size(path)
    if not dry_run:
        filetree.remove(path)
    return Removed(path.name, "unlisted", at, size)


def _setup(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """Remove a cached set-up that was not used since `before`; None if it stays. The last use of a set-up is the time
    of `done.json`, which each use updates."""
    done = path / "done.json"
    if path.name.startswith(".") or not durable_files.is_real_dir(path) or not done.is_file():
        return None
    if (at := _stamp(done.lstat().st_mtime)) >= before:
        return None
    with _alone(path.with_name(f".{path.name}.lock")) as alone:
        if not alone or _stamp(done.lstat().st_mtime) >= before:
            return None
        size = tree_size(path)
        if not dry_run:
            # a set-up without `done.json` is not used, so what an interrupted removal leaves is never used
            done.unlink()  # ours
            filetree.remove(path)
        return Removed(path.name, "setup", at, size)


def _mirror(mirror: Path, base_dir: Path, before: str, *, dry_run: bool) -> Removed | None:
    """Remove a mirror that was not used since `before`, unless a task borrows its objects; None if it stays. The last
    use of a mirror is the modification time of its file `made`, which each fetch updates."""
    top, made = base_dir / "repos", mirror / "made"
    if any(part.is_symlink() for part in (mirror, *mirror.parents) if part.is_relative_to(top)):
        return None
    if (at := _stamp(made.lstat().st_mtime)) >= before:
        return None
    with _alone(mirror.with_name(f".{mirror.name}.lock")) as alone:
        if not alone or _stamp(made.lstat().st_mtime) >= before or mirror in borrowed(base_dir):
            return None
        size = tree_size(mirror)
        if not dry_run:
            made.unlink()  # a mirror without the file `made` is cloned again  # ours
            filetree.remove(mirror)
        return Removed(str(mirror.relative_to(top)), "mirror", at, size)


def borrowed(base_dir: Path) -> set[Path]:
    """Mirrors from which some task's git directory borrows objects."""
    found: set[Path] = set()
    for parent in ("running", "completed", QUARANTINE, "replays/*/running", "replays/*/completed"):
        for path in base_dir.glob(f"{parent}/*/git/objects/info/alternates"):
            with suppress(OSError):
                found |= {Path(os.fsdecode(line)).parent for line in path.read_bytes().splitlines() if line}
    return found


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Take a lock, waiting 0.1 s at most; yields False if another process holds the lock."""
    try:
        held = durable_files.lock(lock)
    except LockHeld:
        yield False
        return
    try:
        yield True
    finally:
        durable_files.unlock(held)


def _stamp(seconds: float) -> str:
    return clock.stamp(datetime.fromtimestamp(seconds, UTC))
