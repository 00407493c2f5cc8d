"""Restores rows of the ledger from the folders of tasks, if the ledger has no row for any of the folders: the table
`tasks` was dropped, or tasks.db was removed.

The folder of a task contains all data of the task's row: metadata.json has the key of the task, end.json its end, the
other files its counters, and a receipt in effects.jsonl the other columns of the row (`manager.KEPT`).  A task with its
folder in `completed/` gets a closed row, and its end is not reported again.  A task with its folder in `running/` is
queued and continues from its files.  A task that waits for a person stays paused, so that an answer reaches the task,
whether the answer was written before or after the loss of the ledger.

If the ledger has a row for one of the folders, the ledger was not lost, and nothing is restored: a single folder may
lack a row for other reasons.  A row that another host or the poller has added after the loss of the ledger does not
count as a row of the folder.  With `everything` rows are restored even if the ledger has rows for other folders, and
from `quarantine/` too; `everything` is for `doctor --repair`, after a person has looked at the folders.
`record_elsewhere` reads the columns of a row from a replica, for a task that has lost both its row and its folder
(`intake/orphaned_issues.py`).
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files
from agent.context.cost_totals import Totals
from agent.context.folder import read_end
from agent.context.index import Cut, MessageIndex
from agent.context.manager import KEPT
from agent.context.outside_effects import ROW, receipt_in
from agent.context.requests import Sums
from agent.errors import ConfigError, ContextError, LedgerError, MakimonoError, ReplicaAway
from agent.store.jsonl import last_record, records
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import fetch, manifests
from agent.values import Status, TaskKey
from agent.wiring.folders import QUARANTINE, is_uuid
from agent.worker import unpublished_work
from agent.worker.final_state import FinalState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.wiring.wiring import Wiring


YOUNGER = timedelta(minutes=1)
"""A row that was created this much later than its task's folder was added after the loss of the ledger.

Normally a task's folder is created after its row; the tolerance is for differences between the clocks of hosts.
"""

TELLING = (
    *("metadata.json", "inherited.json", "effects.jsonl", "requests.jsonl"),
    *("messages.jsonl", "compactions.jsonl", "tools.jsonl"),
)
"""The files of a replica that are fetched so that `record_of` can read the columns of an open task's row."""


def restore_rows(wiring: Wiring, *, everything: bool = False, lost: bool = False) -> int:
    """Restore rows of the ledger from the folders of tasks; returns the number of restored rows.

    For a folder without a readable task key no row is restored. If the ledger still has the row of any folder, no row
    at all is restored, unless `everything` or `lost` is set. With `everything` folders are also taken back from
    `quarantine/`. Raises LedgerError or DiskError.
    """
    folders = list(_folders(wiring.settings.base_dir))
    if not (everything or lost) and any(_is_known(wiring, folder) for folder in folders):
        return 0
    if everything:
        folders += _taken_back(wiring)
    made = 0
    for folder in folders:
        record = record_of(folder)
        if record is None:
            continue
        if record["completed_at"] is None:
            record["attempt"] = max(record["attempt"], _newest_attempt(wiring.settings, folder.name))
        try:
            is_new = wiring.ledger.restore(record)
        except LedgerError as error:  # continue with the next folder, since only this row failed
            wiring.events.emit("row_restored", uuid=folder.name, status="", error=str(error))
            continue
        if is_new:
            made += 1
            wiring.events.emit("row_restored", uuid=folder.name, status=str(record["status"]), error="")
    return made


def _is_known(wiring: Wiring, folder: Path) -> bool:
    """Whether the ledger still has the row of the task in the folder.

    False also for a row that was created more than YOUNGER after the folder: such a row was added after the loss of the
    ledger, when a poll found the issue again (`orphaned_issues.py`).
    """
    row = wiring.ledger.get(folder.name)
    if row is None:
        return False
    said = _said_by(folder)
    return said is None or clock.parse(row.created_at) <= clock.parse(_made_at(said[0])) + YOUNGER


def _folders(base: Path, parents: tuple[str, ...] = ("completed", "running")) -> Iterator[Path]:
    for place in (base / parent for parent in parents):
        for name in sorted(os.listdir(place)) if durable_files.is_real_dir(place) else ():  # noqa: PTH208 - names only
            if is_uuid(name) and durable_files.is_real_dir(place / name):
                yield place / name


def _taken_back(wiring: Wiring) -> Iterator[Path]:
    """Move the folders of tasks without a row from `quarantine/` back to `running/` or `completed/`, unless the task
    has a folder there too; yields the moved folders."""
    base = wiring.settings.base_dir
    for folder in list(_folders(base, (QUARANTINE,))):
        if _said_by(folder) is None or wiring.ledger.get(folder.name) is not None:
            continue
        parent = base / ("completed" if (folder / "end.json").is_file() else "running")
        if os.path.lexists(base / "running" / folder.name) or os.path.lexists(base / "completed" / folder.name):
            continue
        durable_files.make_dir(parent, durable_files.passable())
        durable_files.move_dir(folder, parent / folder.name)
        yield parent / folder.name


def _said_by(folder: Path) -> tuple[dict[str, Any], TaskKey] | None:
    """(content of metadata.json, the task key in it); None when the file cannot be read, has no valid key, or names
    another task than the folder."""
    try:
        metadata = orjson.loads((folder / "metadata.json").read_bytes())
        return (metadata, TaskKey.from_mapping(metadata["task_key"])) if metadata["uuid"] == folder.name else None
    except (OSError, ValueError, KeyError, TypeError, MakimonoError):
        return None


def _made_at(metadata: dict[str, Any]) -> str:
    """The creation time of a task's folder according to its metadata.json; the present time if metadata.json has no
    valid time."""
    said = _text(metadata.get("created_at"))
    with suppress(ValueError, OverflowError):
        if said is not None and clock.parse(said):
            return said
    return clock.stamp()


def record_of(folder: Path) -> dict[str, Any] | None:
    """The columns of a task's row, read from the task's folder; None when the task key cannot be read."""
    said = _said_by(folder)
    if said is None:
        return None
    metadata, key = said
    config = metadata.get("config")
    config = config if isinstance(config, dict) else {}
    ended = folder.parent.name == "completed"
    kept = receipt_in(folder, ROW) or {}
    end = read_end(folder) if ended else _open(folder, _text(kept.get("paused")))
    return {
        "uuid": folder.name,
        **key.to_dict(),
        "status": end["status"],
        "created_at": _made_at(metadata),
        "completed_at": (_text(end.get("completed_at")) or clock.stamp()) if ended else None,
        "hostname": _text(metadata.get("hostname")),
        "user": _text(metadata.get("user")),
        "title": _text(end.get("title")) or _text(metadata.get("title")),
        "llm_provider": _text(config.get("llm_provider")),
        "model": _text(config.get("model")),
        "context_length": config.get("context_length") if type(config.get("context_length")) is int else None,
        "outcome": _text(end.get("outcome")),
        "error_code": _text(end.get("error_code")),
        "error_message": _text(end.get("error_message")),
        # the row gets the number of the last attempt, so that no later attempt uses that number again
        "attempt": _number(kept.get("attempt")) or 1,
        "priority": _number(kept.get("priority")),
        **{name: _text(kept.get(name)) for name in KEPT if name not in ("attempt", "priority")},
        **_counters(folder),
    }


def _newest_attempt(settings: Settings, uuid: str) -> int:
    """The number of the last attempt that wrote a replica of the task, possibly on another host; 0 if there is no
    replica.

    If the replica is newer than the local folder, the next attempt fetches the replica (`worker/takeover.py`). The
    result is also 0 if the storage of the replica does not answer.
    """
    if settings.context_storage.replica is None:
        return 0
    with suppress(ReplicaAway, ConfigError), closing(RemoteFolder(settings.context_storage.replica)) as place:
        newest = next(manifests(place, uuid), None)
        return newest.attempt if newest is not None else 0
    return 0


def record_elsewhere(settings: Settings, key: TaskKey, uuid: str) -> dict[str, Any] | None:
    """The columns of a task's row, read from the replica of the task; None if there is no replica, or if the replica
    belongs to another issue.  The attempt number is at least that of the newest attempt in the replica, so that the
    next attempt gets a higher number and its replica counts as the newest.  Raises ReplicaAway."""
    address = settings.context_storage.replica
    if address is None or not settings.context_storage.enabled:
        return None
    with closing(RemoteFolder(address)) as place:
        return _record_in(place, key, uuid)


def _record_in(place: RemoteFolder, key: TaskKey, uuid: str) -> dict[str, Any] | None:
    """Reads the columns of a row for `record_elsewhere` from the open storage `place`."""
    for manifest in manifests(place, uuid):
        told = {name: them for name, them in manifest.files.items() if name in TELLING}
        with TemporaryDirectory(prefix="makimono-replica-") as top:
            folder = Path(top) / "running" / uuid
            try:
                fetch(
                    place,
                    replace(manifest, files=told),
                    uuid,
                    durable_files.make_dir(durable_files.make_dir(folder.parent) / uuid),
                )
            except ContextError:
                # Some files of this replica manifest are missing or damaged; an older manifest may be complete.
                continue
            record = record_of(folder)
        if record is not None:
            is_its = all(record[name] == value for name, value in key.to_dict().items())
            return record | {"attempt": max(record["attempt"], manifest.attempt)} if is_its else None
    return None


def _open(folder: Path, paused: str | None) -> dict[str, str | None]:
    """Status, outcome and error for the row of an open task; `paused` is the reason why the task waits, None when the
    task does not wait."""
    status = (Status.QUEUED if paused is None else Status.PAUSED).value
    if (ending := FinalState.load(folder)) is not None:
        return {"status": status, **ending.columns()}
    return {"status": status, "outcome": unpublished_work.MARK if unpublished_work.is_pending_in(folder) else paused}


def _counters(folder: Path) -> dict[str, int | float]:
    """The same counters as `TaskContextManager.counters`, computed from a folder without writing to it.

    The turns and tokens that a task copied from another task's conversation are subtracted.
    """
    found = MessageIndex.read(folder / "messages.jsonl", Cut.read(folder / "compactions.jsonl"))
    newest = last_record(folder / "tools.jsonl")
    sums = Sums()
    for _, record in records(folder / "requests.jsonl", id_key="seq"):
        sums.add(record)
    counted = Totals(
        found.llm_calls + sums.count,
        found.prompt + sums.prompt,
        found.completion + sums.completion,
        found.cached + sums.cached,
        found.cut.count,
        int(newest["seq"]) if newest else 0,
        sums.cost,
    )
    with suppress(MakimonoError):  # without a readable inherited.json, nothing is subtracted
        counted = counted.exceeding(Totals.inherited(folder))
    return {
        "last_seq": found.last_seq,
        "llm_call_count": counted.llm_calls,
        "tool_call_count": counted.tool_calls,
        "compression_count": counted.compactions,
        "total_tokens": counted.tokens,
        "prompt_tokens": counted.prompt,
        "completion_tokens": counted.completion,
        "cached_tokens": counted.cached,
        "cost": counted.cost,
    }


def _number(value: object) -> int:
    return value if type(value) is int else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
