"""Converts pydantic's errors to one ConfigError with advice for a person.

Each error of pydantic becomes one line: file and line, the key, the value found, the allowed values, and for an unknown
key the most similar known key. Values of secret keys and of unknown keys are never shown.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from agent.config import key_tree
from agent.config.base import section_in
from agent.config.settings import Settings, passwords_in
from agent.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from agent.config.base import Section
    from agent.config.layers import Merged

LONGEST = 60
MOST_KNOWN = 10  # an error lists the keys of a section with more keys only if none is similar
NEVER_PROPOSED = ("none",)  # `none` switches isolation or durability off, so it is not proposed for a misspelt value
_LINE = re.compile(r"\bline (\d+)$")
_KINDS = {str: "text", int: "a whole number", float: "a number"}


def explain(error: ValidationError, merged: Merged, model: type[Section] = Settings) -> ConfigError:
    """One ConfigError for all of pydantic's errors about the keys of `model`."""
    found = error.errors(include_url=False)
    # For a list with a wrong entry pydantic also reports that the list matches no other type of the union; that report
    # is left out.
    inner = {one["loc"][:-1] for one in found}
    shown = [one for one in found if one["loc"] not in inner]
    lines = [_line(one, merged, model) for one in sorted(shown, key=lambda one: _line_number(one, merged))]
    return ConfigError("\n".join(dict.fromkeys(lines)))


def dotted(path: key_tree.Path, merged: Merged) -> str:
    """`path` as a dotted key, without the number of an entry if its section has only one (`github.token`)."""
    if len(path) > 1 and path[1] == "0" and len(merged.entries(path[0])) <= 1:
        path = (path[0], *path[2:])
    return ".".join(path)


def _line_number(one: ErrorDetails, merged: Merged) -> int:
    """The line of the file that sets the key; 0 if no file does."""
    found = _LINE.search(merged.place(_path(one)))
    return int(found[1]) if found else 0


def _path(one: ErrorDetails) -> key_tree.Path:
    path = tuple(str(step) for step in one["loc"])
    if path[-1:] == ("[key]",) and one["type"] != "extra_forbidden":
        # With `[key]` as the last step, pydantic reports an error about the key of an entry instead of its value.
        path = path[:-1]
    return path


def _line(one: ErrorDetails, merged: Merged, model: type[Section]) -> str:
    path = _path(one)
    section, field, steps = key_tree.find(model, path)
    where = merged.place(path)
    if one["type"] == "extra_forbidden":
        near = key_tree.nearest(model, path, steps)
        hint = f"; did you mean {dotted(near, merged)}?" if near else ""
        known = "" if hint and len(section.model_fields) > MOST_KNOWN else ", ".join(section.model_fields)
        allowed = f" Known here: {known}" if known else " (every key: docs/configuration.md)"
        return f"{where}: {dotted(path, merged)} is not a known key{hint or '.'}{allowed}"
    key = dotted(path[:steps], merged)
    if len(path) > steps:
        rest = path[steps]
        key += f", entry {int(rest) + 1}" if rest.isdigit() else f".{rest}"
    words = key_tree.allowed(field) if field is not None else "a mapping"
    if one["type"] == "missing":
        return f"{where}: {key} is missing; allowed is {words}"
    said = str(one.get("ctx", {}).get("error", ""))
    if said:
        return f"{where}: {key or 'configuration'}: {said}"
    return (
        f"{where}: {key}: found {_describe_value(one['input'], field)}; allowed is {words}{_hint(one['input'], field)}"
    )


def _describe_value(value: Any, field: FieldInfo | None) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if field is None or key_tree.is_secret(field) or section_in(field.annotation) is not None:
        return f"{_KINDS.get(type(value), type(value).__name__)} (not shown)"
    text = repr(value) if isinstance(value, str) else str(value)
    for password in passwords_in(value) if isinstance(value, str) else ():
        text = text.replace(password, "********")
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _hint(value: Any, field: FieldInfo | None) -> str:
    names = [name for name in key_tree.names_of(field) if name not in NEVER_PROPOSED] if field is not None else []
    near = get_close_matches(str(value).lower(), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
