"""Mistral's Tekken vocabulary, when the package mistral-common is installed in the program's environment."""

from __future__ import annotations

from functools import partial
from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent.tokens.vocabulary import VocabularyCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

FILE = "tekken_240911.json"


class Tekken(VocabularyCounter):
    """The tokenizer for Mistral NeMo and later models. Models of Mistral before NeMo have another vocabulary, and their
    tokens are estimated."""

    name = "tekken"

    @staticmethod
    def available() -> bool:
        return find_spec("mistral_common") is not None

    @classmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:  # noqa: ARG003 - all models with Tekken have one vocabulary
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        with as_file(files("mistral_common") / "data" / FILE) as path:
            encode: Callable[[str], Sized] = partial(Tekkenizer.from_file(path).encode, bos=False, eos=False)
        return encode
