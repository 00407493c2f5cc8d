"""What every compaction carries, found mechanically and never by a model: plan, files, open question.

A summary is weakest on which files changed (tokens.md section 2), so they are read off the calls: those in tools.jsonl
that succeeded, or those in messages.jsonl where no tools were recorded.  Each compaction goes on from what the last one
carried and reads only what is new: its line says how many calls there were (`tools`) and which message was the newest
(`at_seq`).  The newest words of a person are added by `context/projection.py`, which has them verbatim.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

import orjson

from agent.store.jsonl import backwards, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from agent.context import MessageStore
    from agent.values import Json

    Call = tuple[str, Json]

MOST_FILES = 50
READERS = frozenset(("read_file",))
WRITERS = frozenset(("edit_file", "write_file"))
KEYS = frozenset(("plan", "read", "changed", "question"))


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

    def __init__(self, known: Mapping[str, Any] | None = None, *, calls: int = 0, seq: int = 0) -> None:
        found = known or {}
        self.plan: Any = found.get("plan")
        self.read = Files(found.get("read") or ())
        self.changed = Files(found.get("changed") or ())
        self.question = str(found.get("question") or "")
        self.calls = calls
        self.seq = seq
        self.store: MessageStore | None = None

    @classmethod
    def of(cls, store: MessageStore) -> Carrying:
        """As the newest compaction carried it, where its line says how far it went; else nothing is known yet."""
        found = next((one for one in store.compactions.newest() if one.get("strategy") != "mask"), None) or {}
        known, calls = found.get("carried"), found.get("tools")
        if isinstance(known, dict) and set(known) <= KEYS and isinstance(calls, int):
            made = cls(known, calls=calls, seq=int(found.get("at_seq") or 0))
        else:
            made = cls()
        made.store = store
        return made

    def look(self) -> Json:
        """Take in what is new; what is carried then."""
        assert self.store is not None
        path = self.store.context_dir / "tools.jsonl"
        if path.exists() and path.stat().st_size:
            for name, arguments in recorded(self._new_calls(path)):
                self.take(name, arguments)
            kept = True
        else:
            kept = False
        for record in self.store.records(self.seq + 1):
            self.hear(record)
            if not kept:
                for name, arguments in asked([record]):
                    self.take(name, arguments)
            self.seq = record["seq"]
        return self.to_dict()

    def _new_calls(self, path: Path) -> Iterator[Json]:
        """The records of tools.jsonl behind the one that was seen last."""
        start: int | None = None if self.calls else 0
        for offset, record in backwards(path) if self.calls else ():
            if record["seq"] <= self.calls:
                break
            start = offset
        if start is None:
            return
        for _, record in records(path, start):
            self.calls = record["seq"]
            yield record

    def take(self, name: str, arguments: Json) -> None:
        """Take one call in."""
        path = arguments.get("path")
        if name == "update_plan":
            self.plan = arguments.get("items") or self.plan
        elif isinstance(path, str) and path and name in READERS | WRITERS:
            (self.read if name in READERS else self.changed).use(normpath(path))

    def hear(self, record: Json) -> None:
        """Take one message in: the newest question to a person stands until a person speaks."""
        if record.get("role") == "user" and record.get("kind") in (None, "comment"):
            self.question = ""
        for name, arguments in asked([record]):
            if name == "ask_user":
                self.question = str(arguments.get("question") or "")

    def to_dict(self) -> Json:
        """`{"plan", "read", "changed", "question"}` with what there is of them; files in the order of their last use,
        the newest 50 of each kind, those that were changed not among those read."""
        changed = self.changed.paths
        unchanged = [path for path in self.read.paths if path not in changed]
        found = {"plan": self.plan, "read": unchanged, "changed": list(changed), "question": self.question}
        return {key: value for key, value in found.items() if value}


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
