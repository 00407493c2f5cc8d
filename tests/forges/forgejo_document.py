"""Forgejo's own document of its API, as the shapes of answers and as a check of requests and answers.

The document (`tests/specs/forgejo-subset.json`) is made from the server's Go types.  It names no required field of an
answer: the server writes all fields of a type, with null for what is absent.  `make` does the same, so our loopback
Forgejo cannot leave out a field that the real one always sends.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "specs" / "forgejo-subset.json"
KINDS = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "number": (int, float)}
ZERO = {"string": "", "integer": 0, "boolean": False, "number": 0}  # Go's values of fields that nobody has set


@cache
def document():
    return json.loads(DOCUMENT.read_text())


def make(definition, **fields):
    """An object of the type `definition` with `fields` in it, and Go's zero value for each other field."""
    properties = document()["definitions"][definition]["properties"]
    unknown = set(fields) - set(properties)
    assert not unknown, f"{definition} has no {sorted(unknown)}"
    return {name: None if (value := _zero(shape)) is None else value for name, shape in properties.items()} | fields


def _zero(shape):
    return None if shape.get("format") == "date-time" else ZERO.get(shape.get("type"))


@cache
def _paths():
    found = []
    for path, verbs in document()["paths"].items():
        pattern = re.sub(r"\{[^}]+\}", "([^/]+)", path)
        found.append((re.compile(pattern), path, verbs))
    return found


def operation(verb, path):
    """(path of the document, its operation) for a request below `/api/v1`; None if the document has none."""
    for pattern, known, verbs in _paths():
        if pattern.fullmatch(path) and verb.lower() in verbs:
            return known, verbs[verb.lower()]
    return None


def request_faults(verb, path, query, body):
    """What is wrong with a request, as sentences."""
    found = operation(verb, path)
    if found is None:
        return [f"{verb} {path} is not in the document"]
    parameters = {one["name"]: one for one in found[1].get("parameters", ())}
    faults = [f"the parameter {name} is not in the document" for name in query if name not in parameters]
    for name, value in query.items():
        shape = parameters.get(name, {})
        if "enum" in shape and value not in shape["enum"]:
            faults.append(f"{name}={value} is none of {shape['enum']}")
        if shape.get("type") == "integer" and not value.isdigit():
            faults.append(f"{name}={value} is no number")
    sent = next((one["schema"] for one in parameters.values() if one["in"] == "body"), None)
    if body is not None:
        if sent is None:
            faults.append("the operation has no body")
        else:
            faults += faults_in(body, sent, "body", is_request=True)
    elif sent is not None and verb in ("POST", "PATCH"):
        faults.append("the body is missing")
    return faults


def answer_faults(verb, path, status, data):
    """What is wrong with an answer, as sentences.  A status that the document does not name is one of these."""
    found = operation(verb, path)
    if found is None:
        return []
    answers = found[1]["responses"]
    if str(status) not in answers:
        return [] if status in (403, 405, 409, 412, 500) else [f"the document names no answer {status}"]
    shape = answers[str(status)]
    if "$ref" in shape:
        shape = document()["responses"][shape["$ref"].rsplit("/", 1)[1]]
    if "schema" not in shape:
        return []  # errors are described by headers
    return faults_in(data, shape["schema"], "answer")


def faults_in(value, shape, place, *, is_request=False):
    """What does not match a shape, as sentences; null matches every field of an answer, as Go writes it."""
    if "$ref" in shape:
        shape = document()["definitions"][shape["$ref"].rsplit("/", 1)[1]]
    if value is None:
        return [f"{place} is null"] if is_request else []
    kind = shape.get("type")
    if kind is not None and not isinstance(value, KINDS[kind]):
        return [f"{place} must be {kind}, and is {value!r}"[:200]]
    if kind == "integer" and isinstance(value, bool):
        return [f"{place} must be integer, and is {value!r}"]
    if kind == "array":
        return [fault for one in value for fault in faults_in(one, shape["items"], f"{place}[]", is_request=is_request)]
    faults = [f"{place} lacks {name}" for name in shape.get("required", ()) if name not in value]
    if "properties" in shape:
        known = shape["properties"]
        faults += [f"{place} has the unknown field {name}" for name in value if name not in known]
        for name in set(value) & set(known):
            faults += faults_in(value[name], known[name], f"{place}.{name}", is_request=is_request)
    return faults
