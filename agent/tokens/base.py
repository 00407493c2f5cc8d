"""Which counter a model gets.  A tokenizer is one file and one line in FAMILIES.

A tokenizer is a class with

    name: str                       what `show` and `doctor` call it
    exact: bool                     True when `count` is what the model's own tokenizer says
    available() -> bool             static; whether its vocabulary is installed, without importing or loading it
    load() -> None                  reads the vocabulary now (a forkserver does it before it forks); may be called twice
    count(text: str) -> int         tokens of any string: never raises, 0 for "", text that looks like a special token
                                    is text, memory stays flat for a text of 100 MB and time linear in its length

and is made with the model's name: `Class(model)`.  It never opens a connection.  A model whose tokenizer is not
installed, or of which only the family is known, is counted by bytes (`byteclass.py`) with the weights of its family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from agent.registry import Registry
from agent.tokens.byteclass import ByteClassCounter
from agent.tokens.fits import fit_named


class Tokenizer(Protocol):
    """The contract above."""

    name: str
    exact: bool

    @staticmethod
    def available() -> bool:
        """Whether the vocabulary is installed."""
        ...

    def load(self) -> None:
        """Read the vocabulary now."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """Models that share a vocabulary, or are close to one.

    `pattern` is searched in the lower-cased model name; `fit` names the weights of the estimate.  `tokenizer` counts
    for the models whose own name, without a vendor before it, begins as `own` says: of these the vocabulary is known.
    A model that was trained on the answers of another, merged, or named after it has the family's estimate only.
    """

    name: str
    pattern: str
    fit: str
    tokenizer: str | None = None
    own: str = ""

    def estimate(self) -> ByteClassCounter:
        """The byte-class counter of this family."""
        return ByteClassCounter(fit_named(self.fit))

    def is_own(self, model: str) -> bool:
        """Whether the tokenizer's vocabulary is known to be that of `model`."""
        return bool(self.own) and re.match(self.own, base_name(model)) is not None


END = r"(?![a-z0-9])"

# The first that matches.  Which names have which vocabulary: docs/counting.md.
FAMILIES: tuple[Family, ...] = (
    Family("gpt-oss", r"gpt-?oss", "o200k", "agent.tokens.openai:O200k", rf"gpt-?oss{END}"),
    # A name like "deepseek-r1-distill-qwen" or "mistral-7b-gpt4-x" has the tokenizer of what was trained further:
    # OpenAI and DeepSeek stand last.
    # Ollama's deepseek-r1 of few parameters are such models too.
    Family("qwen-3.5", r"qwen-?(3\.[5-9]|[4-9](?!\d*b))", "qwen-3.5", "agent.tokens.qwen:Qwen",
           rf"(qwen[-_])?qwen-?3\.[56]{END}"),
    Family("qwen", r"qwen|qwq|qvq|deepseek-r1:(1\.5|7|14|32)b", "qwen", "agent.tokens.qwen:Qwen",
           rf"(qwen[-_])?qwen-?(1\.5|2|2\.5|3)(?!\.)(?!\d)|q[wv]q{END}"),
    Family("llama-2", r"llama-?2|codellama|tinyllama|vicuna|alpaca|wizardlm", "sentencepiece-32k"),
    Family("llama", r"llama|deepseek-r1:(8|70)b", "llama-3"),
    Family("gemma", r"gemma|gemini", "gemma"),
    # What mistral-common lists as Tekken, and the models that appeared after it.
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
    """A model's own name: lower case, without a vendor or a path before it, and without OpenAI's "ft:"."""
    return model.strip().lower().rpartition("/")[2].removeprefix("ft:")


def family_of(model: str) -> Family:
    """The family of a model name, with or without a vendor before it and a tag behind it; UNKNOWN for the rest."""
    name = model.strip().lower()
    for family in FAMILIES:
        if name and re.search(family.pattern, name):
            return family
    return UNKNOWN
