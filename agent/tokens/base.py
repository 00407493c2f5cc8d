"""Which counter a model gets.  A tokenizer is one file and one line in FAMILIES.

A tokenizer is a class with

    name: str                       what `show` and `doctor` call it
    exact: bool                     True when `count` is what the model's own tokenizer says
    available() -> bool             static; whether its vocabulary is installed, without importing or loading it
    load() -> None                  reads the vocabulary now (a forkserver does it before it forks); may be called twice
    count(text: str) -> int         tokens of any string: never raises, 0 for "", text that looks like a special token
                                    is text, memory stays flat for a text of 100 MB and time linear in its length

and is made with the model's name: `Class(model)`.  It never opens a connection.  A family whose tokenizer is not
installed, or that has none, is counted by bytes (`byteclass.py`) with its own factor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from agent.registry import Registry
from agent.tokens.byteclass import CL100K, O200K, ByteClassCounter, Fit


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
    """Models that share a vocabulary.

    `pattern` is searched in the lower-cased model name.  `factor` and `single_digits` are the estimate's when the
    tokenizer is not there: tokens relative to the vocabulary of `fit`, and whether each digit is a token.
    """

    name: str
    pattern: str
    tokenizer: str | None = None
    fit: Fit = O200K
    factor: float = 1.0
    single_digits: bool = False

    def estimate(self) -> ByteClassCounter:
        """The byte-class counter of this family."""
        return ByteClassCounter(self.fit.single_digits() if self.single_digits else self.fit, self.factor)


# The first that matches.  Factors: tokens.md section 6, "so"; Claude by its own columns; the rest as Llama.
FAMILIES: tuple[Family, ...] = (
    Family("gpt-oss", r"gpt-?oss", "agent.tokens.openai:O200k"),
    Family("o200k", r"gpt-?4o|gpt-?4\.[15]|gpt-?[5-9]|codex|computer-use", "agent.tokens.openai:O200k"),
    Family("o-series", r"(^|[/:_-])o[1-9]($|[-:@_])", "agent.tokens.openai:O200k"),
    Family("cl100k", r"gpt-?4|gpt-?3", "agent.tokens.openai:Cl100k", CL100K),
    # A name like "deepseek-r1-distill-qwen" has the tokenizer of what it was distilled into: it stands last.
    Family("qwen", r"qwen|qwq|qvq", "agent.tokens.qwen:Qwen", factor=1.10, single_digits=True),
    Family("llama", r"llama", factor=1.10),
    Family("gemma", r"gemma|gemini", factor=1.20, single_digits=True),
    Family("mistral", r"mi[sx]tral|codestral|devstral|magistral|ministral|pixtral", "agent.tokens.mistral:Tekken",
           factor=1.10, single_digits=True),
    Family("claude-3", r"claude-(?:instant|[23]|(?:[a-z]+-)?4(?:[-.][0-6])?(?![-.]?\d{1,2}(?!\d)))", factor=1.30),
    Family("claude", r"claude|anthropic", factor=1.65),
    Family("deepseek", r"deepseek", "agent.tokens.deepseek:DeepSeek", factor=1.10),
)  # fmt: skip

UNKNOWN = Family("unknown", "", factor=1.10)

TOKENIZERS = Registry("tokenizer", {family.name: family.tokenizer for family in FAMILIES if family.tokenizer})


def family_of(model: str) -> Family:
    """The family of a model name, with or without a vendor before it and a tag behind it; UNKNOWN for the rest."""
    name = model.strip().lower()
    for family in FAMILIES:
        if name and re.search(family.pattern, name):
            return family
    return UNKNOWN
