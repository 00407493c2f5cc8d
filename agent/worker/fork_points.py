"""Finds the messages after which a new task can begin (`solve --from UUID --at SEQ`): the briefing, and the last
message of each group after it.

A group is an answer with all results of its calls, or one other message. The result of a call may be missing because
its line is damaged, or because the process was killed before it wrote the line. A group with a missing result counts as
ended if another message follows it, as it does for the model (`context/projection.py`). The copy of a summary in the
messages is not a fork point: the copy has no content of its own, and `show` does not list it. `fork_points.py` only
reads files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.store.jsonl import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.values import Json

HEAD = {"system", "task"}


def messages(folder: Path) -> Iterator[tuple[Json, bool]]:
    """Yields (message, whether it is a fork point) for every message of a task, without reading all of them into
    memory."""
    waiting: set[str] = set()
    head: set[str] = set()
    before: Json | None = None
    for _, record in records(folder / "messages.jsonl"):
        if before is not None:
            lost = record.get("role") != "tool" and record.get("kind") != "summary"
            yield before, head >= HEAD and (lost or not waiting) and before.get("kind") != "summary"
            waiting = set() if lost else waiting
        head.add(str(record.get("kind")))
        waiting |= {str(call["id"]) for call in record.get("tool_calls") or ()}
        waiting.discard(str(record.get("tool_call_id")))
        before = record
    if before is not None:
        yield before, head >= HEAD and not waiting and before.get("kind") != "summary"
