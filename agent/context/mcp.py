"""McpStore has mcp.jsonl: the tools of MCP servers that a task has, and every call of these tools.

A line of the kind `tools` in mcp.jsonl is written before the first message; the newest one counts, so that every
process of the task offers the same tools. A line of the kind `call` in mcp.jsonl has the result as the server gave it,
with declared secrets masked, before it is cut for the window; `replay` answers from these lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.context.base import Store
from agent.context.secret_masking import masked
from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.values import Json

TOOLS, CALL = "tools", "call"


class McpStore(Store):
    """The recorded tools of MCP servers of one task, and the calls of these tools."""

    NAME = "mcp.jsonl"

    def add_tools(self, tools: Sequence[Json], notices: Sequence[str]) -> None:
        """Record the MCP tools that the model gets; `notices` are sentences for people about the tools that it does not
        get.
        """
        self._add({"kind": TOOLS, **masked({"tools": list(tools), "notices": list(notices)}, self.redact)})

    def tools(self) -> list[Json] | None:
        """The newest recorded MCP tools, None when none were recorded."""
        found = self._newest().get("tools")
        return list(found) if isinstance(found, list) else None

    def notices(self) -> list[str]:
        """The notices that were recorded together with the newest tools."""
        return [str(one) for one in self._newest().get("notices") or ()]

    def _newest(self) -> Json:
        found: Json = {}
        for record in self._records(TOOLS):
            found = record
        return found

    def add_call(self, name: str, args: Any, result: Json) -> None:
        """Record a call of an MCP tool and its result: `{"text", "head", "status"}`, or `{"error"}`."""
        self._add({"kind": CALL, "name": name, "args": masked(args, self.redact), **masked(result, self.redact)})

    def calls(self) -> Iterator[Json]:
        """The recorded calls of MCP tools, the oldest first."""
        return self._records(CALL)

    def _records(self, kind: str) -> Iterator[Json]:
        self.file.refresh()
        return (record for _, record in self.file.records() if record.get("kind") == kind)

    def _add(self, record: Json) -> None:
        self.file.refresh()
        self.file.append({"seq": self.file.next_id(), **fit_json(record), "timestamp": clock.stamp()})
