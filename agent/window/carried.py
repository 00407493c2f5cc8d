"""What every compaction carries, found by the program and never by a model: comments, plan, files, open question.

Comments of people are chosen from the places that `context.survey` keeps (`comments.py`) and named by number.  Plan and
files are read off the calls: those in tools.jsonl that succeeded, or those in messages.jsonl where no tools were
recorded.  The first compaction of a process reads them all, each later one only what is new; so a process that takes a
task up carries the same as one that lived through it.  docs/window.md has the rules.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.comments import question_of
from agent.context.projection import carried_over
from agent.store.jsonl import records
from agent.window.comments import chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agent.context import MessageStore
    from agent.values import Json
    from agent.window.shares import Shares

    Call = tuple[str, Json]

MOST_FILES = 50
READERS = frozenset(("read_file",))
WRITERS = frozenset(("edit_file", "write_file"))


class Files:
    """The newest paths, in the order of their last use."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.paths: dict[str, None] = dict.fromkeys(paths)

    def use(self, path: str) -> None:
        """The file was used again."""
        self.paths.pop(path, None)
        self.paths[path] = None
        if len(self.paths) > MOST_FILES:
            del self.paths[next(iter(self.paths))]


class Carrying:
    """What is carried, kept up.  `calls` and `seq` are how far tools.jsonl and messages.jsonl are in it."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.plan: Any = None
        self.read = Files()
        self.changed = Files()
        self.calls = 0
        self.seq = 0
        self._behind = 0  # offset behind the calls that were read

    def look(self, shares: Shares, *, end_seq: int, ratio: float = 1.0) -> Json:
        """Take in what is new; what a compaction of messages up to `end_seq` carries then, as compactions.jsonl records
        it.  `shares` are in tokens of the model; `ratio` of those go to one of the store's plain counter."""
        self._read_calls()
        survey, count = self.store.survey, self.store.plain.count

        def budget(share: int) -> int:
            return int(share / ratio)

        carried = self._state()
        carried["comments"] = chosen(
            survey.comments,
            end_seq,
            budget(shares.comments),
            count,
            self.store.at,
            newest=budget(shares.comments_now),
        )
        if survey.asked is not None and survey.asked[0] <= end_seq:
            carried["question"] = question_of(self.store.at(survey.asked[1]))
        return {key: value for key, value in carried.items() if value or key == "comments"}

    def text(self, carried: Json, end_seq: int) -> str:
        """`carried` as the model gets it."""
        return carried_over(self.store.messages_path, carried, self.store.survey, end_seq)

    def _read_calls(self) -> None:
        path = self.store.context_dir / "tools.jsonl"
        if path.exists() and path.stat().st_size:
            for name, arguments in recorded(self._new_calls(path)):
                self.take(name, arguments)
            return
        for record in self.store.records(self.seq + 1):
            for name, arguments in asked([record]):
                self.take(name, arguments)
            self.seq = record["seq"]

    def _new_calls(self, path: Path) -> Iterator[Json]:
        """The records of tools.jsonl behind those that were read; all of them when another program has written the
        file anew."""
        if self.calls and path.stat().st_size < self._behind:
            self._behind = 0
        for offset, record in records(path, self._behind):
            self._behind = offset
            if record["seq"] > self.calls:
                self.calls = record["seq"]
                yield record

    def take(self, name: str, arguments: Json) -> None:
        """Take one call in."""
        path = arguments.get("path")
        if name == "update_plan":
            self.plan = arguments.get("items") or self.plan
        elif isinstance(path, str) and path and name in READERS | WRITERS:
            (self.read if name in READERS else self.changed).use(normpath(path))

    def _state(self) -> Json:
        """Plan and files, files in the order of their last use, those that were changed not among those read."""
        changed = self.changed.paths
        unchanged = [path for path in self.read.paths if path not in changed]
        return {"plan": self.plan, "read": unchanged, "changed": list(changed)}


def recorded(tools: Iterable[Json]) -> Iterator[Call]:
    """The calls in tools.jsonl that succeeded."""
    for record in tools:
        arguments = record.get("args")
        if record.get("status") == "success" and isinstance(arguments, dict):
            yield str(record.get("tool")), arguments


def asked(messages: Iterable[Json]) -> Iterator[Call]:
    """The calls in messages.jsonl, whatever came of them."""
    for record in messages:
        for call in record.get("tool_calls") or ():
            function = call.get("function") or {}
            yield str(function.get("name")), _arguments(function.get("arguments"))


def _arguments(text: Any) -> Json:
    """The arguments of a call, {} for anything that is no object."""
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
