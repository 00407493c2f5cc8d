"""Rows made again from the tasks' folders, where the ledger knows none of them: `tasks` was dropped, or tasks.db
removed.

A folder is complete without its row: metadata.json says whose task it is, end.json how it ended, and the stores tell
what was done.  A task in `completed/` gets a closed row, which nobody is told again; one in `running/` goes back to the
queue and goes on from its files.  Priority, parent and comment cursor are in the row alone and are lost.  A ledger that
knows one of the folders is taken for whole, since a folder without a row may then be anything; what others have put
into a ledger that was lost, another host or the poller, says nothing.  `everything` makes rows whatever the ledger
knows, and of what lies in `quarantine/` too: `doctor --repair`, by a person who has looked.  Called by
`run/reconcile.py` and at each sweep of the supervisor.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, disk
from agent.context.folder import read_end
from agent.context.survey import Cut, Survey
from agent.errors import LedgerError, MakimonoError
from agent.run import later
from agent.run.ending import Ending
from agent.run.folders import QUARANTINE, is_uuid
from agent.store.jsonl import last_record
from agent.taskqueue import ENDING
from agent.values import Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.run.wiring import Wiring


def restore(wiring: Wiring, *, everything: bool = False) -> int:
    """Make the rows; how many.  A folder that does not say whose it is has none.  LedgerError, DiskError."""
    folders = list(_folders(wiring.settings.base_dir))
    if not everything and any(wiring.ledger.get(folder.name) is not None for folder in folders):
        return 0
    if everything:
        folders += _taken_back(wiring)
    made = 0
    for folder in folders:
        record = record_of(folder)
        if record is None:
            continue
        try:
            is_new = wiring.ledger.restore(record)
        except LedgerError as error:  # this one alone
            wiring.events.emit("row_restored", uuid=folder.name, status="", error=str(error))
            continue
        if is_new:
            made += 1
            wiring.events.emit("row_restored", uuid=folder.name, status=str(record["status"]), error="")
    return made


def _folders(base: Path, parents: tuple[str, ...] = ("completed", "running")) -> Iterator[Path]:
    for place in (base / parent for parent in parents):
        for name in sorted(os.listdir(place)) if disk.is_real_dir(place) else ():  # noqa: PTH208 - names only
            if is_uuid(name) and disk.is_real_dir(place / name):
                yield place / name


def _taken_back(wiring: Wiring) -> Iterator[Path]:
    """Folders of tasks in `quarantine/`, each moved to where it was; one that has come back meanwhile stays."""
    base = wiring.settings.base_dir
    for folder in list(_folders(base, (QUARANTINE,))):
        if record_of(folder) is None or wiring.ledger.get(folder.name) is not None:
            continue
        parent = base / ("completed" if (folder / "end.json").is_file() else "running")
        if os.path.lexists(base / "running" / folder.name) or os.path.lexists(base / "completed" / folder.name):
            continue
        disk.make_dir(parent, disk.passable())
        disk.move_dir(folder, parent / folder.name)
        yield parent / folder.name


def record_of(folder: Path) -> dict[str, Any] | None:
    """The columns of a row as the folder tells them, None when it does not say whose task it is."""
    try:
        metadata = orjson.loads((folder / "metadata.json").read_bytes())
        key = TaskKey.of(metadata["task_key"])
        if metadata["uuid"] != folder.name:
            return None
    except (OSError, ValueError, KeyError, TypeError, MakimonoError):
        return None
    config = metadata.get("config")
    config = config if isinstance(config, dict) else {}
    ended = folder.parent.name == "completed"
    end = read_end(folder) if ended else {"status": Status.QUEUED.value, "outcome": _open_outcome(folder)}
    return {
        "uuid": folder.name,
        **key.to_dict(),
        "status": end["status"],
        "created_at": _text(metadata.get("created_at")) or clock.stamp(),
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
        **_counters(folder),
    }


def _open_outcome(folder: Path) -> str | None:
    kept = Ending.kept(folder)
    if kept is not None:
        return f"{ENDING} {kept.status} {kept.outcome.end}"
    return later.MARK if later.waits_in(folder) else None


def _counters(folder: Path) -> dict[str, int]:
    found = Survey.of(folder / "messages.jsonl", Cut.of(folder / "compactions.jsonl"))
    newest = last_record(folder / "tools.jsonl")
    return {
        "last_seq": found.last_seq,
        "llm_call_count": found.llm_calls,
        "tool_call_count": int(newest["seq"]) if newest else 0,
        "compression_count": found.cut.count,
        "total_tokens": found.prompt + found.completion,
        "prompt_tokens": found.prompt,
        "completion_tokens": found.completion,
        "cached_tokens": found.cached,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
