"""`counter_for(model)`: the one way to get a counter; and what a whole message or a list of tools costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.tokens.base import TOKENIZERS, Family, Tokenizer, family_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.values import Counter, Ratios

Prefer = Literal["auto", "bytes"]

PER_MESSAGE = 4
"""Role and separators: 3 at OpenAI, 4 to 5 in the common local templates."""

PER_CALL = 8
"""What a template writes around the name and the arguments of one call."""

PRIMING = 3
"""Once a request: the start of the answer."""

SENT = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))
RECORDED = frozenset(
    (
        "seq",
        "timestamp",
        "tokens",
        "kind",
        "tool_name",
        "usage",
        "finish_reason",
        "output",
        "tool_seq",
        "provider_fields",
        "images",
    )
)
MESSAGE = SENT | RECORDED
"""Fields of a line or a record that are counted by themselves or are not sent; every other one is a server's own."""
CALL = frozenset(("id", "type", "function", "name", "arguments", "invalid", "given_id", "index"))
FUNCTION = frozenset(("name", "arguments"))


class EstimatedCounter:
    """The byte-class estimate of a model's family times the ratio learnt for the model, as it is now.

    What is learnt serves the next count.  Who keeps sums keeps them of `plain`, which counts the same text alike at any
    time, and multiplies at the end.
    """

    exact = False

    def __init__(self, model: str, family: Family, ratios: Ratios | None = None) -> None:
        self.plain = family.estimate()
        self._ratios = ratios
        self.model = model
        self.name = self.plain.name

    @property
    def ratio(self) -> float:
        """Reported / estimated, as learnt so far."""
        return self._ratios.get(self.model) if self._ratios else 1.0

    def count(self, text: str) -> int:
        """Estimated tokens; 0 only for the empty text."""
        tokens = self.plain.count(text)
        return max(1, round(tokens * self.ratio)) if tokens else 0

    def learn(self, estimated: int, reported: int) -> float:
        """Take in what a provider reported for an `estimated` of `plain`; the new ratio."""
        if self._ratios is None:
            return self.ratio
        return self._ratios.learn(self.model, estimated, reported)


def plain(counter: Counter) -> Counter:
    """`counter` without what was learnt: its counts of a text never change, so that sums of them can be kept."""
    return counter.plain if isinstance(counter, EstimatedCounter) else counter


def ratio_of(counter: Counter) -> float:
    """What a sum of `plain(counter)` is multiplied with; 1.0 for exact counters."""
    return counter.ratio if isinstance(counter, EstimatedCounter) else 1.0


def counter_for(model: str, ratios: Ratios | None = None, *, prefer: Prefer = "auto") -> Counter:
    """The counter of a model; any name works, also "" (seed 001, NFR-1; design: section 6).

    `prefer="bytes"` never loads a vocabulary (92 MB for OpenAI's newest).  Exact counters take no ratio.
    """
    exact = _exact(model) if prefer == "auto" else None
    return exact or EstimatedCounter(model, family_of(model), ratios)


def preload(model: str) -> Counter:
    """Read the vocabulary of `model` now, so that processes forked from this one share it."""
    exact = _exact(model)
    if exact:
        exact.load()
    return exact or counter_for(model)


def _exact(model: str) -> Tokenizer | None:
    family = family_of(model)
    if not family.tokenizer or not family.is_own(model):
        return None
    kind = TOKENIZERS.load(family.name)
    if not kind.available():
        return None
    tokenizer: Tokenizer = kind(model)
    return tokenizer


def count_message(counter: Counter, message: Mapping[str, Any]) -> int:
    """Tokens of one message as it is sent: content, name, calls with their arguments, and the overhead.

    Takes a record of messages.jsonl or a line of current.jsonl; calls in OpenAI's form or as
    `{"id", "name", "arguments": dict}`.
    """
    tokens = PER_MESSAGE + _content(counter, message.get("content")) + _pictures(message.get("images"))
    name = message.get("name")
    if isinstance(name, str):
        tokens += counter.count(name) + 1
    tokens += count_fields(counter, {key: value for key, value in message.items() if key not in MESSAGE})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        if not isinstance(call, Mapping):
            continue
        tokens += count_fields(counter, {key: value for key, value in call.items() if key not in CALL})
        inner = call.get("function")
        function = inner if isinstance(inner, Mapping) else call
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        tokens += PER_CALL + counter.count(str(function.get("name") or "")) + counter.count(text)
        if isinstance(inner, Mapping) and len(inner) > len(FUNCTION):
            tokens += count_fields(counter, {key: value for key, value in inner.items() if key not in FUNCTION})
    return tokens


def count_fields(counter: Counter, *parts: Mapping[str, Any]) -> int:
    """Tokens of what only a server understands, in a message and in each of its calls: every text once, since some
    servers give the same reasoning under two names."""
    tokens = 0
    for part in parts:
        inner = part.get("function")
        if isinstance(inner, Mapping):
            tokens += count_fields(counter, inner)
            part = {key: value for key, value in part.items() if key != "function"}  # noqa: PLW2901 - the rest of it
        texts = {value if isinstance(value, str) else orjson.dumps(value).decode() for value in part.values()}
        tokens += sum(counter.count(text) for text in texts)
    return tokens


def _pictures(found: Any) -> int:
    """What the pictures of a message cost, as its record says."""
    known = [one.get("tokens") for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    return sum(tokens for tokens in known if isinstance(tokens, int))


def _content(counter: Counter, content: Any) -> int:
    """A string, a list of parts, or nothing."""
    if isinstance(content, str):
        return counter.count(content)
    if isinstance(content, list):
        return sum(counter.count(str(part.get("text") or "")) for part in content if isinstance(part, dict))
    return 0


def count_tools(counter: Counter, tools: Iterable[Mapping[str, Any]]) -> int:
    """Tokens of the tool schemas: their compact JSON, a little more than what a provider makes of them."""
    return sum(counter.count(orjson.dumps(tool).decode()) + 1 for tool in tools)
