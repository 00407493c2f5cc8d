"""Stores sets of templates as files: the last valid set in base_dir, and the set of a task in the task's folder.

A process uses the last valid set while the folder of the templates is broken.  The set of a task is written once,
before its first message, so that a resumed task, also on another host, and a replay use the same texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.prompts.rendering import versions
from agent.prompts.revision import TemplateRefused, TemplateSet, from_json, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Failed = Callable[[str, str], None]

NAME = "prompts.json"
"""Name of the file with a set, in base_dir and in the folder of a task."""
LARGEST = 32 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored knowledge about the templates of `source`.

    `mark`: the state of the source when `templates` were read; `program`: the hash of the program's own templates at
    that time. `failed_mark` and `error`: the state that was refused last, and the reason; "" if the newest state was
    accepted.  `at`: the time at which the source was read last.
    """

    source: str
    mark: str = ""
    program: str = ""
    templates: TemplateSet | None = None
    failed_mark: str = ""
    error: str = ""
    at: str = ""


def program_hash() -> str:
    """A hash of the program's own templates; the check of a stored set is valid only for the same hash."""
    return hash_of(versions())


def read_stored(base_dir: Path, source: str, failed: Failed) -> Stored:
    """The record about `source` in base_dir; an empty record if there is none that can be read."""
    try:
        data = _read(base_dir / NAME)
        if data["source"] != source:
            return Stored(source)
        templates = from_json(data["set"], failed) if data["set"] is not None else None
        names = ("mark", "program", "failed_mark", "error", "at")
        return Stored(source, templates=templates, **{name: str(data[name]) for name in names})
    except (OSError, ValueError, KeyError, TypeError, TemplateRefused):
        return Stored(source)


def write_stored(base_dir: Path, found: Stored) -> None:
    """Write the record.  Raises DiskError."""
    names = ("source", "mark", "program", "failed_mark", "error", "at")
    data: dict[str, Any] = {name: getattr(found, name) for name in names}
    data["set"] = found.templates.to_json() if found.templates is not None else None
    durable_files.write_file(base_dir / NAME, orjson.dumps(data))


def read_of_task(folder: Path, failed: Failed) -> TemplateSet | None:
    """The set that the task with this folder began with; None if it began with the program's own.

    Raises TemplateRefused when the file is damaged."""
    try:
        return from_json(_read(folder / NAME), failed)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise TemplateRefused(f"{folder / NAME} cannot be read: {error}") from error


def write_of_task(folder: Path, templates: TemplateSet) -> None:
    """Record the set that a task begins with.  Raises DiskError."""
    durable_files.write_file(folder / NAME, orjson.dumps(templates.to_json(), option=orjson.OPT_APPEND_NEWLINE))


def _read(path: Path) -> Any:
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return orjson.loads(data)
