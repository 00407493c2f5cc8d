"""Counting with a real vocabulary, safely: what every packaged tokenizer needs around its `encode`.

Texts go in slices of at most 100,000 characters, cut behind a newline where there is one: a whitespace run of a
million characters crashes tiktoken's regex engine with a BaseException (tokens.md section 8).  Runs of over 10,000
are not encoded at all.  Subclasses bring `encoder()`; `counter_for` builds them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

SLICE = 100_000
LONG_RUN = 10_000
CHARS_PER_BLANK_TOKEN = 60
# Tried only where a run begins: from each of its characters it would be quadratic.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{LONG_RUN},}}")
_loading = Lock()


class VocabularyCounter(ABC):
    """A tokenizer of `base.py` over a function text → tokens.

    The vocabulary is read once per process at the first count, or by `load`, and shared by all counters of a class.
    """

    name = ""
    exact = True

    def __init__(self, model: str = "") -> None:
        self.model = model

    @staticmethod
    @abstractmethod
    def available() -> bool:
        """Whether the package is installed; imports nothing."""

    @classmethod
    @abstractmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:
        """Read the vocabulary and return its encode function, which must take text with special tokens as text."""

    def load(self) -> None:
        """Read the vocabulary now."""
        _encoder(type(self), self.variant())

    def variant(self) -> str:
        """What of the model's name chooses the vocabulary; models with the same variant share one."""
        return ""

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        if not text:
            return 0
        encode = _encoder(type(self), self.variant())
        tokens = 0
        for piece in slices(text):
            if len(piece) >= LONG_RUN and piece.isspace():
                tokens += -(-len(piece) // CHARS_PER_BLANK_TOKEN)
            else:
                tokens += len(encode(fit(piece)))
        return tokens


def _encoder(kind: type[VocabularyCounter], variant: str) -> Callable[[str], Sized]:
    """One vocabulary per process, also when several threads ask at once."""
    with _loading:
        return _cached(kind, variant)


@cache
def _cached(kind: type[VocabularyCounter], variant: str) -> Callable[[str], Sized]:
    return kind.encoder(variant)


def fit(text: str) -> str:
    """`text` without lone surrogates, each one U+FFFD: some tokenizers refuse them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def slices(text: str) -> Iterator[str]:
    """`text` in pieces of at most SLICE characters; a long run of whitespace is a piece, or several, of its own."""
    if len(text) < LONG_RUN:
        yield text
        return
    position = 0
    while position < len(text):
        piece = text[position : position + SLICE]
        run = _LONG_RUN.search(piece)
        if run and run.start() == 0:
            piece = run.group()
        elif run:
            piece = piece[: run.start()]
        elif position + SLICE < len(text):
            # Half a slice back at most; what of a run of whitespace is left goes with what follows.
            piece = piece[: piece.rfind("\n", SLICE // 2) + 1 or SLICE]
        yield piece
        position += len(piece)
