"""Defines the contract of a tool, the values around it, and the registry of the built-in tools.

A tool has a `name`, a one-line `description` and `parameters` (the JSON schema of an object). Name, description and
parameters are sent to the model with every request, so they are short and never change within a task. The method
`run(arguments)` of a tool gets arguments that match the schema. The method `run` of a tool returns a RawResult, or
raises ToolError with a text for the model: what was found, what is allowed, what to do next. A tool does not count the
tokens of its result, nor cap, mask or record the result; `toolbox.Toolbox` does this for all tools. A tool opens files
of the work tree only through `ToolContext.tree`, and treats their contents as data. A DiskError in a tool is no result
for the model: it is raised and ends the turn.

A built-in tool is a class that is constructed with one `ToolContext`; a new one needs its class and one line in
`TOOLS`.  Tools that are not built in are passed to the toolbox as instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.tools.outputs import Outputs
    from agent.tools.result_budget import ResultBudget
    from agent.tools.work_tree import Tree
    from agent.values import Finished, Json, Outcome

Run = Callable[[str, float, "Path"], "Finished"]
"""A function that gets (command, timeout in seconds, file for the whole output) and runs the command in the sandbox, in
the work tree."""

TOOLS = Registry(
    "tool",
    {
        "list_files": "agent.tools.list_files:ListFiles",
        "read_file": "agent.tools.read_file:ReadFile",
        "search_text": "agent.tools.search_text:SearchText",
        "edit_file": "agent.tools.edit_file:EditFile",
        "write_file": "agent.tools.write_file:WriteFile",
        "run_command": "agent.tools.run_command:RunCommand",
        "read_output": "agent.tools.read_file:ReadOutput",
        "update_plan": "agent.tools.planning:UpdatePlan",
        "ask_user": "agent.tools.planning:AskUser",
        "finish": "agent.tools.planning:Finish",
    },
)


@dataclass(frozen=True, slots=True)
class RawResult:
    """The result of a tool, before it is cleaned, masked and capped.

    `dropped` is the number of bytes that are missing between head and tail of `text`; if it is above 0, the toolbox
    stores the whole output from the file `spool` (raw bytes), and then removes that file. `total` is the number of
    bytes of the whole output, which may be more than the file `spool` has. `head` is a text that precedes the result's
    text; it is shortened only if it is longer than a quarter of the maximum size of a result. If `paged` is True, the
    tool has limited `text` to one page that tells how to continue, and the lines of `text` are not shortened. If
    `hidden` has a description, the text of the result is stored and only the description is shown.
    """

    text: str
    status: str = "success"
    head: str = ""
    spool: Path | None = None
    dropped: int = 0
    outcome: Outcome | None = None
    paged: bool = False
    hidden: str = ""
    total: int = 0


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The values that a tool gets from its task: tree, outputs, limits.

    `room` gives the maximum size of the next result. `run` is None when commands cannot be run at all; `network` are
    the hosts that commands may reach. `lookup(seq)` returns the recorded result of a tool call, `message(seq)` the text
    of a message; both functions return None for a number that does not exist. `timeout` and `max_timeout` of commands
    are in seconds. `why_left_out(path)` is the reason why commits exclude a path, "" if they include it.
    """

    tree: Tree
    outputs: Outputs
    run: Run | None
    lookup: Callable[[int], str | None]
    room: ResultBudget
    timeout: float
    max_timeout: float
    why_left_out: Callable[[str], str] = lambda _path: ""
    message: Callable[[int], str | None] = lambda _seq: None
    network: Sequence[str] = ()

    @property
    def page(self) -> int:
        """The maximum UTF-8 bytes of one page of a file."""
        return self.room.page_bytes

    def fate(self, path: str) -> str:
        """A line for the model about a written file, if commits exclude that file; "" for any other file."""
        why = self.why_left_out(self.tree.relative(path))
        return f"\n[note: it will not be in the commit: {why}]" if why else ""


class Tool(Protocol):
    """The contract of a tool, which the docstring of `agent/tools/base.py` describes."""

    name: str
    description: str
    parameters: Json

    def run(self, arguments: Json) -> RawResult:
        """Run the tool; raises ToolError when the tool fails."""
        ...


def schema(required: tuple[str, ...] = (), **properties: Json) -> Json:
    """The JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def text_of(description: str = "") -> Json:
    """The JSON schema of a string."""
    return {"type": "string", "description": description} if description else {"type": "string"}


def whole(description: str, minimum: int = 1) -> Json:
    """The JSON schema of an integer from `minimum` on."""
    return {"type": "integer", "minimum": minimum, "description": description}
