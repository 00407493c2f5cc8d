"""Keeps the state of the work, as far as the tools know it: the plan, files read, files changed.

The state of the work is derived only from records of tool calls, so that reading tools.jsonl again gives the same
state; compaction carries it over (docs/window.md, "What is carried"). The size of the state that a compaction carries
over is bounded: it has the 50 files that were read last, and the 50 that were changed last.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.filetree import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.tools.work_tree import Tree
    from agent.values import Json

MOST = 50
WORDS = ("update_plan", "ask_user", "finish")
"""Tools that report about the work, and neither read nor change files."""


class WorkState:
    """The state of the work in one task; `record` must be called for each recorded call."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.plan: list[dict[str, str]] = []
        self.has_run = False
        self._read: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self.written: dict[str, None] = {}

    def record(self, tool: str, arguments: Mapping[str, Any], status: str) -> None:
        """Add one finished call to the state; a call that failed changes nothing. A successful call of a tool that is
        not in WORDS sets `has_run`."""
        if status != "success":
            return
        self.has_run = self.has_run or tool not in WORDS
        if tool == "update_plan":
            items = arguments.get("items")
            if isinstance(items, list):
                self.plan = [
                    {"text": str(item["text"]), "status": str(item["status"])}
                    for item in items
                    if isinstance(item, dict) and "text" in item and "status" in item
                ]
        elif tool == "read_file":
            self._keep(self._read, arguments.get("path"))
        elif tool in ("edit_file", "write_file"):
            self._keep(self._changed, arguments.get("path"))
            with suppress(ToolError):
                self.written[self._tree.relative(str(arguments.get("path")))] = None

    def _keep(self, files: dict[str, None], path: object) -> None:
        try:
            name = self._tree.relative(str(path))
        except ToolError:
            return
        files.pop(name, None)
        files[name] = None
        if len(files) > MOST:
            del files[next(iter(files))]

    def to_dict(self) -> Json:
        """The state as `{"plan": [...], "files_read": [...], "files_changed": [...]}`, files in the order of their last
        use."""
        return {
            "plan": [dict(item) for item in self.plan],
            "files_read": [printable(name) for name in self._read],
            "files_changed": [printable(name) for name in self._changed],
        }
