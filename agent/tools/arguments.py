"""Checks the arguments of a tool call against its schema, with errors for the model.

Each error about an argument names the argument and its fault, and most say what is allowed and show the value found.
Only lossless repairs of arguments are made: null for an optional argument is removed, "50" becomes 50, "true" becomes
true, and JSON text becomes the list or object in it.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from agent.errors import ToolError
from agent.tools.encodings import escape_surrogates

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

    from agent.values import Json


_CONTAINERS: dict[str, type] = {"array": list, "object": dict}


def without_surrogates(value: Any, depth: int = 0) -> Any:
    """`value` with lone surrogates replaced in all its texts; raises ToolError if it has more than 50 levels of lists
    and objects."""
    if depth > 50:
        raise ToolError("the arguments are nested too deep; give plain values")
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, list):
        return [without_surrogates(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {escape_surrogates(str(key)): without_surrogates(one, depth + 1) for key, one in value.items()}
    return value


def _is_whole(value: Any) -> bool:
    """Whether the value is a whole number written as another type: "50", 50.0."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, str) and len(value) < 20 and value.strip().removeprefix("-").isdecimal()


def repair(arguments: Json, schema: Json) -> Json:
    """The arguments after lossless repairs, including repairs inside lists and objects."""
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    result = {}
    for name, value in arguments.items():
        wanted = properties.get(name, {})
        kinds = _kinds(wanted)
        if value is None and kinds and "null" not in kinds and name not in required:
            continue
        result[name] = _repaired(value, wanted)
    return result


def _kinds(schema: Json | bool) -> tuple[str, ...]:
    """The types that the keyword `type` of a schema allows; none if the schema, which may be true or false, has no
    such keyword."""
    kind = schema.get("type", ()) if isinstance(schema, dict) else ()
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _repaired(value: Any, schema: Json | bool) -> Any:
    kinds = _kinds(schema)
    if not isinstance(schema, dict) or (isinstance(value, str) and "string" in kinds):
        return value
    if "integer" in kinds and _is_whole(value):
        return int(value)
    if "boolean" in kinds and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in kinds:
        if kind in _CONTAINERS and isinstance(value, str):
            value = _written_out(value, _CONTAINERS[kind])
    if "array" in kinds and isinstance(value, list):
        return [_repaired(one, schema.get("items", {})) for one in value]
    if "object" in kinds and isinstance(value, dict):
        return repair(value, schema)
    return value


def _written_out(text: str, kind: type) -> Any:
    """The list or object (`kind`) that the JSON text `text` contains; any other text is returned unchanged."""
    try:
        value = json.loads(text)
        return without_surrogates(value) if isinstance(value, kind) else text
    except (ValueError, RecursionError, ToolError):
        return text


def validate(tool: str, arguments: object, schema: Json, validator: Validator) -> Json:
    """The arguments of a tool call, repaired and valid; raises ToolError with up to five of the faults."""
    if isinstance(arguments, str):
        arguments = _written_out(arguments, dict)
    if not isinstance(arguments, dict):
        raise ToolError(
            f"{tool}: the arguments must be an object with {_takes(schema)}; found {_value_as_text(arguments)}"
        )
    mine = repair(without_surrogates(arguments), schema)
    wrong = sorted(validator.iter_errors(mine), key=lambda error: [str(part) for part in error.absolute_path])
    if wrong:
        told = "; ".join(dict.fromkeys(_describe_errors(error) for error in wrong[:5]))
        raise ToolError(f"{tool}: {told}. It takes {_takes(schema)}")
    return mine


def _takes(schema: Json) -> str:
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (optional)" for name in schema.get("properties", {})]
    return ", ".join(names) or "no arguments"


def _value_as_text(value: object) -> str:
    """A value as text of at most 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


def _describe_errors(error: ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    rule = error.validator
    allowed: Any = error.validator_value
    instance: Any = error.instance
    if rule == "required":
        missing = [name for name in allowed if name not in instance]
        prefix = f"{where}." if where else ""
        return f"{', '.join(prefix + name for name in missing)} missing"
    if rule == "additionalProperties":
        known = list(error.schema.get("properties", {})) if isinstance(error.schema, dict) else []
        extra = [name for name in instance if name not in known]
        near = get_close_matches(extra[0], known, n=1) if extra else []
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{', '.join((f'{where}.' if where else '') + name for name in extra)} not known{hint}"
    found = _value_as_text(instance)
    if rule == "type":
        return f"{where} must be of type {allowed}, found {found}"
    if rule == "enum":
        return f"{where} must be one of {', '.join(map(str, allowed))}, found {found}"
    if rule == "minLength":
        return f"{where} must not be empty"
    if rule in ("maxLength", "maxItems"):
        return f"{where} has {len(instance)} {'characters' if rule == 'maxLength' else 'items'}, at most {allowed}"
    if rule == "minimum":
        return f"{where} must be at least {allowed}, found {found}"
    if rule == "maximum":
        return f"{where} must be at most {allowed}, found {found}"
    return f"{where or 'the arguments'}: {error.message[:200]}"
