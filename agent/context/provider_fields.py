"""Provider-specific fields of an answer, stored in its record: reasoning, signatures and the like.

`record["provider_fields"]` is `{"wire", "model", "server", "message": {…}, "calls": {id: {…}}, "tokens", "kept"}`.  The
view has the fields of `message` and `calls` only for the API (`wire`) and model that produced them; the fields in
`kept` are for people who read the file and are never sent.  The field `tokens` of a record includes the tokens of its
provider fields.  Summaries, comments and pull requests contain no provider fields.  All functions of
`provider_fields.py` are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.context.secret_masking import masked
from agent.message_list_check import CALL, MESSAGE
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.values import Json, Redact

NAME = "provider_fields"
OURS = MESSAGE
"""Keys that a provider field of a message must not have: the keys of the message in a request and in its record.

A message with a provider field that has the name of a key of its record is refused before it is sent
(`message_list_check.py`).
"""
OURS_IN_CALLS = CALL - {"function"}
"""Keys that a provider field of a call must not have; provider fields below `function` are merged into the `function`
of the call."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The current API (`wire`) and model; the view has provider fields of this origin only."""

    wire: str
    model: str


def of_record(record: Json, origin: Origin | None) -> Json | None:
    """The provider fields of a record if they come from the model of `origin` by the same API (`wire`), else None."""
    fields = record.get(NAME)
    if origin is None or not isinstance(fields, dict):
        return None
    return fields if (fields.get("wire"), fields.get("model")) == (origin.wire, origin.model) else None


def tokens_of(record: Json, origin: Origin | None) -> int:
    """The tokens of a record in the view, without the provider fields of another origin."""
    tokens = record.get("tokens")
    whole = tokens if isinstance(tokens, int) else 0
    fields = record.get(NAME)
    if not isinstance(fields, dict) or of_record(record, origin) is not None:
        return whole
    own = fields.get("tokens")
    return max(0, whole - own) if isinstance(own, int) else whole


def to_keep(given: Mapping[str, Any], calls: Sequence[Json], redact: Redact) -> Json:
    """The provider fields for a new record; `calls` are the calls of the record, `given["calls"]` has one entry for
    each.

    Declared secrets in the text of a provider field are masked. A provider field that is a structure with a secret in
    it is left out: its signature covers the whole structure, so the server would refuse a changed one.
    """
    message = _clean(given.get("message"), redact)
    more = given.get("calls") or ()
    by_call = {call["id"]: _without(_clean(one, redact), OURS_IN_CALLS) for call, one in zip(calls, more, strict=False)}
    kept = _clean(given.get("kept"), redact)
    record: Json = {name: replace_surrogates(str(given.get(name) or "")) for name in ("wire", "model", "server")}
    record["message"] = _without(message, OURS)
    record["calls"] = {call_id: fields for call_id, fields in by_call.items() if fields}
    return record | {"kept": kept} if kept else record


def of_message(fields: Json) -> Json:
    """The provider fields that stand beside content and calls in a message of the view."""
    message = fields.get("message")
    return _without(message, OURS) if isinstance(message, dict) else {}


def of_call(fields: Json, call: Json) -> Json:
    """A tool call in the form of the view, with its own provider fields."""
    calls = fields.get("calls")
    own = calls.get(call["id"]) if isinstance(calls, dict) else None
    if not isinstance(own, dict):
        return call
    inner = own.get("function")
    function = {**inner, **call["function"]} if isinstance(inner, dict) else call["function"]
    return {**_without(own, OURS_IN_CALLS), **call, "function": function}


def _without(fields: Json, ours: Collection[str]) -> Json:
    return {key: value for key, value in fields.items() if key not in ours}


def _clean(fields: Any, redact: Redact) -> Json:
    found: Json = {}
    for key, value in fit_json(fields).items() if isinstance(fields, Mapping) else ():
        if isinstance(value, str):
            found[key] = redact(value)
        elif masked(value, redact) == value:
            found[key] = value
    return found
