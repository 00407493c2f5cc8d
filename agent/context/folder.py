"""Makes a task's folder with its metadata.json, removes files that a dead process left in it, and moves it at the
task's end.

In base_dir the folder of a task is `running/{uuid}/`, and after the task's end `completed/{uuid}/`
(docs/design/context.md, 2.1 and 3.1; docs/files.md).
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

from agent import clock, durable_files, filetree
from agent.errors import ContextError
from agent.store.storable_text import fit_json
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
"""Names of files that exist only during a request, a run or a compaction; they are removed when a task's folder is
opened."""

PASSING_PATTERNS = (".*.tmp", "request-*.json", "request-*.jsonl")

_PRETTY = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def sweep(folder: Path) -> list[str]:
    """Remove the files that exist only during a request, a run or a compaction from the folder of a task on which no
    process works.

    Returns the names of the removed files.
    """
    leftovers = [folder / name for name in PASSING]
    leftovers += [path for pattern in PASSING_PATTERNS for path in folder.glob(pattern)]
    gone = []
    for leftover in leftovers:
        with suppress(FileNotFoundError):
            # another program may have made a folder with the name of an intermediate file; `remove` removes it, since
            # the file cannot be written while the folder exists
            filetree.remove(leftover)
            gone.append(leftover.name)
    return gone


def checked_uuid(uuid: Any) -> str:
    """`uuid` if it is valid as a folder's name; raises ContextError for another value."""
    text = str(uuid)
    if not _UUID.fullmatch(text):
        raise ContextError(f"uuid {text[:80]!r} cannot name a folder; allowed are letters, digits, '-', '_' and '.'")
    return text


class TaskFolder:
    """The folder of one task.

    `path` is updated when the folder is moved; `is_kept` is False for `context_storage.enabled: false`: the folder is
    then a temporary one, which is removed at the end of the task.
    """

    def __init__(self, settings: Settings, uuid: str) -> None:
        self.base_dir = settings.base_dir
        self.uuid = uuid
        self.is_kept = settings.context_storage.enabled
        mode = durable_files.passable()
        durable_files.make_dir(self.base_dir, mode)
        done = self.base_dir / "completed" / uuid
        if done.exists():
            raise ContextError(f"task {uuid} has ended: its folder is {done}; start a new task with a new uuid")
        if self.is_kept:
            durable_files.make_dir(self.base_dir / "running", mode)
            self.path = self.base_dir / "running" / uuid
            self.is_new = not self.path.exists()
            durable_files.make_dir(self.path)
        else:
            with durable_files.writing(tempfile.gettempdir()):
                self.path = Path(tempfile.mkdtemp(prefix=f"makimono-{uuid[:8]}-"))
            self.is_new = True

    def sweep(self) -> list[str]:
        """Remove files that a request, a compaction or an interrupted write of a file left behind; returns their names.

        `sweep` is called at the start, to remove the files of a dead process, and at the end of the task.
        """
        return sweep(self.path)

    def metadata(self, key: TaskKey, settings: Settings, *, user: str | None, title: str | None) -> tuple[Json, bool]:
        """(content of metadata.json, whether the file existed before).

        A missing metadata.json is written; a valid file of this task is not changed, except that a missing `fence` is
        added.

        In addition to the fields of docs/design/context.md, 3.1 metadata.json has `fence`, the random marker of the
        task's fences (24 hex digits). A metadata.json that is not valid JSON, or that belongs to another task, is
        renamed to `metadata.json.broken` and replaced.
        """
        path = self.path / "metadata.json"
        try:
            found = orjson.loads(path.read_bytes())
            if isinstance(found, dict) and found.get("uuid") == self.uuid:
                if not isinstance(found.get("fence"), str):
                    found["fence"] = secrets.token_hex(12)
                    durable_files.write_file(path, orjson.dumps(found, option=_PRETTY))
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
        """Write `end.json` before the row is changed; it has the end of the task, in case the row is lost or not
        written yet."""
        write_end(self.path, status, sync=sync, **columns)

    def forget(self) -> None:
        """Remove the folder if this object created it. A temporary folder is removed with its files; any other folder
        is removed only if it is empty, else OSError is raised."""
        if self.is_new:
            if self.is_kept:
                self.path.rmdir()
            else:
                filetree.remove(self.path)

    def close(self) -> None:
        """Move the folder to completed/, or remove it if it is temporary. A second call of `close` does nothing."""
        if not self.is_kept:
            with suppress(OSError):
                filetree.remove(self.path)
            return
        target = self.base_dir / "completed" / self.uuid
        if self.path == target:
            return
        durable_files.make_dir(target.parent)
        durable_files.move_dir(self.path, target)
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
    """Write metadata.json with a new fence marker; returns the content of the file. Raises DiskError."""
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
    durable_files.write_file(folder / "metadata.json", orjson.dumps(data, option=_PRETTY), sync=sync)
    return data


def write_end(folder: Path, status: str, *, sync: bool = True, **columns: Any) -> None:
    """Write `end.json`: the status, the time, and those columns of the task's row (`columns`) that are not None. Raises
    DiskError."""
    said = {name: value for name, value in columns.items() if value is not None}
    data = fit_json({"status": str(status), "completed_at": clock.stamp(), **said})
    durable_files.write_file(folder / "end.json", orjson.dumps(data, option=_PRETTY), sync=sync)


def read_end(folder: Path) -> Json:
    """The end of a task with a folder in `completed/`, from `end.json`.

    A missing or unreadable `end.json` counts as an unknown end: failed, with the code `unrecorded`.
    """
    with suppress(OSError, ValueError):
        found = orjson.loads((folder / "end.json").read_bytes())
        if isinstance(found, dict) and found.get("status") in CLOSED_STATUSES:
            return found
    message = f"the task has ended, its folder is {folder}; how it ended is not recorded there"
    return {"status": Status.FAILED.value, "error_code": "unrecorded", "error_message": message}
