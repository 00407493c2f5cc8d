"""A task's folder: where it is, metadata.json, what a dead process left in it, and its last move.

`contexts/running/{uuid}/` and `contexts/completed/{uuid}/` (seed 002, section 2.1 and 3.1; design: section 4).
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, disk, filetree
from agent.errors import ContextError
from agent.store.text import fit_json
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.values import Json, TaskKey

PASSING = (
    "request.json",
    "kept.json",
    "context.jsonl",
    "unsummarized.jsonl",
    "to_summarize.jsonl",
    "summary_prompt.txt",
    "formatted_messages.txt",
    "summary_request.txt",
)
"""Files that exist while a request, a run or a compaction is under way; at an opening none is."""

PASSING_PATTERNS = (".*.tmp", "request-*.json", "request-*.jsonl")

_PRETTY = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def sweep(folder: Path) -> list[str]:
    """Remove what a task's folder needs only while a request, a run or a compaction is under way, from the folder of
    one that nobody works on; the names."""
    leftovers = [folder / name for name in PASSING]
    leftovers += [path for pattern in PASSING_PATTERNS for path in folder.glob(pattern)]
    gone = []
    for leftover in leftovers:
        with suppress(FileNotFoundError):
            filetree.remove(leftover)  # a folder too: nobody of ours made it, and no file could be written there
            gone.append(leftover.name)
    return gone


def checked_uuid(uuid: Any) -> str:
    """`uuid` as a folder's name; ContextError when it cannot be one."""
    text = str(uuid)
    if not _UUID.fullmatch(text):
        raise ContextError(f"uuid {text[:80]!r} cannot name a folder; allowed are letters, digits, '-', '_' and '.'")
    return text


class TaskFolder:
    """The folder of one task.  `path` moves with it; `is_kept` is False for `context_storage.enabled: false`."""

    def __init__(self, settings: Settings, uuid: str) -> None:
        self.base_dir = settings.base_dir
        self.uuid = uuid
        self.is_kept = settings.context_storage.enabled
        mode = disk.passable()
        disk.make_dir(self.base_dir, mode)
        done = self.base_dir / "completed" / uuid
        if done.exists():
            raise ContextError(f"task {uuid} has ended: its folder is {done}; start a new task with a new uuid")
        if self.is_kept:
            disk.make_dir(self.base_dir / "running", mode)
            self.path = self.base_dir / "running" / uuid
            self.is_new = not self.path.exists()
            disk.make_dir(self.path)
        else:
            with disk.writing(tempfile.gettempdir()):
                self.path = Path(tempfile.mkdtemp(prefix=f"makimono-{uuid[:8]}-"))
            self.is_new = True

    def sweep(self) -> list[str]:
        """Remove what was left of a request, a compaction or a replacement: by a process that died, found at the next
        start, or by this one, at the end of the task.  Returns the names."""
        return sweep(self.path)

    def metadata(self, key: TaskKey, settings: Settings, *, user: str | None, title: str | None) -> tuple[Json, bool]:
        """metadata.json: written once, read ever after; and whether it was there before.

        Besides the seed's fields it has `fence`, the run's random marker (24 hex digits), which one that lacks it gets.
        One that cannot be read, or is of another task, is kept as `metadata.json.broken` and written anew.
        """
        path = self.path / "metadata.json"
        try:
            found = orjson.loads(path.read_bytes())
            if isinstance(found, dict) and found.get("uuid") == self.uuid:
                if not isinstance(found.get("fence"), str):
                    found["fence"] = secrets.token_hex(12)
                    disk.write_file(path, orjson.dumps(found, option=_PRETTY))
                return found, True
            path.rename(path.with_name("metadata.json.broken"))
        except FileNotFoundError:
            pass
        except (orjson.JSONDecodeError, IsADirectoryError):
            path.rename(path.with_name("metadata.json.broken"))
        provider = settings.provider()
        config = {
            "llm_provider": provider.name,
            "model": provider.model,
            "context_length": provider.context_length,
            "compression_threshold": settings.context_storage.compression_threshold,
        }
        sync = settings.context_storage.durability != "none"
        return write_metadata(self.path, self.uuid, key, config, user=user, title=title, sync=sync), False

    def record_end(self, status: str, *, sync: bool, **columns: Any) -> None:
        """Write `end.json`, before the row: how the task ended, should the row be lost or late."""
        write_end(self.path, status, sync=sync, **columns)

    def forget(self) -> None:
        """Remove the folder if this opening made it and nothing is in it."""
        if self.is_new:
            if self.is_kept:
                self.path.rmdir()
            else:
                filetree.remove(self.path)

    def close(self) -> None:
        """To completed/, or away when it was a temporary one.  Doing it again does nothing."""
        if not self.is_kept:
            with suppress(OSError):
                filetree.remove(self.path)
            return
        target = self.base_dir / "completed" / self.uuid
        if self.path == target:
            return
        disk.make_dir(target.parent)
        disk.move_dir(self.path, target)
        self.path = target


def write_metadata(
    folder: Path,
    uuid: str,
    key: TaskKey,
    config: Json,
    *,
    user: str | None,
    title: str | None,
    sync: bool = True,
) -> Json:
    """Write metadata.json with a fence of its own; what was written.  DiskError."""
    data: Json = {
        "uuid": uuid,
        "task_key": key.to_dict(),
        "created_at": clock.stamp(),
        "process_id": os.getpid(),
        "hostname": os.uname().nodename,
        "config": config,
        "user": user,
        "fence": secrets.token_hex(12),
    }
    if title is not None:
        data["title"] = title
    data = fit_json(data)
    disk.write_file(folder / "metadata.json", orjson.dumps(data, option=_PRETTY), sync=sync)
    return data


def write_end(folder: Path, status: str, *, sync: bool = True, **columns: Any) -> None:
    """Write `end.json`: status, time, and what the row is about to say of the end.  DiskError."""
    said = {name: value for name, value in columns.items() if value is not None}
    data = fit_json({"status": str(status), "completed_at": clock.stamp(), **said})
    disk.write_file(folder / "end.json", orjson.dumps(data, option=_PRETTY), sync=sync)


def read_end(folder: Path) -> Json:
    """How the task of a folder in `completed/` ended, from `end.json`.  One that is missing or cannot be read is an end
    that is not known: failed, with the code `unrecorded`."""
    with suppress(OSError, ValueError):
        found = orjson.loads((folder / "end.json").read_bytes())
        if isinstance(found, dict) and found.get("status") in CLOSED_STATUSES:
            return found
    message = f"the task has ended, its folder is {folder}; how it ended is not recorded there"
    return {"status": Status.FAILED.value, "error_code": "unrecorded", "error_message": message}
