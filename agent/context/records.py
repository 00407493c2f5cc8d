"""The records of messages.jsonl: made fit at entry, and their wire form in current.jsonl.

What leaves here is legal for OpenAI's wire, so that a request copies bytes: text without surrogates and NUL, content
null only beside calls, call ids unique and names within their alphabet, arguments a JSON object as a string (public
fact: wire.md section 1).  Pure functions; `messages.py` decides where a message may stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.provider_fields import of_call, of_message, of_record
from agent.store.text import dumps, fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.context.provider_fields import Origin
    from agent.values import Json

ROLES = frozenset(("system", "user", "assistant", "tool"))
KINDS = {
    "system": "system",
    "task": "user",
    "comment": "user",
    "nudge": "user",
    "fix": "user",
    "summary": "assistant",
}
"""kind → the role that it goes with.  Ordinary messages have none."""

UNSEEN_KINDS = frozenset(("system", "task", "summary"))
"""Kinds that never stand among the messages of the view: the head is placed by itself, a summary's copy is a copy."""

NO_OUTPUT = "(no output)"
EMPTY = "(empty message)"
INTERRUPTED = (
    "interrupted, outcome unknown: the process ended before the result of this call was recorded. "
    "It may have been carried out, in part or in full; look at the present state before repeating it."
)
LOST = "result unavailable: its record was damaged on disk"

_NAME_SIGNS = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def is_legible(record: Json) -> bool:
    """Whether a record that was read can be placed: role and content are what they must be."""
    content = record.get("content")
    role = record.get("role")
    if role not in ROLES or not (content is None or isinstance(content, str)):
        return False
    if role == "tool":
        return isinstance(record.get("tool_call_id"), str) and content is not None
    return content is not None or role == "assistant"


def is_seen(record: Json) -> bool:
    """Whether a record may stand among the messages of the view: not the head, no copy, and not an answer with
    neither text nor calls, which every provider refuses (it is kept in messages.jsonl with its usage)."""
    if record.get("kind") in UNSEEN_KINDS:
        return False
    if record["role"] != "assistant" or record.get("tool_calls"):
        return True
    content = record["content"]
    return bool(content) and not content.isspace()


def content_of(role: str, content: str | None, *, calls: bool) -> str | None:
    """The content as it is recorded; ValueError when there cannot be such a message."""
    if content is None:
        if role == "tool":
            return NO_OUTPUT
        if role != "assistant":
            raise ValueError(f"content of a {role} message is null; only an answer with tool calls may have none")
        return None if calls else ""
    if not isinstance(content, str):
        raise ValueError(  # noqa: TRY004 - the contract names one error for what cannot be added
            f"content of a {role} message is {type(content).__name__}; it must be text, encode it as JSON first"
        )
    text = fit(content)
    if text and not text.isspace():
        return text
    if role == "assistant":
        return None if calls else text
    return NO_OUTPUT if role == "tool" else EMPTY


def calls_of(tool_calls: Any, taken: Callable[[str], bool], seq: int) -> list[Json]:
    """Tool calls in OpenAI's form, as messages.jsonl keeps them.

    Each is `{"id", "name", "arguments": dict | str}`, with `"invalid"` beside it, or already in OpenAI's form.  An id
    that is empty or `taken` (in the view, or twice in this answer) gets a new one and keeps the old as `given_id`, by
    which its result is found as well.
    """
    calls: list[Json] = []
    here: set[str] = set()
    for number, call in enumerate(tool_calls, 1):
        function = call.get("function")
        source = function if isinstance(function, Mapping) else call
        given = fit(str(call.get("id") or ""))
        identifier = given or f"call_{seq}_{number}"
        if identifier in here or taken(identifier):
            identifier = f"{identifier}_{seq}_{number}"
        while identifier in here or taken(identifier):
            identifier += "x"
        here.add(identifier)
        arguments, invalid = _arguments(source.get("arguments"))
        invalid = call.get("invalid") or invalid
        entry: Json = {
            "id": identifier,
            "type": "function",
            "function": {"name": name_of(source.get("name")), "arguments": arguments},
        }
        if invalid:
            entry["invalid"] = fit(str(invalid))
        if given and given != identifier:
            entry["given_id"] = given
        calls.append(entry)
    return calls


def name_of(name: Any) -> str:
    """A function's name within 1 to 64 signs of A–Z, a–z, 0–9, `_` and `-`."""
    return _NAME_SIGNS.sub("_", str(name or ""))[:_LONGEST_NAME] or "unknown"


def _arguments(arguments: Any) -> tuple[str, str]:
    """(JSON object as text, what was wrong with it)."""
    if arguments is None or arguments == "":
        return "{}", ""
    if isinstance(arguments, Mapping):
        return dumps(arguments).decode(), ""
    text = fit(str(arguments))
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}", f"arguments are not JSON: {text[:200]}"
    if not isinstance(found, dict):
        return "{}", f"arguments are not a JSON object: {text[:200]}"
    return text, ""


def open_calls_of(record: Json) -> list[Json]:
    """`{"id", "name"}` of the calls in a record, with `given_id` where it differs."""
    return [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            **({"given_id": call["given_id"]} if "given_id" in call else {}),
        }
        for call in record.get("tool_calls") or ()
    ]


def wire(record: Json, origin: Origin | None = None) -> Json:
    """The record as OpenAI takes it: only the keys of its schema (unknown ones are refused), and what the wire and
    model of `origin` gave with an answer and want back."""
    role = record["role"]
    if role == "tool":
        return {"role": role, "tool_call_id": record["tool_call_id"], "content": record["content"]}
    fields = of_record(record, origin) if role == "assistant" else None
    message: Json = {"role": role, "content": record["content"]}
    if role == "user" and record.get("images"):
        message["images"] = record["images"]
    if fields is not None:
        message |= of_message(fields)
    if record.get("tool_calls"):
        calls = [{"id": call["id"], "type": "function", "function": call["function"]} for call in record["tool_calls"]]
        message["tool_calls"] = calls if fields is None else [of_call(fields, call) for call in calls]
    return message


def result_line(identifier: str, content: str) -> Json:
    """The wire form of a tool result."""
    return {"role": "tool", "tool_call_id": identifier, "content": content}
