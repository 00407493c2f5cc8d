"""Remove closed tasks that are older than `context_storage.cleanup_days`: row first, folder second; then what nobody
used for as long (`leftovers.py`).

Every closed status, by true times (design: section 11).  A running task is never touched: only closed rows are looked
at, none that an open task goes on from, and a folder whose lock is held stays.  The database refuses to remove a row
that an open task goes on from by now, so the row goes first; a folder whose row is gone is removed as any such.

The newest task of an issue may be gone on from for `context_inheritance.expiry_days`, by a mention or the label: until
then its row stays, and of its folder what says how it ended, which is all that a later task reads of it (`parent.py`).
A person who names an age (`--days`) means all of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agent import clock, disk, filetree
from agent.errors import LedgerError, MakimonoError
from agent.observe.items import Items
from agent.run import solo
from agent.run.folders import REPLAYS, folder_of
from agent.run.leftovers import leftovers
from agent.run.trash import Removed, each, size_of, tree_size
from agent.taskqueue.identity import of_another_host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.config import Settings
    from agent.run.trash import OnFailure
    from agent.taskqueue import Row
    from agent.taskqueue.ledger import Ledger


KEPT = ("metadata.json", "end.json", "effects.jsonl", "lock")
"""What stays of a folder whose task may be gone on from: who asked for what, how it ended, and in which words."""


def cleanup(
    settings: Settings,
    ledger: Ledger,
    *,
    days: float | None = None,
    dry_run: bool = False,
    branch: Callable[[Row, Path], Removed | None] = lambda _row, _folder: None,
    replica: Callable[[str], object] = lambda _uuid: None,
    failed: OnFailure = lambda _name, _why: None,
) -> list[Removed]:
    """Remove what is old enough; returns what went, oldest first.

    `branch` removes a task's pushed one (`branches.py`) before its folder goes.  A MakimonoError of it means that
    nobody can tell now whether it may go: folder and row stay as they are, and the next cleanup asks again.
    `replica` removes what is kept of a task elsewhere; where that cannot be done, the task stays too.
    `failed(name, why)` is told of each that could not be removed; the others go on.
    """
    age = settings.context_storage.cleanup_days if days is None else days
    before = clock.stamp(clock.now() - timedelta(days=age))
    removed = []
    tasks = Items(failed, whole=(LedgerError,))
    for closed in ledger.closed_before(before):
        uuid = str(closed["uuid"])
        with tasks.one(uuid):
            removed += _task(settings, ledger, uuid, branch, replica, all_of_it=days is not None, dry_run=dry_run)
    tasks.end()
    removed += old_replays(settings, before, failed, dry_run=dry_run)
    return removed + leftovers(
        settings, ledger, before, failed, dry_run=dry_run
    )  # last: tasks that went borrow no more


def _task(
    settings: Settings,
    ledger: Ledger,
    uuid: str,
    branch: Callable[[Row, Path], Removed | None],
    replica: Callable[[str], object],
    *,
    all_of_it: bool,
    dry_run: bool,
) -> list[Removed]:
    """Remove one closed task; what went.  OSError when its folder resists: with its row gone, the next cleanup removes
    it as one that no row names."""
    folder, row = folder_of(settings, uuid), ledger.get(uuid)
    if row is None or (folder is not None and disk.is_locked(folder / "lock")):
        return []
    if folder is None and of_another_host(row):
        return []  # its folder lies there, and goes with its row when that host cleans up
    until = "" if all_of_it else gone_on_from_until(settings, ledger, row)
    kept = KEPT if until else ()
    going = [path for path in folder.iterdir() if path.name not in kept] if folder is not None else []
    if kept and not going:
        return []
    size = sum(map(size_of, going))
    try:
        gone = branch(row, folder) if folder is not None else None
    except MakimonoError:
        return []
    removed = [] if gone is None else [gone]
    if not dry_run:
        replica(uuid)
    if not (dry_run or kept or ledger.delete(row.uuid)):
        return removed  # an open task goes on from it since it was listed
    if not dry_run:
        remove(folder, going, whole=not kept)
        if ledger.latest(row.key) is None:  # else a later task lives in the same tracker
            solo.forget(settings, row.instance)
    return [*removed, Removed(row.uuid, str(row.status), row.completed_at or "", size, until)]


def gone_on_from_until(settings: Settings, ledger: Ledger, row: Row) -> str:
    """Until when a mention, or the label again, starts a task that goes on from this one (`Attention`, `parent_of`);
    "" when none does any more."""
    if row.completed_at is None or solo.is_private(settings, row.instance):
        return ""
    until = clock.parse(row.completed_at) + timedelta(days=settings.context_inheritance.expiry_days)
    newest = ledger.latest(row.key)
    return clock.stamp(until) if until >= clock.now() and newest is not None and newest.uuid == row.uuid else ""


def remove(folder: Path | None, going: list[Path], *, whole: bool) -> None:
    """Remove the folder, or what goes of it."""
    if folder is None:
        return
    for path in [folder] if whole else going:
        filetree.remove(path)


def old_replays(settings: Settings, before: str, failed: OnFailure, *, dry_run: bool) -> list[Removed]:
    """Copies that `replay` made, last written before then; one that is being played stays."""

    def one(folder: Path) -> Removed | None:
        changed = clock.stamp(datetime.fromtimestamp(folder.lstat().st_mtime, UTC))
        if folder.is_symlink() or changed >= before or any(map(disk.is_locked, folder.glob("running/*/lock"))):
            return None
        size = tree_size(folder)
        if not dry_run:
            filetree.remove(folder)
        return Removed(folder.name, "replay", changed, size)

    top = settings.base_dir / REPLAYS
    return list(each(sorted(top.iterdir()) if top.is_dir() else (), one, failed))
