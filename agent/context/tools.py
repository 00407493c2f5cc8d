"""ToolStore: tools.jsonl, every tool call: arguments, result as the model got it, duration (seed 002, 3.6 and 4.4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.security.redact import Redactor
from agent.store.jsonl import JsonlFile, find
from agent.store.text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.values import Json

STATUSES = ("success", "error")


class ToolStore:
    """The tool calls of one task."""

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redactor | None = None) -> None:
        self.redact = redact or Redactor(())
        self.path = Path(context_dir) / "tools.jsonl"
        self.file = JsonlFile(self.path, durability=durability)
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
        """Record one call; returns its number, from 1, by which `read_output("tools:N")` finds it.

        `status` is "success" or "error"; `error` is recorded with the second; `output` names the file below the
        task's folder that holds the whole text when `result` was cut.
        """
        if status not in STATUSES:
            raise ValueError(f"status is {status!r}; allowed are success and error")
        self.file.refresh()
        record: Json = {
            "seq": self.file.next_id(),
            "tool": tool_name,
            "args": self._masked(args),
            "result": self._masked(result),
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

    def _masked(self, value: Any) -> Any:
        """`value` as it was unless a declared secret is in it."""
        if isinstance(value, str):
            return self.redact(value)
        text = dumps(value).decode()
        return value if (masked := self.redact(text)) == text else orjson.loads(masked)

    def count_tool_calls(self) -> int:
        """How many there are."""
        self.file.refresh()
        return self.file.count

    def newest_of(self, tool_name: str | None) -> int:
        """The number of the newest call when it was of this tool, else 0."""
        return self.file.count if tool_name and self._last_name == tool_name else 0

    def result(self, seq: int) -> str | None:
        """The recorded result of call `seq` as text, None when there is no such call."""
        record = find(self.path, seq)
        found = record.get("result") if record is not None else None
        return found if isinstance(found, str) or found is None else str(found)

    def records(self) -> Iterator[Json]:
        """Every call, in order, one in memory at a time."""
        for _, record in self.file.records():
            yield record

    def recent(self, limit: int = 50) -> list[Json]:
        """The newest `limit` calls, oldest first; read from the end of the file."""
        found: list[Json] = []
        for record in self.file.backwards():
            if len(found) == limit:
                break
            found.append(record)
        return found[::-1]

    def last(self) -> Json | None:
        """The newest call, None when there is none."""
        return self.file.last()

    def sync(self, *, force: bool = False) -> None:
        """Make them durable."""
        self.file.sync(force=force)
