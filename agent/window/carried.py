"""What every compaction carries, found mechanically and never by a model: plan, files, open question.

A summary is weakest on which files changed (tokens.md section 2), so they are tracked in code.  `Toolbox.state` knows
them best; without one they are read off the calls in messages.jsonl.  The newest words of a person are added by
`context/projection.py`, which has them verbatim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.values import Json

MOST_FILES = 50
READERS = {"read_file"}
WRITERS = {"edit_file", "write_file"}


def carried_of(records: Iterable[Json], state: Mapping[str, Any] | None = None) -> Json:
    """`{"plan", "read", "changed", "question"}` with what there is of them.

    `state` is `Toolbox.state()` (`plan`, `files_read`, `files_changed`); what it lacks is read off `records`.
    """
    found = _from_calls(records)
    if state:
        names = {"plan": "plan", "files_read": "read", "files_changed": "changed"}
        found |= {ours: state[theirs] for theirs, ours in names.items() if state.get(theirs)}
    changed = set(found.get("changed") or ())
    if found.get("read"):
        found["read"] = [name for name in found["read"] if name not in changed]
    return {key: value for key, value in found.items() if value}


def _from_calls(records: Iterable[Json]) -> Json:
    """What the calls tell, oldest first; the newest 50 files of each kind."""
    plan: Any = None
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    question = ""
    for record in records:
        if record.get("role") == "user" and record.get("kind") in (None, "comment"):
            question = ""
        for call in record.get("tool_calls") or ():
            function = call.get("function") or {}
            arguments = _arguments(function.get("arguments"))
            name = function.get("name")
            path = arguments.get("path")
            if name == "update_plan":
                plan = arguments.get("items") or plan
            elif name == "ask_user":
                question = str(arguments.get("question") or "")
            elif isinstance(path, str) and name in READERS | WRITERS:
                files = read if name in READERS else changed
                files.pop(path, None)
                files[path] = None
                if len(files) > MOST_FILES:
                    del files[next(iter(files))]
    return {"plan": plan, "read": list(read), "changed": list(changed), "question": question}


def _arguments(text: Any) -> Json:
    """The arguments of a call, {} for anything that is no object."""
    if isinstance(text, dict):
        return text
    try:
        found = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
