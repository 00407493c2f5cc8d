"""The byte-class estimate: how many tokens a text has, without any vocabulary.

Every UTF-8 byte is one of sixteen classes, and a byte together with the one before it costs a fixed number of
thousandths of a token (the method and the weights beyond ASCII: tokens.md section 7; those of ASCII are a fit of all
pairs, which costs nothing more and is as good on JSON and listings as on prose: docs/window.md has the figures).
Means are about 1 % off on a whole conversation and 5 % on one document.  It is not a tokenizer: `exact` is False, and
`window` keeps a margin for that.  `counter_for` takes it for every model whose vocabulary is not installed.
"""

from __future__ import annotations

from binascii import unhexlify
from dataclasses import dataclass, replace
from functools import cache
from zlib import adler32

SLICE = 1 << 16
"""Characters that are encoded at a time, so that a text of 100 MB needs no second 100 MB."""

BLOCK = 4096
"""Bytes that are weighed at a time."""

STEP = 25
"""Every weight is a multiple of so many thousandths, so that it is one small byte; a fit is no more exact than that."""

HEAVIEST = 3_000 // STEP
"""No byte weighs more than three tokens."""

AT_ONCE = 65_520 // HEAVIEST
"""How many weights adler32 sums without wrapping."""

LONGEST_TOKEN = 128
"""No token of o200k_base is longer, in bytes: a floor for runs of spaces, which cost nothing otherwise."""

# The classes.  Continuation bytes weigh as little as a space and let a word begin as a space does, so they share a
# class; 80 and 81-82 are their own, for what they mean after E3.
BLANK, LOWER, UPPER, DIGIT, PUNCT, NEWLINE = range(6)
SECOND_80, SECOND_81 = 6, 7
TWO_BYTE, E0, E2, E3, HAN, HANGUL, EF, FOUR_BYTE = range(8, 16)


def class_of(byte: int) -> int:
    """The class of one byte of UTF-8."""
    if byte >= 0x80:
        for last, name in (
            (0x80, SECOND_80),
            (0x82, SECOND_81),
            (0xBF, BLANK),
            (0xDF, TWO_BYTE),
            (0xE1, E0),
            (0xE2, E2),
            (0xE3, E3),
            (0xE9, HAN),
            (0xED, HANGUL),
            (0xEF, EF),
        ):
            if byte <= last:
                return name
        return FOUR_BYTE
    letter = chr(byte)
    if letter in " \t":
        return BLANK
    if letter in "\r\n":
        return NEWLINE
    if letter.isdigit():
        return DIGIT
    if letter.isalpha():
        return LOWER if letter.islower() else UPPER
    return PUNCT


CLASSES = b"".join(b"%x" % class_of(byte) for byte in range(256))
"""The class of each byte as a hexadecimal digit: two digits beside each other are a pair."""

FIRST = b"%x" % BLANK
"""What stands before a text."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The weights of one vocabulary, in thousandths of a token, multiples of STEP.

    `ascii` has a row for the class before and a column for the class here: blank, lower, upper, digit, punctuation,
    newline.  Before a text, and after a character that is not ASCII, the row of a blank counts; its column is 0, since
    the rest of a character looks like one.
    """

    name: str
    ascii: tuple[tuple[int, ...], ...]
    cjk_punct: int
    hiragana: int
    other_e3: int
    han: int
    hangul: int
    ef: int
    e2: int
    two_byte: int
    e0: int
    four_byte: int

    def weight(self, before: int, here: int) -> int:
        """Thousandths for a byte of class `here` after one of class `before`.

        What begins with E3 is weighed at its second byte, which tells what it is.
        """
        if before != E3 and here <= NEWLINE:
            return self.ascii[before if before <= NEWLINE else BLANK][here]
        weight = {
            TWO_BYTE: self.two_byte,
            E0: self.e0,
            E2: self.e2,
            HAN: self.han,
            HANGUL: self.hangul,
            EF: self.ef,
            FOUR_BYTE: self.four_byte,
        }.get(here, 0)
        if before == E3:
            weight += {SECOND_80: self.cjk_punct, SECOND_81: self.hiragana}.get(here, self.other_e3)
        return weight

    def single_digits(self) -> Fit:
        """The same for a vocabulary where each digit is a token."""
        rows = [list(row) for row in self.ascii]
        rows[DIGIT][DIGIT] = 1000
        return replace(self, ascii=tuple(map(tuple, rows)))


O200K = Fit(
    "o200k",
    (
        (0, 1000, 425, 1900, 1225, 1300),
        (0, 25, 1150, 1550, 575, 1175),
        (0, 400, 175, 1600, 75, 1500),
        (0, 250, 1900, 325, 300, 1175),
        (0, 1100, 775, 1725, 50, 775),
        (0, 650, 1250, 1425, 175, 0),
    ),
    *(550, 750, 600, 725, 725, 1125, 650, 300, 2000, 1800),
)
CL100K = Fit(
    "cl100k",
    (
        (0, 1000, 450, 1900, 1250, 1275),
        (0, 25, 1225, 1425, 525, 1075),
        (0, 400, 175, 1600, 0, 1500),
        (0, 375, 2175, 325, 275, 1150),
        (0, 1125, 775, 1750, 50, 775),
        (0, 750, 1400, 1350, 125, 0),
    ),
    *(125, 1000, 1050, 1050, 1200, 1775, 750, 525, 2000, 2925),
)


@cache
def weights_of(fit: Fit) -> bytes:
    """For each pair (class before, class here) its weight in steps of STEP, one byte.  (Only pairs that UTF-8 never
    has would weigh more than HEAVIEST.)"""
    return bytes(min(HEAVIEST, fit.weight(pair >> 4, pair & 15) // STEP) for pair in range(256))


def pairs_of(classes: bytes) -> bytes:
    """One byte for each two digits beside each other, (class before, class here): those that begin at an even place,
    then those at an odd one."""
    odd = len(classes) & 1
    return unhexlify(classes[: len(classes) - odd]) + unhexlify(classes[1 : len(classes) - 1 + odd])


def total(values: bytes) -> int:
    """The sum of small numbers: adler32 from 0 is one in C, of at most AT_ONCE of them."""
    length = len(values)
    if length <= AT_ONCE:
        return adler32(values, 0) & 0xFFFF
    return sum([adler32(values[start : start + AT_ONCE], 0) & 0xFFFF for start in range(0, length, AT_ONCE)])


class ByteClassCounter:
    """The estimate for one model; `factor` is the model's tokens relative to the vocabulary of `fit` (tokens.md
    section 6)."""

    exact = False

    def __init__(self, fit: Fit = O200K, factor: float = 1.0) -> None:
        self.name = f"bytes:{fit.name}"
        self.fit = fit
        self.factor = factor
        self._weights = weights_of(fit)

    def count(self, text: str) -> int:
        """Estimated tokens; 0 only for the empty text."""
        data = encode(text) if len(text) <= BLOCK else b""
        size = len(data)
        if size <= BLOCK and data:
            weight = total(pairs_of(FIRST + data.translate(CLASSES)).translate(self._weights))
        else:
            weight, size = self._long(text)
        return max(round(weight * STEP * self.factor / 1000), -(-size // LONGEST_TOKEN))

    def _long(self, text: str) -> tuple[int, int]:
        """(weight in steps, bytes), block by block."""
        weight = size = 0
        before = FIRST
        for start in range(0, len(text), SLICE):
            data = encode(text[start : start + SLICE])
            size += len(data)
            for place in range(0, len(data), BLOCK):
                classes = before + data[place : place + BLOCK].translate(CLASSES)
                # A block may end inside a character: what follows its E3 is weighed with the next block.
                weight += total(pairs_of(classes).translate(self._weights))
                before = classes[-1:]
        return weight, size


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes U+FFFD, as tiktoken has it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
