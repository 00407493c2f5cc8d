"""What `cleanup` removes beside tasks, once nobody has used it for as long: mirrors, cached set-ups, quarantine, and
folders in `completed/` that no row names.

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

from agent import clock, disk
from agent.errors import LockHeld
from agent.run.folders import QUARANTINE, is_uuid
from agent.run.trash import Removed, tree_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.taskqueue.ledger import Ledger

IN_USE = timedelta(hours=1)
"""A mirror or a set-up that was used so lately stays whatever the age: a task may be about to borrow or copy it."""


def leftovers(settings: Settings, ledger: Ledger, before: str, *, dry_run: bool) -> list[Removed]:
    """Remove what was last used before then; what went, with a word for its kind as status."""
    base_dir = settings.base_dir
    unused = min(before, clock.stamp(clock.now() - IN_USE))
    return [
        *_aged(base_dir / QUARANTINE, "quarantine", before, dry_run=dry_run),
        *_unlisted(base_dir, ledger, before, dry_run=dry_run),
        *_setups(base_dir / "setup", unused, dry_run=dry_run),
        *_mirrors(base_dir, unused, dry_run=dry_run),
    ]


def _aged(top: Path, kind: str, before: str, *, dry_run: bool) -> Iterator[Removed]:
    """What was put into `top` before then: a rename writes the change time of what is renamed."""
    for path in sorted(top.iterdir()) if disk.is_real_dir(top) else ():
        at = _stamp(path.lstat().st_ctime)
        if at >= before:
            continue
        size = tree_size(path) if disk.is_real_dir(path) else 0
        if not dry_run:
            _remove(path)
        yield Removed(path.name, kind, at, size)


def _unlisted(base_dir: Path, ledger: Ledger, before: str, *, dry_run: bool) -> Iterator[Removed]:
    """Ended folders whose rows are gone (a database that was lost)."""
    top = base_dir / "completed"
    for path in sorted(top.iterdir()) if disk.is_real_dir(top) else ():
        if not (is_uuid(path.name) and disk.is_real_dir(path)) or (at := _stamp(path.lstat().st_ctime)) >= before:
            continue
        if ledger.get(path.name) is not None or disk.is_locked(path / "lock"):
            continue
        size = tree_size(path)
        if not dry_run:
            disk.remove_tree(path)
        yield Removed(path.name, "unlisted", at, size)


def _setups(top: Path, before: str, *, dry_run: bool) -> Iterator[Removed]:
    """Cached set-ups; each use touches `done.json`."""
    for path in sorted(top.iterdir()) if disk.is_real_dir(top) else ():
        done = path / "done.json"
        if path.name.startswith(".") or not disk.is_real_dir(path) or not done.is_file():
            continue
        if (at := _stamp(done.lstat().st_mtime)) >= before:
            continue
        with _alone(top / f".{path.name}.lock") as alone:
            if alone and _stamp(done.lstat().st_mtime) < before:
                size = tree_size(path)
                if not dry_run:
                    done.unlink()  # without it the rest is none, should this be cut off
                    disk.remove_tree(path)
                yield Removed(path.name, "setup", at, size)


def _mirrors(base_dir: Path, before: str, *, dry_run: bool) -> Iterator[Removed]:
    """Mirrors; each fetch touches `made`."""
    top = base_dir / "repos"
    for made in sorted(top.rglob("*.git/made")) if disk.is_real_dir(top) else ():
        mirror = made.parent
        if any(part.is_symlink() for part in (mirror, *mirror.parents) if part.is_relative_to(top)):
            continue
        if (at := _stamp(made.lstat().st_mtime)) >= before:
            continue
        with _alone(mirror.with_name(f".{mirror.name}.lock")) as alone:
            if not alone or _stamp(made.lstat().st_mtime) >= before or mirror in borrowed(base_dir):
                continue
            size = tree_size(mirror)
            if not dry_run:
                made.unlink()  # a mirror without it is made anew
                disk.remove_tree(mirror)
            yield Removed(str(mirror.relative_to(top)), "mirror", at, size)


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


def _remove(path: Path) -> None:
    if disk.is_real_dir(path):
        disk.remove_tree(path)
    else:
        path.unlink()


def _stamp(seconds: float) -> str:
    return clock.stamp(datetime.fromtimestamp(seconds, UTC))
