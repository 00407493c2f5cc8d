"""What a daemon mends before it starts anything: rows and folders that a crash, a power loss or a person left apart.

| row | folder | what is done | event |
|---|---|---|---|
| closed | in `running/` | it is moved (`closing.py`); who was not told is told by the poller | `folder_moved` |
| open | in `completed/` | the row gets the end that the folder's `end.json` records | `row_settled` |
| running | in `running/`, its lock free | back to the queue (`Supervisor.sweep`) | `task_requeued` |
| open, worked on before | none | made anew from the row; the task starts from its issue | `folder_recreated` |
| none at all, of any task | any | made again from the folders (`restore.py`) | `row_restored` |
| none, though other tasks have one | in `running/` | put aside in `quarantine/` | `folder_quarantined` |

A name in `running/` is only ever taken for a task when it is a real folder (no link is followed) whose row there is;
nothing of what is put aside is opened.  Source: durability facts, section 3.  Called by `run/daemon.py`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import clock, disk
from agent.context.folder import read_end, write_metadata
from agent.errors import DiskError, LedgerError
from agent.run.closing import move_leftovers
from agent.run.folders import is_uuid, set_aside
from agent.run.restore import restore
from agent.run.settle import settle
from agent.taskqueue.identity import of_another_host
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

YOUNG_SECONDS = 60.0
"""A folder without a row that is younger may be one of `solve`, which makes folder and lock before the row."""

OPEN = (Status.RUNNING, Status.QUEUED, Status.PAUSED)


def reconcile(wiring: Wiring) -> int:
    """All that is to be mended at a start, in the order in which one step helps the next; how many rows were lost and
    made again.  DiskError, LedgerError."""
    restored = restore(wiring)
    quarantine(wiring)
    settle_ended(wiring, OPEN)
    move_leftovers(wiring)
    recreate(wiring)
    return restored


# --- a folder without a row ----------------------------------------------------------------------------------


def quarantine(wiring: Wiring) -> None:
    """Put aside what lies in `running/` and is no task's folder.  Hidden names are not ours and stay."""
    running = wiring.settings.base_dir / "running"
    items = wiring.items("quarantine")
    for name in sorted(os.listdir(running)) if disk.is_real_dir(running) else ():  # noqa: PTH208 - names only
        with items.one(name):
            if not name.startswith(".") and (why := strange(wiring, running / name)):
                _put_aside(wiring, running / name, why)
    items.end()


def strange(wiring: Wiring, path: Path) -> str:
    """Why `path` is no task's folder; "" when it is one, or may become one."""
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
    """Whether somebody holds the folder's lock; a lock that is no file is nobody's."""
    try:
        return disk.is_locked(folder / "lock")
    except OSError:
        return False


def _put_aside(wiring: Wiring, path: Path, why: str) -> None:
    """Rename it into `quarantine/`; what cannot be moved (a mount) is reported all the same."""
    target = path
    try:
        target = set_aside(wiring.settings, path)
    except DiskError as error:
        why = f"{why}; {error}"
    wiring.events.emit("folder_quarantined", name=path.name, place=str(target), why=why)


# --- an open row whose folder has ended ----------------------------------------------------------------------


def settle_ended(wiring: Wiring, statuses: tuple[Status, ...] = ()) -> None:
    """Give open rows whose folder lies in `completed/` the end that the folder records; without `statuses` those that
    run on this host."""
    items = wiring.items("settle_ended")
    ledger = wiring.ledger
    for row in [row for status in statuses for row in ledger.list(status)] if statuses else ledger.running_here():
        folder = wiring.settings.base_dir / "completed" / row.uuid
        with items.one(row.uuid):
            if not (is_uuid(row.uuid) and disk.is_real_dir(folder)) or _is_held(folder):
                continue
            now = wiring.ledger.get(row.uuid)  # a worker that closes it writes the row before it moves the folder
            if now is not None and now.status not in CLOSED_STATUSES:
                with suppress(LedgerError):  # somebody else settled it
                    _settle(wiring, now, folder)
    items.end()


def _settle(wiring: Wiring, row: Row, folder: Path) -> None:
    end = read_end(folder)
    told = {name: end.get(name) for name in ("outcome", "error_message", "error_code")}
    settle(wiring.ledger, row, wiring.owner, end["status"], **told)
    wiring.events.emit("row_settled", uuid=row.uuid, was=str(row.status), status=end["status"])


# --- a row without a folder ----------------------------------------------------------------------------------


def recreate(wiring: Wiring) -> None:
    """Make the folders of tasks that were worked on here and have none any more."""
    settings = wiring.settings
    if not settings.context_storage.enabled:
        return
    items = wiring.items("recreate")
    for row in _begun_here(wiring):
        with items.one(row.uuid):
            _recreate(wiring, row)
    items.end()


def _recreate(wiring: Wiring, row: Row) -> None:
    settings = wiring.settings
    folder = settings.base_dir / "running" / row.uuid
    if os.path.lexists(folder) or os.path.lexists(settings.base_dir / "completed" / row.uuid):
        return
    disk.make_dir(disk.make_dir(folder.parent, disk.passable()) / row.uuid)
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
    """Open rows that had a worker of this base_dir.  Where hosts share the ledger, the row tells it only while it is
    leased; the folder of any other is made by whoever claims it, as ever."""
    alone = wiring.settings.taskqueue.ledger == "sqlite"
    for status in OPEN:
        for row in wiring.ledger.list(status):
            begun = row.attempt > 0 and row.lease_owner is not None if status is Status.RUNNING else row.attempt > 0
            here = alone and not of_another_host(row)
            if begun and is_uuid(row.uuid) and (here or wiring.ledger.is_mine(row, wiring.owner)):
                yield row
