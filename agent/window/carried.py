"""What every compaction carries, found mechanically and never by a model: plan, files, open question.

A summary is weakest on which files changed (tokens.md section 2), so they are read off the calls: those in tools.jsonl
that succeeded, or those in messages.jsonl where no tools were recorded.  The newest words of a person are added by
`context/projection.py`, which has them verbatim.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.values import Json

    Call = tuple[str, Json]

MOST_FILES = 50
READERS = frozenset(("read_file",))
WRITERS = frozenset(("edit_file", "write_file"))


def carried_of(calls: Iterable[Call], question: str = "") -> Json:
    """`{"plan", "read", "changed", "question"}` with what there is of them; files in the order of their last use,
    the newest 50 of each kind, those that were changed not among those read."""
    plan: Any = None
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    for name, arguments in calls:
        path = arguments.get("path")
        if name == "update_plan":
            plan = arguments.get("items") or plan
        elif isinstance(path, str) and path and name in READERS | WRITERS:
            files = read if name in READERS else changed
            path = normpath(path)
            files.pop(path, None)
            files[path] = None
            if len(files) > MOST_FILES:
                del files[next(iter(files))]
    unchanged = [path for path in read if path not in changed]
    found = {"plan": plan, "read": unchanged, "changed": list(changed), "question": question}
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


def open_question(messages: Iterable[Json]) -> str:
    """The newest question to a person that nobody answered, "" for none."""
    question = ""
    for record in messages:
        if record.get("role") == "user" and record.get("kind") in (None, "comment"):
            question = ""
        for name, arguments in asked([record]):
            if name == "ask_user":
                question = str(arguments.get("question") or "")
    return question


def _arguments(text: Any) -> Json:
    """The arguments of a call, {} for anything that is no object."""
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
