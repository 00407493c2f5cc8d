"""Rows made again from the tasks' folders, where the ledger has none at all: `tasks` was dropped, or tasks.db removed.

A folder is complete without its row: metadata.json says whose task it is, end.json how it ended, and the stores tell
what was done.  A task in `completed/` gets a closed row, which nobody is told again; one in `running/` goes back to the
queue and goes on from its files.  Priority, parent and comment cursor are in the row alone and are lost.  A ledger with
a single row is taken for whole, since a folder without a row may then be anything.  Called by `run/reconcile.py` and at
each sweep of the supervisor.
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
from agent.run.folders import is_uuid
from agent.store.jsonl import last_record
from agent.taskqueue import ENDING
from agent.values import Status, TaskKey

if TYPE_CHECKING:
    from pathlib import Path

    from agent.run.wiring import Wiring


def restore(wiring: Wiring) -> int:
    """Make the rows; how many.  A folder that does not say whose it is has none.  LedgerError, DiskError."""
    base = wiring.settings.base_dir
    if any(wiring.ledger.counts().values()):
        return 0
    made = 0
    for parent in ("completed", "running"):
        place = base / parent
        for name in sorted(os.listdir(place)) if disk.is_real_dir(place) else ():  # noqa: PTH208 - names only
            folder = place / name
            if not is_uuid(name) or not disk.is_real_dir(folder):
                continue
            record = record_of(folder)
            if record is None:
                continue
            try:
                made += wiring.ledger.restore(record)
            except LedgerError as error:  # this one alone
                wiring.events.emit("row_restored", uuid=name, status="", error=str(error))
                continue
            wiring.events.emit("row_restored", uuid=name, status=str(record["status"]), error="")
    return made


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
