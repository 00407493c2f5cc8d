"""Answers in GitHub's own shapes, made from its OpenAPI document, with every field that it requires.

So our loopback GitHub cannot leave out a field that the real one always sends, and a new release of the document
changes the answers without a change of our code.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "specs" / "github-subset.json"
_BY_FORMAT = {
    "uri": "https://example.invalid/x",
    "date-time": "2026-01-31T09:15:00Z",
    "email": "x@example.invalid",
    "uri-template": "https://example.invalid/x{/y}",
}


@cache
def document():
    return json.loads(DOCUMENT.read_text())


def _resolve(schema):
    while "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def _value(schema):
    schema = _resolve(schema)
    if schema.get("nullable"):
        return None
    if "allOf" in schema:
        merged = {}
        for part in schema["allOf"]:
            made = _value(part)
            merged = merged | made if isinstance(made, dict) else made
        return merged
    for choice in ("oneOf", "anyOf"):
        if choice in schema and "properties" not in schema:
            return _value(schema[choice][0])
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        return {name: _value(properties.get(name, {})) for name in schema.get("required", ())}
    return {
        "array": [],
        "integer": 1,
        "number": 1,
        "boolean": False,
        "string": _BY_FORMAT.get(schema.get("format", ""), "x"),
    }.get(kind)


@cache
def _skeleton(name):
    return json.dumps(_value(document()["components"]["schemas"][name] | {"nullable": False}))


def make(schema, /, **fields):
    """An object of the document's schema `schema` with `fields` in it."""
    return json.loads(_skeleton(schema)) | fields
