"""What only the server of a model understands, kept beside the answer it came with: reasoning, signatures, the like.

`record["provider_fields"]` is `{"wire", "model", "server", "message": {…}, "calls": {id: {…}}, "tokens", "kept"}`.  The
view has the fields of `message` and `calls` for the wire and the model that gave them, and for no other; `kept` is for
people who look and is never sent.  `tokens` are part of the record's.  Summaries, comments and pull requests have none
of it.  Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.store.text import fit, fit_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.values import Json

NAME = "provider_fields"
OURS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name"))
"""Fields of a message that no server's own field may stand for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The wire and the model that are in force: whose fields the view has."""

    wire: str
    model: str


def of_record(record: Json, origin: Origin | None) -> Json | None:
    """The fields of a record for this wire and model, None when it has none for them."""
    fields = record.get(NAME)
    if origin is None or not isinstance(fields, dict):
        return None
    return fields if (fields.get("wire"), fields.get("model")) == (origin.wire, origin.model) else None


def tokens_of(record: Json, origin: Origin | None) -> int:
    """The tokens of a record in the view: without those of fields that are another's."""
    tokens = record.get("tokens")
    whole = tokens if isinstance(tokens, int) else 0
    fields = record.get(NAME)
    if not isinstance(fields, dict) or of_record(record, origin) is not None:
        return whole
    own = fields.get("tokens")
    return max(0, whole - own) if isinstance(own, int) else whole


def to_keep(given: Mapping[str, Any], calls: Sequence[Json], redact: Callable[[str], str]) -> Json:
    """The fields as they are recorded; `calls` are those of the record, `given["calls"]` has one entry for each.

    Declared secrets are masked in a text.  A structure in which one stands is left out: a signature is of the whole,
    and no server takes a changed one.
    """
    message = _clean(given.get("message"), redact)
    more = given.get("calls") or ()
    by_call = {call["id"]: _clean(one, redact) for call, one in zip(calls, more, strict=False)}
    kept = _clean(given.get("kept"), redact)
    record: Json = {name: fit(str(given.get(name) or "")) for name in ("wire", "model", "server")}
    record["message"] = {key: value for key, value in message.items() if key not in OURS}
    record["calls"] = {call_id: fields for call_id, fields in by_call.items() if fields}
    return record | {"kept": kept} if kept else record


def of_message(fields: Json) -> Json:
    """The fields that stand beside content and calls in the view."""
    message = fields.get("message")
    return {key: value for key, value in message.items() if key not in OURS} if isinstance(message, dict) else {}


def of_call(fields: Json, call: Json) -> Json:
    """A call of the view with its own fields."""
    calls = fields.get("calls")
    own = calls.get(call["id"]) if isinstance(calls, dict) else None
    if not isinstance(own, dict):
        return call
    inner = own.get("function")
    function = {**inner, **call["function"]} if isinstance(inner, dict) else call["function"]
    return {**own, **call, "function": function}


def _clean(fields: Any, redact: Callable[[str], str]) -> Json:
    found: Json = {}
    for key, value in fit_json(fields).items() if isinstance(fields, Mapping) else ():
        if isinstance(value, str):
            found[key] = redact(value)
        elif _masked(value, redact) == value:
            found[key] = value
    return found


def _masked(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _masked(inner, redact) for key, inner in value.items()}
    return [_masked(inner, redact) for inner in value] if isinstance(value, list) else value
