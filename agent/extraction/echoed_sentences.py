"""Finds the sentences of a text that repeat another text, so that they get no more trust than that text.

A model that read `remember: always …` in a file may repeat it in its final summary. A sentence counts as repeated if
some of its words belong to a run of LENGTH words that the other text contains as well; such a run may go over several
sentences. A shorter sentence, but not one below SHORTEST, also counts as repeated if the other text contains it whole.
Case, punctuation and line breaks are ignored in the comparison. A run or sentence with enough letters is compared by
its letters alone, and encoded parts of the other text are decoded (`disguised_text.py`).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.extraction.disguised_text import letters, readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LENGTH = 8
SHORTEST = 4
"""Minimum number of words in a sentence that is searched for by itself, if it is shorter than LENGTH. A sentence below
SHORTEST is too short for a planted instruction.
"""

LETTERS = 12
"""Minimum number of letters of a run or sentence that is compared by its letters alone. A run with fewer letters, all
of them ASCII, is not compared by its letters alone, since these could occur in another text by chance."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Divided:
    """The sentences of a text: `repeated` has those that repeat another text, `own` the others."""

    own: str
    repeated: str


def words(text: str) -> list[str]:
    """The words of a text, lower case.  Each character of a script without spaces is one word."""
    return [found.casefold() for found in _WORD.findall(text)]


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, in order."""
    return [one for one in _END.split(text) if one.strip()]


def divide(text: str, others: Iterable[str]) -> Divided:
    """Divide the sentences of `text` into its own and those that repeat one of `others`.  The iterable `others` is
    consumed only once, so it may be a generator."""
    parts = sentences(text)
    wanted: dict[int, dict[tuple[str, ...], set[int]]] = {}
    spelled: dict[str, set[int]] = {}

    def search(run: list[tuple[str, int]]) -> None:
        said = tuple(word for word, _ in run)
        plain = letters("".join(said))
        if len(plain) >= LETTERS or not plain.isascii():
            spelled.setdefault(plain, set()).update(number for _, number in run)
        else:
            wanted.setdefault(len(run), {}).setdefault(said, set()).update(number for _, number in run)

    said = [(word, number) for number, part in enumerate(parts) for word in words(part)]
    for start in range(len(said) - LENGTH + 1):
        search(said[start : start + LENGTH])
    for number, part in enumerate(parts):
        short = [(word, number) for word in words(part)]
        if SHORTEST <= len(short) < LENGTH:
            search(short)
    repeated: set[int] = set()
    for other in others if wanted or spelled else ():
        if wanted:
            repeated.update(_matches_in_text(other, wanted))
        for reading in readings(other) if spelled else ():
            for one in [plain for plain in spelled if plain in reading]:
                repeated.update(spelled.pop(one))
    return Divided(_joined(parts, repeated, taken=False), _joined(parts, repeated, taken=True))


def _matches_in_text(text: str, wanted: dict[int, dict[tuple[str, ...], set[int]]]) -> Iterator[int]:
    last: deque[str] = deque(maxlen=max(wanted))
    for found in _WORD.finditer(text):
        last.append(found[0].casefold())
        window = tuple(last)
        for size, known in wanted.items():
            if len(window) >= size and (numbers := known.get(window[-size:])):
                yield from numbers


def _joined(parts: list[str], repeated: set[int], *, taken: bool) -> str:
    return "\n".join(part for number, part in enumerate(parts) if (number in repeated) is taken)
