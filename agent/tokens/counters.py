"""Selects the counter for a model (`counter_for`). The module `counters` also counts the tokens of a whole message and
of a list of tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.message_list_check import CALL, FUNCTION, MESSAGE
from agent.tokens.base import TOKENIZERS, UNKNOWN, Family, Tokenizer, cautious, family_of, fewest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.values import Counter, Ratios

Prefer = Literal["auto", "bytes"]

PER_MESSAGE = 4
"""Tokens of the role and the separators of one message: 3 for OpenAI, 4 to 5 in the common templates of local
models."""

PER_CALL = 8
"""Tokens that a chat template adds around the name and the arguments of one tool call."""

PRIMING = 3
"""Number of tokens in a request that begin the model's answer; they are added once per request."""


class EstimatedCounter:
    """The byte-class estimate for a model's family, multiplied by the ratio that was learnt for the model.

    A newly learnt ratio of a model applies from the next count on. Code that stores sums of token counts must store
    sums of the counts of `plain`, which never change, and multiply a sum by `ratio` when the sum is read.
    """

    exact = False

    def __init__(self, model: str, family: Family, ratios: Ratios | None = None) -> None:
        self.family = family
        self.plain = family.estimate()
        self._ratios = ratios
        self.model = model
        self.name = self.plain.name

    @property
    def ratio(self) -> float:
        """The learnt ratio of the model: reported tokens / estimated tokens; 1.0 if none was learnt."""
        return self._ratios.get(self.model) if self._ratios else 1.0

    def count(self, text: str) -> int:
        """Estimated tokens of a text; 0 only for the empty text."""
        tokens = self.plain.count(text)
        return max(1, round(tokens * self.ratio)) if tokens else 0

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known about the model's vocabulary: neither its family nor a ratio from a report."""
        return self.family is UNKNOWN and not (self._ratios and self._ratios.reports(self.model))

    def learn(self, estimated: int, reported: int, plausible: tuple[int, int] | None = None) -> float:
        """Learn from a report of the provider about the tokens of a text; `estimated` is the count of `plain` for the
        same text; returns the new ratio.

        `plausible`: the fewest and the most tokens that the known vocabularies would need for the text.
        """
        if self._ratios is None:
            return self.ratio
        return self._ratios.learn(self.model, estimated, reported, plausible)


def plain(counter: Counter) -> Counter:
    """The counter `counter` without the learnt ratio: its count of a text never changes, so sums of its counts can be
    stored."""
    return counter.plain if isinstance(counter, EstimatedCounter) else counter


def ratio_of(counter: Counter) -> float:
    """The factor by which a sum of counts of `plain(counter)` must be multiplied; 1.0 for exact counters."""
    return counter.ratio if isinstance(counter, EstimatedCounter) else 1.0


def cautious_of(counter: Counter) -> Counter | None:
    """The counter that returns the highest of the estimates for all vocabularies, as long as nothing is known about the
    model's vocabulary; else None."""
    return cautious() if isinstance(counter, EstimatedCounter) and counter.is_unknown else None


def counter_for(model: str, ratios: Ratios | None = None, *, prefer: Prefer = "auto") -> Counter:
    """The counter of tokens for a model; any name of a model is accepted, even "" (docs/design/compression.md, NFR-1).

    With `prefer="bytes"` the counter is an estimate and loads no vocabulary (92 MB for OpenAI's newest). Exact counters
    of tokens do not use `ratios`.
    """
    exact = exact_counter(model) if prefer == "auto" else None
    return exact or EstimatedCounter(model, family_of(model), ratios)


def preload(model: str) -> Counter:
    """Read the weights of all estimates and the vocabulary of `model` now, so that processes that are forked from this
    one share them."""
    cautious()
    fewest()
    exact = exact_counter(model)
    if exact:
        exact.load()
    return exact or counter_for(model)


def exact_counter(model: str) -> Tokenizer | None:
    """The tokenizer for the model's own vocabulary, which this call does not read; None if the vocabulary is not known
    or not installed."""
    family = family_of(model)
    if not family.tokenizer or not family.is_own(model):
        return None
    kind = TOKENIZERS.load(family.name)
    if not kind.available():
        return None
    tokenizer: Tokenizer = kind(model)
    return tokenizer


def count_message(counter: Counter, message: Mapping[str, Any]) -> int:
    """Tokens of one message as it is sent: its content, pictures, name, calls with their arguments, provider-specific
    fields, and the overhead of the chat template.

    `message` is a record of messages.jsonl or a line of current.jsonl; its calls have OpenAI's form or the form `{"id",
    "name", "arguments": dict}`.
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
    """Tokens of `parts`, each of which has the provider-specific fields of a message or of a call. Equal texts in one
    part are counted once, since some servers send the same reasoning under two names.
    """
    tokens = 0
    for part in parts:
        inner = part.get("function")
        if isinstance(inner, Mapping):
            tokens += count_fields(counter, inner)
            part = {key: value for key, value in part.items() if key != "function"}  # noqa: PLW2901
        texts = {value if isinstance(value, str) else orjson.dumps(value).decode() for value in part.values()}
        tokens += sum(counter.count(text) for text in texts)
    return tokens


def _pictures(found: Any) -> int:
    """Tokens of the pictures of a message, as recorded in the message."""
    known = [one.get("tokens") for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    return sum(tokens for tokens in known if isinstance(tokens, int))


def _content(counter: Counter, content: Any) -> int:
    """Tokens of a message's content, which is a string, a list of parts, or None."""
    if isinstance(content, str):
        return counter.count(content)
    if isinstance(content, list):
        return sum(counter.count(str(part.get("text") or "")) for part in content if isinstance(part, dict))
    return 0


def count_tools(counter: Counter, tools: Iterable[Mapping[str, Any]]) -> int:
    """Tokens of the schemas of tools in compact JSON; the form in which a provider passes the schemas to its model has
    slightly fewer."""
    return sum(counter.count(orjson.dumps(tool).decode()) + 1 for tool in tools)
