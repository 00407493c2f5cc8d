"""Writes the page of a whole task as one file that needs no server: `show UUID --html FILE`, to attach to a pull
request.

The written HTML file contains the style sheet, no script, and no link to this machine. The conversation is read and
written part by part, so that memory does not grow with the task. The HTML file leaves out the worker's log and the
preview of the next request.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import durable_files
from agent.dashboard import charts, conversation, rendering, task_parts
from agent.dashboard.ledger_reader import LedgerReader
from agent.dashboard.pages import Pages, public
from agent.errors import MakimonoError, UsageError
from agent.security.redact import masker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.values import Json

CHANGE_SECONDS = 600.0
"""The maximum run time in seconds of the git command that writes the diff; it may be long, since no browser waits."""
MOST_RECORDS = 2000
"""The maximum number of records of each list on the page; the conversation has no maximum."""


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """The HTML file that was written, and its size in bytes."""

    path: Path
    size: int


def write_page(settings: Settings, prefix: str, path: Path) -> WrittenPage:
    """Write the page of the task with a uuid that begins with `prefix` to the file `path`; an existing file is
    replaced.

    Raises UsageError when no task or more than one matches, or the task has no folder on this host; DiskError when the
    file cannot be written.
    """
    redact = masker_of(settings)
    view = Pages(settings, LedgerReader(settings)).head(prefix)
    if view is None:
        raise UsageError(f"no task has a uuid that begins with {prefix!r}; `tasks` lists them")
    folder: Path | None = view["_folder"]
    if folder is None:
        where = view.get("elsewhere") or "it was never started, or its folder was removed"
        raise UsageError(f"task {view['task'].get('uuid', prefix)} has no folder here: {where}")
    parts = _parts(folder, view, settings.context_storage.compression_threshold)
    shown = rendering.inert({**public(view), "parts": parts}, redact)
    chunks = rendering.stream(
        "whole", shown, style=rendering.static("style.css").decode(), entries=_entries(folder, redact)
    )
    durable_files.write_file(path, (chunk.encode() for chunk in chunks))
    return WrittenPage(path, path.stat().st_size)


def _entries(folder: Path, redact: Callable[[str], str]) -> Iterator[Json]:
    """The entries of the conversation from the first message on, and between them `{"damage": sentence}` for each
    damage that was found; both with secrets masked."""
    start = 1
    while True:
        try:
            part = conversation.part(folder, start=start)
        except OSError as error:
            yield {"damage": rendering.inert(f"a file of the task cannot be read: {error}", redact)}
            return
        for line in part["damage"]:
            yield {"damage": rendering.inert(line, redact)}
        for entry in part["entries"]:
            if entry["seq"] >= start:
                yield rendering.inert(entry, redact)
        if not part["has_newer"] or part["last"] < start:
            return
        start = part["last"] + 1


def _parts(folder: Path, view: Json, threshold: float) -> Json:
    """The parts of the task's page other than the conversation. A part that cannot be read is None, and
    `view["problems"]` gets a sentence about it."""
    row, found = view["_row"], dict.fromkeys(("chart", "plan", "change", *task_parts.LISTS))
    with _part_named(view, "chart"):
        found["chart"] = None if row is None else charts.tokens(folder, row, threshold)
    with _part_named(view, "plan"):
        found["plan"] = task_parts.plan(folder)
    with _part_named(view, "change"):
        found["change"] = task_parts.change(folder, row, CHANGE_SECONDS)
    for name, part in task_parts.LISTS.items():
        with _part_named(view, name):
            found[name] = _newest_records(folder, part)
    whole: list[Json] = []
    try:
        for one in reversed((found["compactions"] or {}).get("records", ())):
            whole += filter(None, (task_parts.compaction(folder, one["id"]),))
    except OSError as error:
        view["problems"].append(f"a compaction cannot be read: {error}")
    found["whole_compactions"] = whole
    return found


@contextmanager
def _part_named(view: Json, name: str) -> Iterator[None]:
    """If the block raises OSError or MakimonoError, add a line with `name` to the problems that the page shows."""
    try:
        yield
    except (OSError, MakimonoError) as error:
        view["problems"].append(f"{name} cannot be read: {error}")


def _newest_records(folder: Path, part: Callable[[Path, int | None], Json]) -> Json:
    """The newest MOST_RECORDS records of a part of the page, the newest first."""
    found = part(folder, None)
    records, damage = list(found["records"]), list(found["damage"])
    while found["older"] is not None and len(records) < MOST_RECORDS:
        found = part(folder, found["older"])
        records += found["records"]
        damage += found["damage"]
    return {"records": records[:MOST_RECORDS], "damage": damage, "older": None}
