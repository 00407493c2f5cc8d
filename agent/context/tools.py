"""ToolStore has tools.jsonl: every tool call with its arguments, the result that the model got, and its duration.

See docs/design/context.md, 3.6 and 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.context.secret_masking import masked, unmasked
from agent.errors import RecordRefused
from agent.store.jsonl import find

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.values import Json, Redact

STATUSES = ("success", "error")


class ToolStore(Store):
    """The tool calls of one task."""

    NAME = "tools.jsonl"

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        super().__init__(context_dir, durability=durability, redact=redact)
        last = self.file.last()
        self._last_name = str(last.get("tool")) if last else ""

    def add_tool_call(
        self,
        tool_name: str,
        args: Any,
        result: Any,
        status: str,
        duration_ms: float,
        error: str | None = None,
        *,
        output: str | None = None,
    ) -> int:
        """Record one call; returns its number, from 1, with which the tool `read_output` finds it (`tools:N`).

        `status` is "success" or "error"; `error` is the message of an error; `output` names the file below the task's
        folder with the whole text, if `result` was cut.  Raises RecordRefused, with nothing written, if `status` is
        neither of the two.
        """
        if status not in STATUSES:
            raise RecordRefused(f"status is {status!r}; allowed are success and error")
        self.file.refresh()
        record: Json = {
            "seq": self.file.next_id(),
            "tool": tool_name,
            "args": masked(args, self.redact),
            "result": masked(result, self.redact),
            "status": status,
            "duration_ms": round(duration_ms),
            "timestamp": clock.stamp(),
        }
        if error is not None:
            record["error"] = self.redact(error)
        if output is not None:
            record["output"] = output
        self.file.append(record)
        self._last_name = tool_name
        return int(record["seq"])

    def count_tool_calls(self) -> int:
        """The number of recorded tool calls."""
        self.file.refresh()
        return self.file.count

    def newest_of(self, tool_name: str | None) -> int:
        """The number of the newest tool call if it called the tool `tool_name`, else 0."""
        return self.file.count if tool_name and self._last_name == tool_name else 0

    def result(self, seq: int) -> str | None:
        """The recorded result of call `seq` as text, None when there is no such call."""
        record = find(self.path, seq)
        found = record.get("result") if record is not None else None
        return found if isinstance(found, str) or found is None else str(found)

    def records(self) -> Iterator[Json]:
        """All tool calls of the task, in order, one in memory at a time."""
        for _, record in self.file.records():
            yield record

    def recent(self, limit: int = 50) -> list[Json]:
        """The newest `limit` tool calls, oldest first; they are read from the end of the file."""
        found: list[Json] = []
        for record in self.file.backwards():
            if len(found) == limit:
                break
            found.append(record)
        return found[::-1]

    def last(self) -> Json | None:
        """The newest tool call, None when there is none."""
        return self.file.last()
