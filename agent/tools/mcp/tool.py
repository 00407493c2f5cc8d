"""Wraps a tool of an MCP server in the form in which the toolbox of a task uses it.

The toolbox checks the arguments of an MCP tool, and cleans, masks, caps and records its result, as for every tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.tools.base import RawResult
    from agent.tools.mcp.offered_tools import OfferedTool
    from agent.values import Json


class McpTool:
    """One tool of an MCP server; `answer(tool, arguments)` returns the result of a call, or raises ToolError."""

    def __init__(self, offered: OfferedTool, answer: Callable[[OfferedTool, Json], RawResult]) -> None:
        self.offered = offered
        self.name = offered.name
        self.description = offered.description
        self.parameters = offered.parameters
        self._answer = answer

    def run(self, arguments: Json) -> RawResult:
        return self._answer(self.offered, arguments)
