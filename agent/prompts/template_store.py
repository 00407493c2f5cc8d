"""Stores sets of templates as files: the newest valid set in base_dir, and the set that a task uses in the task's
folder.

While the source of the templates has errors, processes use the newest valid set. The set of templates of a task is
written before the first message of the task, so that the task uses the same texts when it is resumed, even on another
host, or replayed.
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
"""Name of the file with a set of templates, in base_dir and in the folder of a task."""
LARGEST = 32 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """What base_dir stores about the templates from `source`.

    `mark` is the state of the source when `templates` were read; `program` is the hash of the program's own templates
    at that time. `failed_mark` and `error` are the state of the source of templates that was refused last, and the
    reason; both are "" if the newest state of the source was accepted. `at` is the time at which the source of the
    templates was read last.
    """

    source: str
    mark: str = ""
    program: str = ""
    templates: TemplateSet | None = None
    failed_mark: str = ""
    error: str = ""
    at: str = ""


def program_hash() -> str:
    """A hash of the program's own templates; a stored set must be checked again if the hash has changed."""
    return hash_of(versions())


def read_stored(base_dir: Path, source: str, failed: Failed) -> Stored:
    """Read the template set that base_dir stores for the source `source`; an empty Stored if the file is missing,
    damaged or about another source."""
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
    """Write the templates of a source, and what is known about the source (`found`), to base_dir. Raises DiskError."""
    names = ("source", "mark", "program", "failed_mark", "error", "at")
    data: dict[str, Any] = {name: getattr(found, name) for name in names}
    data["set"] = found.templates.to_json() if found.templates is not None else None
    durable_files.write_file(base_dir / NAME, orjson.dumps(data))


def read_of_task(folder: Path, failed: Failed) -> TemplateSet | None:
    """The set of templates that the task with this folder uses; None if the task uses only the program's own templates.

    Raises TemplateRefused if the file of the task's templates is damaged or cannot be read."""
    try:
        return from_json(_read(folder / NAME), failed)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise TemplateRefused(f"{folder / NAME} cannot be read: {error}") from error


def write_of_task(folder: Path, templates: TemplateSet) -> None:
    """Write the whole set of templates that a task uses into the task's folder. Raises DiskError."""
    durable_files.write_file(folder / NAME, orjson.dumps(templates.to_json(), option=orjson.OPT_APPEND_NEWLINE))


def _read(path: Path) -> Any:
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return orjson.loads(data)
