"""The base class of the tokenizers with a real vocabulary; it limits the length of the text that is encoded at once.

A text is encoded in slices of at most 100,000 characters, each cut after the last newline in its second half if there
is one: a whitespace run of a million characters crashes tiktoken's regex engine with a BaseException. Whitespace runs
of 10,000 or more characters are not encoded; their tokens are estimated. Subclasses of VocabularyCounter implement
`encoder()`; `counter_for` constructs them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from agent.tokens.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

SLICE = 100_000
LONG_RUN = 10_000
CHARS_PER_BLANK_TOKEN = 60
# The pattern matches only at the start of a run of whitespace: trying the pattern at each character of the run would
# make the time quadratic.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{LONG_RUN},}}")
_loading = Lock()


class VocabularyCounter(ABC):
    """A tokenizer, as `base.py` describes it, that uses an encode function (text → tokens).

    Each process reads a vocabulary once, at the first count or in `load`; all counters of a class with the same
    `variant` share it.
    """

    name = ""
    exact = True

    def __init__(self, model: str = "") -> None:
        self.model = model

    @staticmethod
    @abstractmethod
    def available() -> bool:
        """Whether the package of the vocabulary is installed; `available` imports nothing."""

    @classmethod
    @abstractmethod
    def encoder(cls, model: str) -> Callable[[str], Sized]:
        """Read the vocabulary and return its encode function, which must encode special tokens as ordinary text."""

    def load(self) -> None:
        """Read the vocabulary of the tokenizer now."""
        _encoder(type(self), self.variant())

    @property
    def vocabulary(self) -> str:
        """The name of the vocabulary that `load` reads."""
        return self.variant() or self.name

    def variant(self) -> str:
        """The name of the vocabulary that the model's name selects, for a class with several vocabularies; "" for a
        class with one vocabulary only."""
        return ""

    def count(self, text: str) -> int:
        """The number of tokens of `text` in the vocabulary."""
        return _memo(type(self), self.variant())(text) if text else 0


@cache
def _memo(kind: type[VocabularyCounter], variant: str) -> Memo:
    """The count function with a cache for one vocabulary; all counters with that vocabulary share it."""

    def counted(text: str) -> int:
        encode = _encoder(kind, variant)
        tokens = 0
        for piece in slices(text):
            if len(piece) >= LONG_RUN and piece.isspace():
                tokens += -(-len(piece) // CHARS_PER_BLANK_TOKEN)
            else:
                tokens += len(encode(replace_surrogates(piece)))
        return tokens

    return Memo(counted)


def _encoder(kind: type[VocabularyCounter], variant: str) -> Callable[[str], Sized]:
    """Loads one vocabulary once per process, even if several threads ask for it at the same time."""
    with _loading:
        return _cached(kind, variant)


@cache
def _cached(kind: type[VocabularyCounter], variant: str) -> Callable[[str], Sized]:
    return kind.encoder(variant)


def replace_surrogates(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD: some tokenizers reject surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def slices(text: str) -> Iterator[str]:
    """The text `text` in pieces of at most SLICE characters; a long run of whitespace becomes one or more pieces of its
    own."""
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
            # A slice of the text is cut after the last newline in its second half, if there is one; the rest of a
            # whitespace run that is cut goes into the next piece.
            piece = piece[: piece.rfind("\n", SLICE // 2) + 1 or SLICE]
        yield piece
        position += len(piece)
