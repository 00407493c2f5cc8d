"""Makes the records of messages.jsonl valid when they are added, and converts them into their wire form in
current.jsonl.

The wire form is legal for OpenAI, so that a request copies its bytes: text without surrogates and NUL, content null
only beside calls, unique call ids, names in the allowed alphabet, arguments as a JSON object in a string (docs/wire.md,
"The request"). All functions of `message_records.py` are pure; `messages.py` decides where a message is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from agent.context.provider_fields import of_call, of_message, of_record
from agent.errors import RecordRefused
from agent.message_list_check import ROLES
from agent.store.storable_text import dumps, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.context.provider_fields import Origin
    from agent.values import Json

KINDS = {
    "system": "system",
    "task": "user",
    "comment": "user",
    "nudge": "user",
    "fix": "user",
    "condition": "user",
    "memory": "user",
    "summary": "assistant",
}
"""Kind of a message → its role.  Ordinary messages have no kind."""

UNSEEN_KINDS = frozenset(("system", "task", "summary"))
"""Kinds of records that are not in the message sequence of the view: system message and briefing are at the head of the
view, and a record of the kind `summary` is only a copy."""

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
    """Whether a record can be part of the view: its role and content have the right types."""
    content = record.get("content")
    role = record.get("role")
    if role not in ROLES or not (content is None or isinstance(content, str)):
        return False
    if role == "tool":
        return isinstance(record.get("tool_call_id"), str) and content is not None
    return content is not None or role == "assistant"


def is_seen(record: Json) -> bool:
    """Whether a record of messages.jsonl may be in the message sequence of the view.

    The message sequence excludes a system message and a briefing (the view has them at its head), a copy of a summary,
    and an answer with neither text nor calls (providers refuse it; messages.jsonl has it for its usage).
    """
    if record.get("kind") in UNSEEN_KINDS or record["role"] == "system":
        return False
    if record["role"] != "assistant" or record.get("tool_calls"):
        return True
    content = record["content"]
    return bool(content) and not content.isspace()


def content_of(role: str, content: str | None, *, calls: bool) -> str | None:
    """The content for the record of a message, None for an answer with tool calls and without a text; raises
    RecordRefused for an invalid message."""
    if content is None:
        if role == "tool":
            return NO_OUTPUT
        if role != "assistant":
            raise RecordRefused(f"content of a {role} message is null; only an answer with tool calls may have none")
        return None if calls else ""
    if not isinstance(content, str):
        raise RecordRefused(
            f"content of a {role} message is {type(content).__name__}; it must be text, encode it as JSON first"
        )
    text = replace_surrogates(content)
    if text and not text.isspace():
        return text
    if role == "assistant":
        return None if calls else text
    return NO_OUTPUT if role == "tool" else EMPTY


def calls_of(tool_calls: Any, taken: Callable[[str], bool], seq: int) -> list[Json]:
    """Tool calls in OpenAI's form, in which messages.jsonl stores them.

    Each of `tool_calls` is `{"id", "name", "arguments": dict | str}`, possibly with `"invalid"`, or already in OpenAI's
    form. The id of a call is replaced if it is empty, if `taken` says that the view has it, or if another call of this
    answer has it; the record has the old id as `given_id`, with which a result finds its call too.
    """
    calls: list[Json] = []
    here: set[str] = set()
    for number, call in enumerate(tool_calls, 1):
        function = call.get("function")
        source = function if isinstance(function, Mapping) else call
        given = replace_surrogates(str(call.get("id") or ""))
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
            entry["invalid"] = replace_surrogates(str(invalid))
        if given and given != identifier:
            entry["given_id"] = given
        calls.append(entry)
    return calls


def name_of(name: Any) -> str:
    """The name of a function in its legal form: 1 to 64 characters A–Z, a–z, 0–9, `_` and `-`."""
    return _NAME_SIGNS.sub("_", str(name or "")[:_LONGEST_NAME]) or "unknown"


def _arguments(arguments: Any) -> tuple[str, str]:
    """(the arguments of a tool call as the text of a JSON object, the error in the arguments or "")."""
    if arguments is None or arguments == "":
        return "{}", ""
    if isinstance(arguments, Mapping):
        return dumps(arguments).decode(), ""
    text = replace_surrogates(str(arguments))
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return "{}", f"arguments are not JSON: {text[:200]}"
    if not isinstance(found, dict):
        return "{}", f"arguments are not a JSON object: {text[:200]}"
    return text, ""


def open_calls_of(record: Json) -> list[Json]:
    """`{"id", "name"}` of the tool calls in a record, with `given_id` if it differs."""
    return [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            **({"given_id": call["given_id"]} if "given_id" in call else {}),
        }
        for call in record.get("tool_calls") or ()
    ]


def wire(record: Json, origin: Origin | None = None) -> Json:
    """The record of a message in the form of OpenAI's API.

    The wire form has only the keys of the schema (a server may refuse other keys), `images` of a user's message, and
    the fields that the wire and model of `origin` returned with an answer and expect back.
    """
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
