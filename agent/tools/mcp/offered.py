"""The tools of servers as the model gets them: legal names, short descriptions, schemas that are cheap to check.

Pure functions.  The texts come from a server, so they are data: a description is marked with the name of its server,
cleaned and cut.  Annotations, titles and icons are not used.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.tools.mcp.schemas import offered_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from agent.values import Json

LONGEST_NAME = 64
"""Maximum characters of a function's name (the API references of OpenAI and of Anthropic)."""
LONGEST_DESCRIPTION = 1024
"""Maximum characters of a description that every model server takes (Azure OpenAI, "Function calling")."""
MOST_TOOLS = 128
"""Maximum tools of all servers together (the API reference of OpenAI: "a max of 128 functions are supported")."""
_SIGNS = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool in the list of a server, as the server describes it; `schema` is its input schema."""

    tool: str
    description: str
    schema: Json

    def digest(self, server: str) -> str:
        """SHA-256 over server, tool, description and schema, as hexadecimal digits."""
        parts = [server, self.tool, self.description, self.schema]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the model gets it; `digest` identifies the description of the server that it was made from."""

    server: str
    tool: str
    name: str
    description: str
    parameters: Json
    digest: str

    def to_dict(self) -> Json:
        """The tool as a record."""
        return {
            "server": self.server,
            "tool": self.tool,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "digest": self.digest,
        }

    @classmethod
    def from_dict(cls, record: Json) -> OfferedTool:
        """The tool in a record of `to_dict`."""
        server, tool, name, description, digest = (
            str(record[key]) for key in ("server", "tool", "name", "description", "digest")
        )
        return cls(server, tool, name, description, dict(record["parameters"]), digest)


def legal_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """`{server}__{tool}` with the characters and the length that every model server accepts.

    A name that had to be changed, or that is `taken`, ends with digits of a hash, so that two tools never share a name.
    """
    plain = f"{server}__{tool}"
    name = _SIGNS.sub("_", plain)
    if name == plain and len(name) <= LONGEST_NAME and name not in taken:
        return name
    for number in range(1000):
        digits = hashlib.sha256(f"{plain}\0{number}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
        changed = f"{name[: LONGEST_NAME - 9]}_{digits}"
        if changed not in taken:
            return changed
    raise ToolError(f"no free name for the tool {tool!r} of {server}")


def offer(
    server: str,
    listed: Sequence[ListedTool],
    wanted: Sequence[str],
    clean: Callable[[str], str],
    taken: Collection[str] = (),
) -> tuple[list[OfferedTool], dict[str, str]]:
    """(the tools to offer, tool → why it is left out).

    `wanted` are the names in the key `tools`, empty for all; `clean` makes a text safe to show.  A tool that cannot be
    offered costs only itself.
    """
    found: list[OfferedTool] = []
    problems: dict[str, str] = {}
    names = set(taken)
    seen: set[str] = set()
    for one in listed:
        if wanted and one.tool not in wanted:
            continue
        if one.tool in seen:
            problems[one.tool] = "the server lists it twice; the first is offered"
            continue
        seen.add(one.tool)
        try:
            parameters = _cleaned(offered_schema(one.schema), clean)
            name = legal_name(server, one.tool, names)
        except ToolError as error:
            problems[one.tool] = str(error)
            continue
        names.add(name)
        text = " ".join(clean(one.description).split())
        told = f"[MCP server {server}] {text or one.tool}"
        told = told if len(told) <= LONGEST_DESCRIPTION else told[: LONGEST_DESCRIPTION - 1] + "…"
        found.append(OfferedTool(server, one.tool, name, told, parameters, one.digest(server)))
    for missing in wanted:
        if missing not in seen:
            problems[missing] = "the server has no tool of this name"
    return found, problems


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A schema with all its texts cleaned; the names of properties stay, since the server knows them by these."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(one, clean) for one in value]
    if isinstance(value, dict):
        return {key: _cleaned(one, clean) for key, one in value.items()}
    return value


def renamed(tools: Iterable[OfferedTool], taken: Collection[str]) -> list[OfferedTool]:
    """The tools with names that are free among `taken` and among themselves."""
    names, found = set(taken), []
    for one in tools:
        name = legal_name(one.server, one.tool, names)
        names.add(name)
        found.append(replace(one, name=name))
    return found
