"""What a tool is: the contract, the values around it and the registry of the built-in ones.

The contract.  A tool has a `name`, a one-line `description` and `parameters` (the JSON schema of an object); all three
are sent to the model with every request, so they are short and never change within a task.  `run(arguments)` gets
arguments that the schema has accepted and returns a Product, or raises ToolError whose text is for the model: what was
found, what is allowed, what to do next.  A tool does not count, cap, mask or record; `toolbox.Toolbox`, the only
caller, does that for all.  A tool opens files of the work tree through `Place.tree` and in no other way, and treats
what it reads as data.  DiskError is not a tool's fault: it goes up and ends the turn.

A built-in tool is a class built with one `Place`; it is one file and one line in `TOOLS`.  Tools of other origin are
handed to the toolbox as instances.
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
    from agent.tools.room import Room
    from agent.tools.tree import Tree
    from agent.values import Finished, Json, Outcome

Run = Callable[[str, float, "Path"], "Finished"]
"""Runs (command, timeout in seconds, file for the whole output) isolated, in the work tree."""

TOOLS = Registry(
    "tool",
    {
        "list_files": "agent.tools.listing:ListFiles",
        "read_file": "agent.tools.reading:ReadFile",
        "search_text": "agent.tools.searching:SearchText",
        "edit_file": "agent.tools.editing:EditFile",
        "write_file": "agent.tools.writing:WriteFile",
        "run_command": "agent.tools.running:RunCommand",
        "read_output": "agent.tools.reading:ReadOutput",
        "update_plan": "agent.tools.planning:UpdatePlan",
        "ask_user": "agent.tools.planning:AskUser",
        "finish": "agent.tools.planning:Finish",
    },
)


@dataclass(frozen=True, slots=True)
class Product:
    """What a tool made, before it is cleaned, masked and capped.

    `spool` is a file with the whole output as raw bytes when `text` may lack something (`dropped` bytes between its
    head and tail); the toolbox takes it over.  `total` is how many bytes there were, which may be more than it holds.
    `head` stands before the text and is never cut.  A `paged` text keeps to the page by itself and says how to go on;
    its lines are not shortened.  A text that says what it is in `hidden` is stored, and only these words are shown.
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
class Place:
    """Where a tool works.

    `room` is how large the next result may be.  `run` is None when commands cannot be run at all, `network` are the
    hosts that they may reach.  `lookup(seq)` gives the recorded result of a tool call, `message(seq)` the text of a
    message, None when there is none.  Times are seconds.  `why_left_out(path)` says why no commit will have a path, ""
    when one will.
    """

    tree: Tree
    outputs: Outputs
    run: Run | None
    lookup: Callable[[int], str | None]
    room: Room
    timeout: float
    max_timeout: float
    why_left_out: Callable[[str], str] = lambda _path: ""
    message: Callable[[int], str | None] = lambda _seq: None
    network: Sequence[str] = ()

    @property
    def page(self) -> int:
        """How many UTF-8 bytes one page of a file may have."""
        return self.room.page

    def fate(self, path: str) -> str:
        """A line for the model about a file that was written and that no commit will have; "" for any other."""
        why = self.why_left_out(self.tree.relative(path))
        return f"\n[note: it will not be in the commit: {why}]" if why else ""


class Tool(Protocol):
    """See the module docstring."""

    name: str
    description: str
    parameters: Json

    def run(self, arguments: Json) -> Product:
        """Do it; ToolError when it cannot be done."""
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
    """Schema of a string."""
    return {"type": "string", "description": description} if description else {"type": "string"}


def whole(description: str, minimum: int = 1) -> Json:
    """Schema of an integer from `minimum` on."""
    return {"type": "integer", "minimum": minimum, "description": description}
