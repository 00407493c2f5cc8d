"""What `cleanup` removes beside tasks, once nobody has used it for as long: mirrors, cached set-ups, what checks said
of base commits, quarantine, and folders in `completed/` that no row names.

Safe while a daemon runs: a mirror goes only under its lock, when no task's git directory borrows from it, and with it
our branches of ended tasks that it holds; a cached set-up goes under its lock.  Ages are those of the last use, which a
use writes.  No link is followed, and nothing outside base_dir is touched.  Called by `cleanup.py`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock, disk, filetree
from agent.errors import LockHeld
from agent.run.folders import QUARANTINE, is_uuid
from agent.run.trash import Removed, each, tree_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.run.trash import OnFailure
    from agent.taskqueue.ledger import Ledger

IN_USE = timedelta(hours=1)
"""A mirror or a set-up that was used so lately stays whatever the age: a task may be about to borrow or copy it."""


def leftovers(settings: Settings, ledger: Ledger, before: str, failed: OnFailure, *, dry_run: bool) -> list[Removed]:
    """Remove what was last used before then; what went, with a word for its kind as status.  What cannot be removed
    goes to `failed`."""
    base_dir = settings.base_dir
    unused = min(before, clock.stamp(clock.now() - IN_USE))
    mirrors = _mirrors(base_dir / "repos")

    def mirror(path: Path) -> Removed | None:
        return _mirror(base_dir, path, unused, dry_run=dry_run)

    return [
        *each(_in(base_dir / QUARANTINE), lambda path: _aged(path, before, dry_run=dry_run), failed),
        *each(_in(base_dir / "completed"), lambda path: _unlisted(path, ledger, before, dry_run=dry_run), failed),
        *each(_in(base_dir / "setup"), lambda path: _setup(path, unused, dry_run=dry_run), failed),
        *each(_in(base_dir / "checks"), lambda path: _check(path, before, dry_run=dry_run), failed),
        *each(mirrors, mirror, failed),
    ]


def _mirrors(repos: Path) -> list[Path]:
    """Mirrors that were made whole, at any depth: a group of GitLab lies in another."""
    found: list[Path] = []
    if not disk.is_real_dir(repos):
        return found
    for entry in filetree.walk(repos, only=frozenset(), on_error=filetree.pass_over):
        if not entry.left and entry.name.endswith(".git"):
            entry.enter = False
            if (repos / entry.path / "made").exists():
                found.append(repos / entry.path)
    return sorted(found)


def _in(top: Path) -> list[Path]:
    return sorted(top.iterdir()) if disk.is_real_dir(top) else []


def _check(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """What a check said of a base commit; it is made again when it is asked for."""
    at = _stamp(path.lstat().st_mtime)
    if at >= before or not path.is_file():
        return None
    size = path.lstat().st_size
    if not dry_run:
        path.unlink(missing_ok=True)  # ours
    return Removed(path.name, "check", at, size)


def _aged(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """What was put into quarantine before then: a rename writes the change time of what is renamed."""
    at = _stamp(path.lstat().st_ctime)
    if at >= before:
        return None
    size = tree_size(path) if disk.is_real_dir(path) else 0
    if not dry_run:
        filetree.remove(path)
    return Removed(path.name, "quarantine", at, size)


def _unlisted(path: Path, ledger: Ledger, before: str, *, dry_run: bool) -> Removed | None:
    """An ended folder whose row is gone (a database that was lost)."""
    if not (is_uuid(path.name) and disk.is_real_dir(path)) or (at := _stamp(path.lstat().st_ctime)) >= before:
        return None
    if ledger.get(path.name) is not None or disk.is_locked(path / "lock"):
        return None
    size = tree_size(path)
    if not dry_run:
        filetree.remove(path)
    return Removed(path.name, "unlisted", at, size)


def _setup(path: Path, before: str, *, dry_run: bool) -> Removed | None:
    """A cached set-up; each use touches `done.json`."""
    done = path / "done.json"
    if path.name.startswith(".") or not disk.is_real_dir(path) or not done.is_file():
        return None
    if (at := _stamp(done.lstat().st_mtime)) >= before:
        return None
    with _alone(path.with_name(f".{path.name}.lock")) as alone:
        if not alone or _stamp(done.lstat().st_mtime) >= before:
            return None
        size = tree_size(path)
        if not dry_run:
            done.unlink()  # without it the rest is none, should this be cut off  # ours
            filetree.remove(path)
        return Removed(path.name, "setup", at, size)


def _mirror(base_dir: Path, mirror: Path, before: str, *, dry_run: bool) -> Removed | None:
    """A mirror; each fetch touches `made`."""
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
            made.unlink()  # a mirror without it is made anew  # ours
            filetree.remove(mirror)
        return Removed(str(mirror.relative_to(top)), "mirror", at, size)


def borrowed(base_dir: Path) -> set[Path]:
    """Mirrors whose objects some task's git directory borrows."""
    found: set[Path] = set()
    for parent in ("running", "completed", QUARANTINE, "replays/*/running", "replays/*/completed"):
        for path in base_dir.glob(f"{parent}/*/git/objects/info/alternates"):
            with suppress(OSError):
                found |= {Path(os.fsdecode(line)).parent for line in path.read_bytes().splitlines() if line}
    return found


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Hold a lock that others wait for; False, and nothing held, when somebody has it just now."""
    try:
        held = disk.lock(lock)
    except LockHeld:
        yield False
        return
    try:
        yield True
    finally:
        disk.unlock(held)


def _stamp(seconds: float) -> str:
    return clock.stamp(datetime.fromtimestamp(seconds, UTC))
