"""Removes closed tasks older than `context_storage.cleanup_days`, the row first, then the folder; afterwards removes
other data that was not used for the same time (`garbage.py`).

`cleanup` removes tasks of every closed status, and their age counts from the recorded end (docs/design/context.md,
8.3). `cleanup` never changes a running task: it considers only closed rows, removes no row of a task that an open task
continues, and leaves a folder alone while its lock is held. The row of a task is removed before its folder, because the
database refuses to remove a row that an open task has begun to continue. If a crash leaves the folder without its row,
a later cleanup removes it like any folder without a row (`garbage.py`).

The newest task of an issue may be continued for `context_inheritance.expiry_days`, by a mention or by the label.  As
long as a task may be continued, its row stays, and so do the files of its folder that describe its end, because a later
task reads only these (`worker/earlier_task.py`).  If a person gives an age (`--days`), tasks older than that are
removed as a whole, even if they may be continued.

Each of several hosts that share a ledger cleans up the tasks on which it worked. If a host is gone for good, any other
host removes its tasks, with row and replica. A host counts as gone when no row shows that it was active within the time
GONE and within the requested age, or when a person names it (`--gone`). If a host returns after its rows were removed,
its task folders are removed like other folders without a row.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from agent import clock, durable_files, filetree
from agent.commands.garbage import remove_unused
from agent.commands.removed_items import Removed, remove_each, size_of, tree_size
from agent.errors import ConfigError, LedgerError, MakimonoError
from agent.observe.error_tolerant_loop import ItemLoop
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import STATE
from agent.taskqueue.row_holder import of_another_host
from agent.wiring import private_tracker
from agent.wiring.folders import DELIBERATIONS, REPLAYS, folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from agent.commands.removed_items import OnFailure
    from agent.config import Settings
    from agent.taskqueue import Row
    from agent.taskqueue.ledger import Ledger

GONE = timedelta(days=30)
"""The minimum time without activity after which a host counts as gone."""

KEPT = ("metadata.json", "end.json", "effects.jsonl", "lock")
"""Files that stay in the folder of a task that may be continued: they have the task's request, its end, and the text of
its comments; `lock` is the lock of the folder."""


def cleanup(
    settings: Settings,
    ledger: Ledger,
    *,
    days: float | None = None,
    dry_run: bool = False,
    branch: Callable[[Row, Path], Removed | None] = lambda _row, _folder: None,
    replica: Callable[[str], object] = lambda _uuid: None,
    failed: OnFailure = lambda _name, _why: None,
    gone: Collection[str] = (),
) -> list[Removed]:
    """Remove all closed tasks and other data that are old enough; returns the removed tasks, then the other removed
    items. With `dry_run` nothing is removed, and the result lists the items that would be removed.

    `days`: the age in days that a person gives, None for the configured one; if a person gives the age, tasks that may
    be continued are removed as a whole too. `branch` removes a task's pushed branch (`branch_cleanup.py`) before its
    folder is removed. If `branch` raises a MakimonoError, the forge does not answer now: folder and row of the task
    stay, and the next cleanup asks the forge again. `replica` removes the replica of a task; if that fails, the row and
    folder of the task stay too. `failed(name, why)` is called for each item that could not be removed; the other items
    are removed. `gone` are names of hosts that will not come back; the time of their last activity does not matter
    then.
    """
    age = settings.context_storage.cleanup_days if days is None else days
    before = clock.stamp(clock.now() - timedelta(days=age))
    removed = []
    tasks = ItemLoop(failed, whole=(LedgerError,))
    is_gone = _gone_host_check(ledger, gone, min(before, clock.stamp(clock.now() - GONE)))
    for closed in ledger.closed_before(before):
        uuid = str(closed["uuid"])
        with tasks.handling(uuid):
            everything = days is not None
            removed += _task(settings, ledger, uuid, branch, replica, is_gone, all_of_it=everything, dry_run=dry_run)
    tasks.finish()
    removed += old_replays(settings, before, failed, dry_run=dry_run)
    return removed + remove_unused(
        settings, ledger, before, failed, dry_run=dry_run
    )  # mirrors are removed last: then no removed task borrows objects from its mirror any more


def replicas(settings: Settings) -> tuple[Callable[[str], object], str]:
    """(a function that removes a task's replica, the reason why that is impossible on this host or "").

    If the driver of the replicas' storage is missing, the function raises ConfigError for each task that may have a
    replica: such a task stays, and other tasks are removed.
    """
    address = settings.context_storage.replica
    if address is None:
        return (lambda _uuid: None), ""
    try:
        return RemoteFolder(address).remove_all, ""
    except ConfigError as error:
        why = str(error)

    def keep(uuid: str) -> None:
        folder = folder_of(settings, uuid)
        if folder is None or os.path.lexists(folder / STATE):
            raise ConfigError("its replica cannot be removed with it")

    return keep, why


def _task(
    settings: Settings,
    ledger: Ledger,
    uuid: str,
    branch: Callable[[Row, Path], Removed | None],
    replica: Callable[[str], object],
    is_gone: Callable[[str | None], bool],
    *,
    all_of_it: bool,
    dry_run: bool,
) -> list[Removed]:
    """Remove one closed task, except the files that a task which continues it still needs; returns the removed items,
    or with `dry_run` those that would be removed. Nothing is removed if the folder is locked, or is on another host
    that is not gone for good, or if the forge or the remote does not answer about the task's branch.

    Raises OSError when the folder cannot be removed: the row is already gone then, and the next cleanup removes the
    folder as one without a row.
    """
    folder, row = folder_of(settings, uuid), ledger.get(uuid)
    if row is None or (folder is not None and durable_files.is_locked(folder / "lock")):
        return []
    if folder is None and of_another_host(row, settings) and not is_gone(row.hostname):
        return []  # the folder is on the task's own host, which removes it together with the row
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
        return removed  # an open task has begun to continue this task since the closed tasks were listed
    if not dry_run:
        remove(folder, going, whole=not kept)
        if ledger.latest(row.key) is None:  # otherwise a later task of the issue still uses the private tracker
            private_tracker.forget(settings, row.instance)
    return [*removed, Removed(row.uuid, str(row.status), row.completed_at or "", size, until)]


def _gone_host_check(ledger: Ledger, named: Collection[str], before: str) -> Callable[[str | None], bool]:
    """A function that returns whether a host is gone for good: it is in `named`, or no row shows activity of it since
    `before`."""

    @cache
    def is_gone(host: str | None) -> bool:
        return host in named or (host is not None and (ledger.host_last_seen(host) or "") < before)

    return is_gone


def gone_on_from_until(settings: Settings, ledger: Ledger, row: Row) -> str:
    """The time until which a mention, or the label again, starts a task that continues this one (`CommentPoller`,
    `parent_of`); "" when that is no longer possible."""
    if row.completed_at is None or private_tracker.is_private(settings, row.instance):
        return ""
    until = clock.parse(row.completed_at) + timedelta(days=settings.context_inheritance.expiry_days)
    newest = ledger.latest(row.key)
    return clock.stamp(until) if until >= clock.now() and newest is not None and newest.uuid == row.uuid else ""


def remove(folder: Path | None, going: list[Path], *, whole: bool) -> None:
    """Remove the task's folder; if `whole` is False, remove only the paths in `going`."""
    if folder is None:
        return
    for path in [folder] if whole else going:
        filetree.remove(path)


def old_replays(settings: Settings, before: str, failed: OnFailure, *, dry_run: bool) -> list[Removed]:
    """Remove the copies of `replay` and the records of `deliberate` if the time of the last change of their folder
    itself is before `before`, except a copy that a replay is using now.

    Returns the removed folders; with `dry_run` those that would be removed."""

    def one(folder: Path) -> Removed | None:
        changed = clock.stamp(datetime.fromtimestamp(folder.lstat().st_mtime, UTC))
        if folder.is_symlink() or changed >= before or any(map(durable_files.is_locked, folder.glob("running/*/lock"))):
            return None
        size = tree_size(folder)
        if not dry_run:
            filetree.remove(folder)
        return Removed(folder.name, "replay" if folder.parent.name == REPLAYS else "deliberation", changed, size)

    tops = [settings.base_dir / name for name in (REPLAYS, DELIBERATIONS)]
    found = [folder for top in tops if top.is_dir() for folder in sorted(top.iterdir())]
    return list(remove_each(found, one, failed))
