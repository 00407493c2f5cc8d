"""Converts the tools of servers to the form that the model gets: legal names, short descriptions, schemas that are
cheap to check.

Pure functions. The texts of an offered tool come from a server, so they are data: a description is marked with the name
of its server, cleaned and cut. Annotations, titles and icons of an MCP server's tools are not used.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.store.storable_text import fit_json
from agent.tools.mcp.schemas import offered_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from agent.values import Json

LONGEST_NAME = 64
"""Maximum characters of the name of a function in a request (the API references of OpenAI and of Anthropic)."""
LONGEST_DESCRIPTION = 1024
"""Maximum characters of a tool's description that every model server accepts (Azure OpenAI, "Function calling")."""
MOST_TOOLS = 128
"""Maximum number of tools in one request (the API reference of OpenAI: "a max of 128 functions are supported")."""
_SIGNS = re.compile(r"[^A-Za-z0-9_-]+")
_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool in the list of an MCP server, as the server describes it; `schema` is its input schema."""

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
    """An MCP tool in the form in which the model gets it; `digest` identifies the server's description of the tool,
    from which the offered tool was made."""

    server: str
    tool: str
    name: str
    description: str
    parameters: Json
    digest: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Name of an argument for the model → name of this argument for the server, for the names that differ."""

    def arguments(self, given: Json) -> Json:
        """The arguments of a call by the model, with the names that the server uses."""
        return {self.renamed.get(name, name): value for name, value in given.items()}

    def to_dict(self) -> Json:
        """The offered tool as a record."""
        return {
            "server": self.server,
            "tool": self.tool,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "digest": self.digest,
            "renamed": dict(self.renamed),
        }

    @classmethod
    def from_dict(cls, record: Json) -> OfferedTool:
        """The offered tool in a record made by `to_dict`."""
        server, tool, name, description, digest = (
            str(record[key]) for key in ("server", "tool", "name", "description", "digest")
        )
        renamed = {str(key): str(value) for key, value in (record.get("renamed") or {}).items()}
        return cls(server, tool, name, description, dict(record["parameters"]), digest, renamed)


def legal_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """The name of an offered tool: `{server}__{tool}` with the characters and the length that every model server
    accepts.

    A name that was changed, or that another tool has (`taken`), ends with digits of a hash, so that two tools never
    share a name.
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
    """(the offered tools of an MCP server, name of each other tool → the reason why it is left out).

    `wanted` are the names in the configuration key `tools`, empty for all; `clean` makes a text safe to show. A tool
    that cannot be offered does not prevent the other tools.
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
            # `fit_json` replaces values that the record in tools.jsonl could not represent exactly, such as large
            # integers
            parameters, renamed = legal_arguments(_cleaned(offered_schema(fit_json(one.schema)), clean))
            name = legal_name(server, one.tool, names)
        except ToolError as error:
            problems[one.tool] = str(error)
            continue
        names.add(name)
        text = " ".join(clean(one.description).split())
        told = f"[MCP server {server}] {text or clean(one.tool)}"
        told = told if len(told) <= LONGEST_DESCRIPTION else told[: LONGEST_DESCRIPTION - 1] + "…"
        found.append(OfferedTool(server, one.tool, name, told, parameters, one.digest(server), renamed))
    for missing in wanted:
        if missing not in seen:
            problems[missing] = "the server has no tool of this name"
    return found, problems


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A schema with all its texts cleaned. The names of properties are not changed, since the server uses them; raises
    ToolError for a name that would look different to a person."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(one, clean) for one in value]
    if isinstance(value, dict):
        if odd := [key for key in value if clean(key) != key]:
            raise ToolError(f"its input schema has the name {clean(odd[0])[:60]!r} with invisible characters")
        return {key: _cleaned(one, clean) for key, one in value.items()}
    return value


def legal_arguments(parameters: Json) -> tuple[Json, dict[str, str]]:
    """(the schema with names of arguments that every model server accepts, new name → the server's name).

    Anthropic refuses the whole request because of one argument with other characters in its name, such as `$top` or
    `filter[id]` (ComposioHQ/composio#3500).
    """
    names: dict[str, str] = {}  # name that the server uses → new name for the model
    for key in parameters["properties"]:
        if not _ARGUMENT.fullmatch(key):
            digits = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            names[key] = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', key)[:56]}_{digits}"
    if not names:
        return parameters, {}
    made = {key: value for key, value in parameters.items() if key != "dependentSchemas"}
    made["properties"] = {names.get(key, key): value for key, value in parameters["properties"].items()}
    if "required" in parameters:
        made["required"] = [names.get(key, key) for key in parameters["required"]]
    return made, {new: old for old, new in names.items()}
