"""Translates the ids of tool calls in a request into a form that the server accepts.

The id of a tool call has the same translation in every process, for the call and for its result, so no table of ids is
needed.  In the message store the ids of the server's answers are unchanged.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from string import ascii_letters, digits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.values import Json

SIGNS = digits + ascii_letters
SHORT = r"[A-Za-z0-9]{9}"
"""A pattern of tool call ids that every known server accepts: nine letters and digits, as demanded by Mistral, which
has the strictest rule."""
ANTHROPIC = r"[a-zA-Z0-9_-]{1,64}"
LENGTHS = (24, 9, 12, 16, 32, 40, 8, 6)
PREFIXES = ("call_", "", "toolu_", "chatcmpl-tool-")

REFUSED = re.compile(
    r"tool[ _]?call[ _]?ids?\b|tool_calls\W+\d+\W+id\b|tool_use\W+id\b|tool_use_id|function call id|call id",
    re.IGNORECASE,
)
WHY = re.compile(r"must be|too long|length|pattern|format|invalid|alphanumeric", re.IGNORECASE)
NOT_FORM = re.compile(
    r"response to|followed by|not found|without|duplicate|unique|did not have|missing|corresponding|no matching"
    r"|unexpected",
    re.IGNORECASE,
)
"""Words in a refusal that show that the refusal concerns the message list and not the form of an id."""
_EXACT = re.compile(
    r"length (?:of|is|must be)?\s{0,9}(?:exactly )?(\d{1,9})|exactly (\d{1,9})"
    r"|(?<!\d)(\d{1,9}) (?:alphanumeric )?(?:char|letter)"
)
_MOST = re.compile(r"(?:maximum length|at most|max(?:imum)? of|no more than)\D{0,6}(\d+)")
_PATTERN = re.compile(r"pattern:? ?['\"`]?(\^?[\[(][^'\"`\s]*)", re.IGNORECASE)


@lru_cache(maxsize=4096)
def translate_id(call_id: str, form: str) -> str:
    """`call_id` if it matches the pattern `form`; otherwise an id that is computed from `call_id` and, where possible,
    matches `form`."""
    if not form or re.fullmatch(form, call_id):
        return call_id
    number = int.from_bytes(sha256(call_id.encode("utf-8", "surrogatepass")).digest())
    text = ""
    for _ in range(max(LENGTHS)):
        number, place = divmod(number, len(SIGNS))
        text += SIGNS[place]
    made = (prefix + text[:length] for prefix in PREFIXES for length in LENGTHS)
    return next((one for one in made if re.fullmatch(form, one)), text[:9])


def with_ids(message: Json, form: str) -> Json:
    """The message with translated ids of tool calls: the ids of its own tool calls, or, in a tool result, the id of the
    call."""
    if message["role"] == "tool":
        return message | {"tool_call_id": translate_id(message["tool_call_id"], form)}
    if not message.get("tool_calls"):
        return message
    return message | {"tool_calls": [call | {"id": translate_id(call["id"], form)} for call in message["tool_calls"]]}


def form_of(refusal: str) -> str:
    """The pattern of ids that the server demands in a refusal, SHORT if the refusal names no usable pattern or length;
    "" when the refusal is not about the form of an id."""
    if not REFUSED.search(refusal) or not WHY.search(refusal) or NOT_FORM.search(refusal):
        return ""
    if found := _PATTERN.search(refusal):
        try:
            re.compile(found[1])
        except re.error:
            return SHORT
        return found[1]
    words = refusal.lower()
    if most := _MOST.search(words):
        return rf"[A-Za-z0-9_-]{{1,{min(int(most[1]), 64)}}}" if int(most[1]) >= 6 else SHORT
    if exact := _EXACT.search(words):
        length = int(next(group for group in exact.groups() if group))
        return rf"[A-Za-z0-9]{{{length}}}" if length in LENGTHS else SHORT
    return SHORT
