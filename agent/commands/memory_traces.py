"""Reads the folders of tasks for long-term memory: the memories that a task got, and the folders in which the text of a
memory may still be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from agent.context.recalled import RecalledStore
from agent.errors import UsageError
from agent.security.fence import regions
from agent.store.jsonl import records
from agent.wiring.folders import folder_of
from agent.worker.briefing import RULES, RULES_SOURCE
from agent.worker.task_facts import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.values import Json


def retrievals(settings: Settings, uuid: str) -> list[Json]:
    """The retrievals of memories by a task, the oldest first. Raises UsageError when the folder of the task is gone."""
    folder = folder_of(settings, uuid)
    if folder is None:
        raise UsageError(f"task {uuid} has no folder on this host any more; nothing shows what it recalled")
    return [record for _, record in records(folder / RecalledStore.NAME)]


def pinned_rules(settings: Settings, uuid: str) -> list[Json]:
    """The files of pinned rules (`memory.pinned`) in the newest briefing of a task, each as a mapping of `file`,
    `lines`, `base_commit`; they are read from the briefing, since the configuration may have changed. [] if the task's
    folder is gone, or has no marker of the fences."""
    folder = folder_of(settings, uuid)
    if folder is None:
        return []
    try:
        marker = str(orjson.loads((folder / "metadata.json").read_bytes())["fence"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    briefings = (one for _, one in records(folder / "messages.jsonl") if one.get("kind") == "task")
    newest = next(reversed([str(one.get("content") or "") for one in briefings]), "")
    origins = (one for _, one in records(folder / "effects.jsonl") if one.get("name") == ORIGIN)
    origin: Json = next((one["receipt"] for one in origins if isinstance(one.get("receipt"), dict)), {})
    sources = [(one.source.removeprefix(RULES_SOURCE), one) for one in regions(newest, marker)]
    return [
        {"file": name, "lines": len(region.text.strip().splitlines()), "base_commit": origin.get("base_commit")}
        for name, region in sources
        if name != region.source and name not in RULES
    ]


def folders_with(settings: Settings, sessions: Collection[str], ids: Collection[str]) -> list[Path]:
    """The folders on this host of tasks from which records or events of long-term memory were extracted (the tasks with
    the uuids `sessions`), and of tasks that got one of the memories `ids`."""
    return [
        folder
        for folder in _folders(settings)
        if folder.name in sessions or any(name in ids for name in _given(folder))
    ]


def _folders(settings: Settings) -> Iterator[Path]:
    for parent in ("running", "completed"):
        path = settings.base_dir / parent
        if path.is_dir():
            yield from sorted(one for one in path.iterdir() if one.is_dir() and not one.is_symlink())


def _given(folder: Path) -> Iterator[str]:
    for _, record in records(folder / RecalledStore.NAME):
        for hit in record.get("hits") or ():
            if isinstance(hit, dict):
                yield str(hit.get("id"))
