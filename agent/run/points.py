"""Messages after which a new task can begin (`solve --from UUID --at SEQ`): they end a group, behind the briefing.

A group is an answer with all its results.  A result that is missing (its line is damaged, or a kill came before it) is
no reason to wait: where another message follows, the group is over, as it is for the model (`context/projection.py`).
The copy of a summary is none: it says nothing, and `show` does not list it.  Only reads.  Called by `past.py`.
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
    """Every message of a task, one in memory at a time, and whether it ends a group."""
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
