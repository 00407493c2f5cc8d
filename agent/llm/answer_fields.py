"""Reads fields of a server's JSON and checks their types.

A field that does not have the expected type raises ShapeWrong, which names the field, the expected type and the value
found. The modules that parse answers (`wire_*.py`) read nested fields with the functions of `answer_fields.py`, so that
a Python error in these modules is a bug of this program and not the effect of a malformed answer. A missing field,
null, and an empty value of a server's JSON count as an empty object or list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ShapeWrong

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.values import Json

SHOWN = 60
"""Maximum characters of a wrong value that an error message shows."""


def object_in(record: Mapping[str, Any], name: str) -> Json:
    """The object in the field `name` of a server's JSON; {} if the field is missing or empty. Raises ShapeWrong for any
    other value."""
    value = record.get(name)
    if not value:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, "an object", value)
    return value


def objects_in(record: Mapping[str, Any], name: str) -> Sequence[Json]:
    """The list of objects in the field `name` of a server's JSON; () if the field is missing or empty. Raises
    ShapeWrong for any other value."""
    value = record.get(name)
    if not value:
        return ()
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise _wrong(f"{name}[{place}]", "an object", item)
    return value


def index_in(record: Mapping[str, Any], name: str = "index") -> int | float | str | None:
    """The index in the field `name` of a server's JSON, a number or a text; None if the field is missing. Raises
    ShapeWrong for any other value."""
    value = record.get(name)
    if value is not None and not isinstance(value, int | float | str):
        raise _wrong(name, "a number", value)
    return value


def text_in(record: Mapping[str, Any], name: str) -> str:
    """The text in the field `name` of a server's JSON; "" if the field is missing. Raises ShapeWrong for any other
    value."""
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(name, "text", value)
    return value


def _wrong(name: str, kind: str, value: Any) -> ShapeWrong:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
    return ShapeWrong(f"the field `{name}` must be {kind}, and is {shown}")
