"""Repairs rows of the ledger and folders of tasks that do not match, before a daemon starts any task, and in part at
each sweep (`dead_rows.py`): a crash, a power loss or a person's change may have caused that. The names of events are in
brackets.

* The row is closed, the folder is in `running/`: the folder is moved; the poller sends missing notifications
  (`folder_moved`).
* The row is open, the folder is in `completed/`: the end in the folder's `end.json` is written into the row
  (`row_settled`).
* The row is running, the folder is in `running/` with a free lock: the task is queued again (`dead_rows.py`,
  `task_requeued`).
* The row is open, the task was worked on before, the folder is missing: a folder is made from the row, and the task
  starts anew (`folder_recreated`).
* The ledger has no row at all: rows are made from the folders (`intake/restore_rows.py`, `row_restored`).
* The ledger has rows, but none for the folder in `running/`: the folder is moved to `quarantine/`
  (`folder_quarantined`).

An entry of `running/` that is a link or no folder is moved to quarantine, too. Files of a folder that is moved to
quarantine are not opened, except for its lock. docs/files.md, "Rules", has the reasons.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.context.folder import read_end, write_metadata
from agent.daemon.finalize import move_leftovers
from agent.errors import ClaimLost, DiskError
from agent.intake.restore_rows import restore_rows
from agent.issue.close_ended_row import adopt_end
from agent.taskqueue.row_holder import is_alone
from agent.values import CLOSED_STATUSES, Status
from agent.wiring.folders import is_uuid, set_aside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

YOUNG_SECONDS = 60.0
"""Seconds for which a new folder without a row is left alone, since it may belong to `solve`, which makes folder and
lock before the row."""

OPEN = (Status.RUNNING, Status.QUEUED, Status.PAUSED)


def reconcile(wiring: Wiring) -> int:
    """Make the ledger and the folders agree when a daemon starts, or when base_dir or tasks.db was replaced; returns
    how many lost rows were restored from their folders. Raises DiskError or LedgerError."""
    restored = restore_rows(wiring)
    quarantine(wiring)
    adopt_ended(wiring, [row for status in OPEN for row in wiring.ledger.list(status)])
    move_leftovers(wiring)
    recreate_folders(wiring)
    return restored


# --- a folder without a row ----------------------------------------------------------------------------------


def quarantine(wiring: Wiring) -> None:
    """Move everything in `running/` that is no folder of a task (`misplaced_reason`) to `quarantine/`.

    Hidden entries of `running/` do not belong to the program and stay.
    """
    running = wiring.settings.base_dir / "running"
    items = wiring.items("quarantine")
    for name in sorted(os.listdir(running)) if durable_files.is_real_dir(running) else ():  # noqa: PTH208 - names only
        with items.handling(name):
            if not name.startswith(".") and (why := misplaced_reason(wiring, running / name)):
                _put_aside(wiring, running / name, why)
    items.finish()


def misplaced_reason(wiring: Wiring, path: Path) -> str:
    """The reason why `path` is no folder of a task; "" when it is such a folder, or when it may get its row later,
    because it is new or a process holds its lock."""
    if path.is_symlink():
        return "it is a link"
    if not path.is_dir():
        return "it is no folder"
    if wiring.ledger.get(path.name) is not None:
        return ""
    if clock.now().timestamp() - path.stat().st_mtime < YOUNG_SECONDS or _is_held(path):
        return ""
    return "no task has this uuid" if is_uuid(path.name) else "its name is no uuid"


def _is_held(folder: Path) -> bool:
    """Whether a process holds the lock of the folder; if the lock is no regular file, it is not held."""
    try:
        return durable_files.is_locked(folder / "lock")
    except OSError:
        return False


def _put_aside(wiring: Wiring, path: Path, why: str) -> None:
    """Move a path into `quarantine/`, and report it; a path that cannot be moved (a mount) is reported as well."""
    target = path
    try:
        target = set_aside(wiring.settings, path)
    except DiskError as error:
        why = f"{why}; {error}"
    wiring.events.emit("folder_quarantined", name=path.name, place=str(target), why=why)


# --- an open row with an ended folder ------------------------------------------------------------------------


def adopt_ended(wiring: Wiring, rows: Iterable[Row]) -> list[str]:
    """Close each of the open `rows` that has a folder in `completed/` with a free lock, with the end that the folder
    records; returns the uuids of these rows."""
    adopted, items = [], wiring.items("settle_ended")
    for row in rows:
        folder = wiring.settings.base_dir / "completed" / row.uuid
        with items.handling(row.uuid):
            if not (is_uuid(row.uuid) and durable_files.is_real_dir(folder)) or _is_held(folder):
                continue
            # The row is read again, since a worker closes the row before it moves the folder: `row` may be older than
            # that.
            now = wiring.ledger.get(row.uuid)
            if now is not None and now.status not in CLOSED_STATUSES:
                with suppress(ClaimLost):  # a process that has claimed or closed the row meanwhile keeps the row
                    _settle(wiring, now, folder)
                    adopted.append(row.uuid)
    items.finish()
    return adopted


def _settle(wiring: Wiring, row: Row, folder: Path) -> None:
    end = read_end(folder)
    told = {name: end.get(name) for name in ("outcome", "error_message", "error_code")}
    adopt_end(wiring.ledger, row, wiring.owner, end["status"], **told)
    wiring.events.emit("row_settled", uuid=row.uuid, was=str(row.status), status=end["status"])


# --- a row without a folder ----------------------------------------------------------------------------------


def recreate_folders(wiring: Wiring) -> None:
    """Make the missing folders of open tasks that this base_dir has worked on, if `context_storage.enabled`.  A new
    folder has only the metadata, so its task begins anew."""
    settings = wiring.settings
    if not settings.context_storage.enabled:
        return
    items = wiring.items("recreate")
    for row in _begun_here(wiring):
        with items.handling(row.uuid):
            _recreate(wiring, row)
    items.finish()


def _recreate(wiring: Wiring, row: Row) -> None:
    settings = wiring.settings
    folder = settings.base_dir / "running" / row.uuid
    if os.path.lexists(folder) or os.path.lexists(settings.base_dir / "completed" / row.uuid):
        return
    durable_files.make_dir(durable_files.make_dir(folder.parent, durable_files.passable()) / row.uuid)
    write_metadata(
        folder,
        row.uuid,
        row.key,
        {
            "llm_provider": row.llm_provider,
            "model": row.model,
            "context_length": row.context_length,
            "compression_threshold": settings.context_storage.compression_threshold,
        },
        user=row.user,
        title=row.title,
    )
    wiring.events.emit("folder_recreated", uuid=row.uuid, status=str(row.status))


def _begun_here(wiring: Wiring) -> Iterator[Row]:
    """Open rows that a worker of this base_dir has worked on.

    If hosts share the ledger, a row names the base_dir of its worker only while the row is leased. In a shared ledger,
    rows without a lease are left out, since the host that claims such a row makes the folder.
    """
    alone = is_alone(wiring.settings)
    for status in OPEN:
        for row in wiring.ledger.list(status):
            begun = row.attempt > 0 and row.lease_owner is not None if status is Status.RUNNING else row.attempt > 0
            if begun and is_uuid(row.uuid) and (alone or wiring.ledger.is_mine(row, wiring.owner)):
                yield row
