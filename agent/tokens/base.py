"""The interface of a tokenizer, and the table FAMILIES, by which the counter for a model is selected.

A new tokenizer needs a module with its class, and an entry in FAMILIES.  A tokenizer is a class with

    name: str                       the name in the output of `show` and `doctor`
    vocabulary: str                 the name of the vocabulary, of which there is a module in `tokens/preloaded`
    exact: bool                     True when `count` gives the same number as the model's own tokenizer
    available() -> bool             static; whether its vocabulary is installed, without importing or loading it
    load() -> None                  reads the vocabulary now (a forkserver does it before it forks); may be called twice
    count(text: str) -> int         tokens of any string: never raises; 0 for ""; text that looks like a special token
                                    counts as text; memory stays flat for a text of 100 MB, and time is linear in its
                                    length

A tokenizer is constructed with the model's name: `Class(model)`.  A tokenizer never opens a connection.  A model
without an installed tokenizer, or with a known family but an unknown vocabulary, is counted by the byte-class estimate
(`byteclass.py`) with the weights of its family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from agent.registry import Registry
from agent.tokens.byteclass import ByteClassCounter
from agent.tokens.estimate_weights import fit_named
from agent.tokens.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Tokenizer(Protocol):
    """The interface of a tokenizer, which the docstring of the module describes."""

    name: str
    exact: bool

    @property
    def vocabulary(self) -> str:
        """The name of the vocabulary, which is the same for all models that use the vocabulary."""
        ...

    @staticmethod
    def available() -> bool:
        """Whether the vocabulary of the tokenizer is installed."""
        ...

    def load(self) -> None:
        """Read the vocabulary of the tokenizer now."""
        ...

    def count(self, text: str) -> int:
        """The number of tokens of `text`."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """Models that share a vocabulary, or are close to one.

    `pattern` is a regular expression that is searched in the name of a model in lower case. `fit` names the weights of
    the estimate for the family. `own` is a regular expression for the beginning of the model's name without its vendor;
    only models that match `own` are counted with `tokenizer`, because their vocabulary is known. The tokens of a model
    that was only trained on answers of a model of the family, merged with one, or named after one are counted by the
    estimate of the family.
    """

    name: str
    pattern: str
    fit: str
    tokenizer: str | None = None
    own: str = ""

    def estimate(self) -> ByteClassCounter:
        """The byte-class counter of this family of models; the same object at each call."""
        return _estimate(self.fit)

    def is_own(self, model: str) -> bool:
        """Whether the tokenizer's vocabulary is known to be that of `model`."""
        return bool(self.own) and re.match(self.own, base_name(model)) is not None


@cache
def _estimate(fit: str) -> ByteClassCounter:
    return ByteClassCounter(fit_named(fit))


LOW = 0.45
"""The share of the true tokens by which an estimate may be too low for a vocabulary for which no weights were fitted
(docs/counting.md, "A family that is not known")."""


class SpreadCounter:
    """A counter for a model with an unknown vocabulary: the highest (`pick` is `max`) or the lowest (`min`) of the
    estimates for all known vocabularies.

    One more estimate is compared with the estimates for all known vocabularies: the estimate for an unknown family,
    divided by 1 - LOW.
    """

    exact = False

    def __init__(self, pick: Callable[[Iterable[int]], int]) -> None:
        self.name = f"bytes:{pick.__name__}"
        self._pick = pick
        self._known = [_estimate(fit) for fit in sorted({family.fit for family in FAMILIES})]
        self._memo = Memo(self._spread)

    def count(self, text: str) -> int:
        """The highest estimate of the tokens of `text` if `pick` is `max`, the lowest if `pick` is `min`; 0 only for
        the empty text."""
        return self._memo(text)

    def _spread(self, text: str) -> int:
        counts = [one.weigh(text) for one in self._known]
        return self._pick([*counts, round(UNKNOWN.estimate().count(text) / (1 - LOW))])


@cache
def cautious() -> SpreadCounter:
    """The counter that returns, for a text, the highest of the estimates that `SpreadCounter` compares."""
    return SpreadCounter(max)


@cache
def fewest() -> SpreadCounter:
    """The counter that returns, for a text, the lowest of the estimates that `SpreadCounter` compares."""
    return SpreadCounter(min)


END = r"(?![a-z0-9])"

# The first family of which the pattern matches the name of a model is used.  docs/counting.md lists which names have
# which vocabulary.
FAMILIES: tuple[Family, ...] = (
    Family("gpt-oss", r"gpt-?oss", "o200k", "agent.tokens.openai:O200k", rf"gpt-?oss{END}"),
    # A name like "deepseek-r1-distill-qwen" or "mistral-7b-gpt4-x" belongs to a fine-tuned model, which has the
    # tokenizer of its base model. Because such a name also matches the pattern for OpenAI or DeepSeek, these
    # patterns (except gpt-oss) come after the patterns for other base models. Ollama's models deepseek-r1:1.5b to 70b
    # are fine-tuned models of Qwen and Llama.
    Family("qwen-3.5", r"qwen-?(3\.[5-9]|[4-9](?!\d*b))", "qwen-3.5", "agent.tokens.qwen:Qwen",
           rf"(qwen[-_])?qwen-?3\.[56]{END}"),
    Family("qwen", r"qwen|qwq|qvq|deepseek-r1:(1\.5|7|14|32)b", "qwen", "agent.tokens.qwen:Qwen",
           rf"(qwen[-_])?qwen-?(1\.5|2|2\.5|3)(?!\.)(?!\d)|q[wv]q{END}"),
    Family("llama-2", r"llama-?2|codellama|tinyllama|vicuna|alpaca|wizardlm", "sentencepiece-32k"),
    Family("llama", r"llama|deepseek-r1:(8|70)b", "llama-3"),
    Family("gemma", r"gemma|gemini", "gemma"),
    # The models that mistral-common lists under its tokenizer Tekken, and later models.
    Family("mistral", r"nemo|ministral|devstral|magistral|pixtral-12b|mistral-small(?!:22b|-23|-2402)"
           r"|mistral-medium(?!-23)|voxtral|codestral-25|mistral-large-?3", "tekken", "agent.tokens.mistral:Tekken",
           r"(mistralai[-_])?(open-)?(mistral-nemo|ministral-(3b|8b|8b-2410|3)|devstral|magistral|pixtral-12b"
           r"|mistral-small-?(3|24b|2409|25))"),
    Family("mistral-7b", r"mi[sx]tral|codestral|mathstral|pixtral|zephyr", "sentencepiece-32k"),
    Family("claude-3", r"claude-(?:instant|[23]|(?:[a-z]+-)?4(?:[-.][0-6])?(?![-.]?\d{1,2}(?!\d)))", "claude-3"),
    Family("claude", r"claude|anthropic", "claude"),
    Family("o200k", r"gpt-?4o|gpt-?4\.[15]|gpt-?[5-9]|codex|computer-use", "o200k", "agent.tokens.openai:O200k",
           rf"(chat)?gpt-?(4o|4\.[15]|5(\.\d+)?){END}|codex-mini{END}|computer-use-preview{END}"),
    Family("o-series", r"^(.*/)?(openai[-_.])?o[1-9]($|[-:@_])", "o200k", "agent.tokens.openai:O200k",
           r"(openai[-_.])?o[134](-(mini|preview|pro|deep-research))*(-\d[\d-]*)?($|[:@])"),
    Family("cl100k", r"gpt-?4|gpt-?3", "cl100k", "agent.tokens.openai:Cl100k",
           r"gpt-?(4|3\.?5)(-(turbo|vision|preview|instruct|\d+k?))*$"),
    Family("deepseek", r"deepseek", "deepseek", "agent.tokens.deepseek:DeepSeek",
           rf"(deepseek(-ai)?[-_])?deepseek-(v[34](\.\d)?|r1(?!:\d+(\.\d+)?b)(?!-(distill|0528-qwen))|chat|reasoner){END}"
           rf"|deepseek-r1:671b"),
)  # fmt: skip

UNKNOWN = Family("unknown", "", "unknown")

TOKENIZERS = Registry("tokenizer", {family.name: family.tokenizer for family in FAMILIES if family.tokenizer})


def base_name(model: str) -> str:
    """The name of a model in lower case, without a vendor or path before it, and without OpenAI's prefix "ft:"."""
    return model.strip().lower().rpartition("/")[2].removeprefix("ft:")


def family_of(model: str) -> Family:
    """The family for a model name, which may have a vendor before it and a tag after it; UNKNOWN if no pattern
    matches."""
    name = model.strip().lower()
    for family in FAMILIES:
        if name and re.search(family.pattern, name):
            return family
    return UNKNOWN
