"""Converts input schemas of an MCP server's tools to the form that the model gets, and by which the model's arguments
are checked.

A schema comes from outside and may be hostile: references to other hosts, patterns that take for ever, definitions that
double at each step.  Unknown keywords of a schema are removed; references are replaced by their definitions, a
recursive reference by "any value"; patterns are left out (the server checks its arguments itself); the size is bounded.
Keywords that model servers refuse at the top of a function's parameters are left out of a schema too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.values import Json

LARGEST = 64 << 10
"""Maximum bytes of one schema after its references were replaced."""
DEEPEST = 40
_MOST_NODES = 5000

_PLAIN = frozenset(
    {
        *("type", "enum", "const", "default", "examples", "title", "description", "format", "required", "deprecated"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "minContains", "maxContains"),
    }
)
_ONE = frozenset({"items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"})
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP = frozenset({"properties", "dependentSchemas"})
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")
"""Keywords that OpenAI and Anthropic refuse at the top of a function's parameters (their API references)."""


def offered_schema(schema: Json) -> Json:
    """The schema that the model gets, and by which its arguments are checked. Raises ToolError when the schema does not
    allow the tool to be offered.
    """
    if not isinstance(schema, dict):
        raise ToolError("its input schema is no JSON object")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ToolError(f"its input schema is of type {str(kind)[:40]!r}; a tool takes an object")
    made = _Expansion(schema).expand(schema, (), 0)
    assert isinstance(made, dict)
    top: Json = {key: value for key, value in made.items() if key not in _NOT_AT_THE_TOP}
    top["type"] = "object"
    top.setdefault("properties", {})
    size = len(json.dumps(top))
    if size > LARGEST:
        raise ToolError(f"its input schema has {size:,} bytes, at most {LARGEST:,} are offered")
    _check(top)
    return top


def _check(schema: Json) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(str(step) for step in error.absolute_path)
        raise ToolError(
            f"its input schema is invalid{f' at {where[:80]}' if where else ''}: {error.message[:160]}"
        ) from None
    except RecursionError:
        raise ToolError("its input schema is nested too deep") from None


class _Expansion:
    """Replaces the references of one schema by their definitions."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.nodes = 0

    def expand(self, schema: Any, inside: tuple[str, ...], depth: int) -> Any:
        """A schema in which the references are replaced; `inside` are the references that are being replaced. Raises
        ToolError for a schema that is invalid, too deep or too large."""
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise ToolError("its input schema has too many parts")
        if depth > DEEPEST:
            raise ToolError("its input schema is nested too deep")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise ToolError(f"its input schema is invalid: found {str(schema)[:40]!r} in place of a schema")
        made = dict(self._keywords(schema, inside, depth))
        if "$ref" in schema:
            made = {**self._referenced(schema["$ref"], inside, depth), **made}
        kind = made.get("type")
        if kind == "array" or (isinstance(kind, list) and "array" in kind):
            made.setdefault("items", {})
        return made

    def _keywords(self, schema: Json, inside: tuple[str, ...], depth: int) -> Iterator[tuple[str, Any]]:
        patterns = bool(schema.get("patternProperties"))
        for key, value in schema.items():
            if key in _PLAIN:
                yield key, value
            elif key in _ONE:
                if key == "items" and isinstance(value, list):
                    yield "prefixItems", [self.expand(one, inside, depth + 1) for one in value]
                elif key == "additionalProperties" and patterns:
                    continue  # a pattern, which is left out of the schema, may allow properties that are not named
                else:
                    yield key, self.expand(value, inside, depth + 1)
            elif key in _LIST and isinstance(value, list):
                yield key, [self.expand(one, inside, depth + 1) for one in value]
            elif key in _MAP and isinstance(value, dict):
                yield key, {str(name): self.expand(one, inside, depth + 1) for name, one in value.items()}

    def _referenced(self, reference: Any, inside: tuple[str, ...], depth: int) -> Json:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ToolError(f"its input schema refers to {str(reference)[:80]!r}, outside of itself")
        if reference in inside or reference == "#":
            return {}  # a recursive reference becomes a schema for any value
        target: Any = self.root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise ToolError(f"its input schema refers to {reference[:80]!r}, which it does not define")
        made = self.expand(target, (*inside, reference), depth + 1)
        return made if isinstance(made, dict) else {}
