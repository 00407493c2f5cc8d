"""The byte-class estimate of a text's tokens, without any vocabulary (docs/counting.md).

Each ASCII character has one of fifteen classes; all characters beyond ASCII share the sixteenth.  Each pair of
neighbouring classes costs a fixed share of a token.  A character beyond ASCII costs in addition the weight of its
UTF-16 code unit, the two bytes of which identify the script.  A long run of one character has a rate of its own, since
vocabularies hold such runs as one token.  The weights of a family of vocabularies are a `Fit` (`estimate_weights.py`).

The result is an estimate: `exact` is False, and `window` adds a margin for the error.  `counter_for` uses the estimate
for every model that has no known and installed vocabulary.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from zlib import adler32

from agent.tokens.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BLOCK = 4096
"""A text is weighed in blocks of this many characters, each as a separate text."""

STEP = 25
"""Weights are multiples of this many thousandths of a token, so that one fits into a byte."""

HEAVIEST = 3_000 // STEP
"""The largest weight, in steps."""

AT_ONCE = 65_520 // HEAVIEST
"""Number of weights that adler32 sums without overflow."""

LONG_RUN = 48
"""Number of equal characters in a row from which they are weighed as a run."""

KEPT = 8
"""Number of characters of a run that are weighed like other text; each further character of the run costs the rate of
that character."""

EVERY = 8
"""Distance of the characters that are compared to find a run: LONG_RUN equal characters cover six of them."""

BLANK, NEWLINE, DIGIT, UPPER, OTHER, BEYOND = 0, 1, 2, 3, 14, 15
LETTERS_AND_SIGNS = (b"huxyz", b"bcdeflmrst", b"jqw$)", b"agnv`", b"-~", b"(*+./=_}", b"\"';>\\", b"k#&<]", b"op!?^",
                     b",:[{", b"i%@|")  # fmt: skip
"""The letters and signs of the classes 4 to 14.

A local search for the smallest error over six vocabularies found this partition: languages that are written in ASCII
differ in the letters that they use most.
"""

MIXED_FROM = 64
"""Number of characters beyond ASCII from which a text is examined for mixed scripts."""

_FAR, _NEAR = re.compile("[^\0-\u07ff\u1e00-\u1eff]+"), re.compile("[\0-\u07ff\u1e00-\u1eff]+")
"""Vietnamese letters have two bytes or three in UTF-8, and are weighed as one script."""

SIX_EQUAL = bytes(5)
"""Searched for in the differences between neighbouring characters: five zeros in a row mean six equal characters."""

ASCII = bytes(range(128))

# Classes of UTF-16 code units by their high byte: the first bytes of the ranges.  NEAR is for characters of two bytes
# in UTF-8; one table serves both bytes of a unit, which is cheaper.  FAR is for characters of three bytes, with a class
# for each script.
NEAR = (0x00, 0x01, 0x03, 0x05, 0x06, 0x09, 0x0E, 0x1E, 0x20, 0x30, 0x31, 0x80, 0xA0, 0xD8)
FAR = (0x00, 0x01, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x10, 0x12, 0x17, 0x1E, 0x30, 0x31, 0xA0, 0xD8)
TIBETAN, KHMER = 0x0F, 0x17


def _table(classes: Iterable[int]) -> bytes:
    """A table for `bytes.translate` from 256 classes to hexadecimal digits."""
    return b"".join(b"%x" % one for one in classes)


def class_of(byte: int) -> int:
    """The class of one ASCII character."""
    letter = chr(byte)
    if letter in "\r\n":
        return NEWLINE
    if letter.isdigit():
        return DIGIT
    if letter.isupper():
        return UPPER
    for number, members in enumerate(LETTERS_AND_SIGNS, 4):
        if byte in members:
            return number
    return BLANK


def _range_of(starts: tuple[int, ...], byte: int) -> int:
    return sum(start <= byte for start in starts) - 1


PURE = _table([class_of(byte) for byte in range(128)] + [BEYOND] * 128)
"""Maps bytes to classes for a text that is ASCII only."""

MIXED = _table([BEYOND if byte == ord("?") else class_of(byte) for byte in range(128)] + [BEYOND] * 128)
"""Maps bytes to classes for other texts, in which a character beyond ASCII is a question mark or a byte of Latin-1."""

NEAR_BOTH = _table(_range_of(NEAR, byte) for byte in range(256))
FAR_HIGH = _table(_range_of(FAR, KHMER if byte == TIBETAN else byte) for byte in range(256))
FAR_LOW = _table(byte >> 4 for byte in range(256))


@dataclass(frozen=True)
class Fit:
    """The weights of one family of vocabularies.

    `pairs`, `near` and `far` have one byte, in steps of STEP, for each pair of classes: (character before, character)
    in `pairs`, and (high byte, low byte) of a code unit in the others.  `runs` has the tokens of one more character of
    a long run, by character.  A character that is not in `runs` has no rate, so its runs are weighed as other text.
    """

    name: str
    pairs: bytes
    near: bytes
    far: bytes
    runs: Mapping[str, float] = field(repr=False)

    @cached_property
    def latin(self) -> bytes:
        """The weight of each byte of Latin-1 as a code unit."""
        lows = [int(chr(digit), 16) for digit in NEAR_BOTH]
        return bytes(self.near[low] for low in lows)


class ByteClassCounter:
    """The estimate with the weights of one fit."""

    exact = False

    def __init__(self, fit: Fit) -> None:
        self.name = f"bytes:{fit.name}"
        self.fit = fit
        self._memo = Memo(self.weigh)

    def count(self, text: str) -> int:
        """Estimated tokens; 0 only for the empty text."""
        return self._memo(text)

    def weigh(self, text: str) -> int:
        """As `count`, but without the cache."""
        if len(text) <= BLOCK:
            tokens = self._weigh(text)
        else:
            tokens = sum(self._weigh(text[start : start + BLOCK]) for start in range(0, len(text), BLOCK))
        return max(round(tokens), 1 if text else 0)

    def _weigh(self, text: str) -> float:
        """Estimated tokens of one block of text."""
        signs, table, latin = _signs(text)
        extra = 0.0
        if len(text) >= LONG_RUN and (places := sixes(sample_of(text, signs))):
            runs = [run for run in runs_at(text, places) if text[run[0]] in self.fit.runs]
            if runs:
                extra = sum((end - start - KEPT) * self.fit.runs[text[start]] for start, end in runs)
                text = without(text, runs)
                signs, table, latin = _signs(text)
        steps = total(neighbours(signs.translate(table)).translate(self.fit.pairs))
        if latin:
            steps += total(signs.translate(self.fit.latin))
        elif table is MIXED:
            near_units, far_units = code_units(text)
            steps += total(near_units.translate(self.fit.near)) if near_units else 0
            steps += total(far_units.translate(self.fit.far)) if far_units else 0
        return steps * STEP / 1000 + extra


def _signs(text: str) -> tuple[bytes, bytes, bool]:
    """(a byte for each character, the table of their classes, whether the bytes beyond ASCII are Latin-1).

    Bytes beyond ASCII that are not Latin-1 are replaced by question marks.  A text in Latin-1 needs fewer passes.
    """
    if text.isascii():
        return text.encode(), PURE, False
    try:
        return text.encode("latin-1"), MIXED, True
    except UnicodeEncodeError:
        return text.encode("ascii", "replace"), MIXED, False


def sample_of(text: str, signs: bytes = b"") -> bytes:
    """A byte for every EVERY-th character; equal characters give equal bytes.

    `signs`, a byte for each character, is used if it is given and fewer than one in EVERY of its bytes are question
    marks.
    """
    if signs and EVERY * signs.count(b"?") < len(signs):
        return signs[::EVERY]
    return text[::EVERY].encode("utf-32-le", "surrogatepass")[::4]


def sixes(sample: bytes) -> list[int]:
    """The positions at which six or more equal bytes follow each other."""
    number = int.from_bytes(sample, "little")
    same = (number ^ (number >> 8)).to_bytes(len(sample), "little")
    found = []
    place = same.find(SIX_EQUAL)
    while place >= 0:
        found.append(place)
        place = same.find(SIX_EQUAL, place + 1)
    return found


def long_runs(text: str) -> list[tuple[int, int]]:
    """(start, end) of each run of at least LONG_RUN equal characters in a text."""
    return runs_at(text, sixes(sample_of(text)))


def runs_at(text: str, places: list[int]) -> list[tuple[int, int]]:
    """The long runs at `places`; a place is a position, in steps of EVERY, from which six characters at a distance of
    EVERY are equal."""
    found = []
    done = 0
    for place in places:
        start = place * EVERY
        sign = text[start]
        end = start + 5 * EVERY + 1
        if start < done or text[start:end] != sign * (end - start):
            continue
        start = done + len(text[done:start].rstrip(sign))
        done = end = _end_of_run(text, end, sign)
        if end - start >= LONG_RUN:
            found.append((start, end))
    return found


def _end_of_run(text: str, end: int, sign: str) -> int:
    """The end of the run of `sign` that goes on at `end`; it reads little more than the run."""
    length = LONG_RUN
    while piece := text[end : end + length]:
        same = len(piece) - len(piece.lstrip(sign))
        end += same
        if same < len(piece):
            break
        length *= 2
    return end


def without(text: str, runs: list[tuple[int, int]]) -> str:
    """`text` with each run cut to KEPT characters."""
    parts = []
    done = 0
    for start, end in runs:
        parts.append(text[done : start + KEPT])
        done = end
    return "".join(parts) + text[done:]


def code_units(text: str) -> tuple[bytes, bytes]:
    """Encode the text for the estimate: each UTF-16 code unit becomes two bytes, the classes of its high and low byte.

    Returns one string for the characters of `Fit.near`, and one for those of `Fit.far`.

    In nearly all texts one of the two strings is empty.  ASCII characters are left out where there are many; otherwise
    they remain and have the weight 0.
    """
    sample = text[::EVERY] if len(text) > BLOCK // EVERY else ""
    many = sample.encode("ascii", "replace").count(b"?") if sample else 0
    more = len(encode(sample)) - len(sample) - many  # the number of bytes beyond two for each character
    if 4 * many > len(sample) and not is_mixed(more, many):
        units = text.encode("utf-16-be", "surrogatepass")
        return (near(units), b"") if 2 * more < many else (b"", far(units))
    data = encode(text).translate(None, ASCII)
    rest = data.decode()
    more = len(data) - 2 * len(rest)
    if is_mixed(more, len(rest)) and 4 * len(beyond := _NEAR.sub("", rest)) > len(rest):
        return near(_FAR.sub("", rest).encode("utf-16-be")), far(beyond.encode("utf-16-be"))
    units = rest.encode("utf-16-be")
    return (near(units), b"") if 2 * more < len(rest) else (b"", far(units))


def is_mixed(more: int, characters: int) -> bool:
    """Whether a text may hold scripts of two and of three bytes in UTF-8.

    `characters` is the number of characters beyond ASCII, `more` the number of their UTF-8 bytes above two for each.
    """
    return characters >= MIXED_FROM and characters < 4 * more < 3 * characters


def near(units: bytes) -> bytes:
    """Classes of code units of scripts with two bytes in UTF-8."""
    return unhexlify(units.translate(NEAR_BOTH))


def far(units: bytes) -> bytes:
    """Classes of code units of scripts with three bytes in UTF-8."""
    digits = bytearray(len(units))
    digits[::2] = units[::2].translate(FAR_HIGH)
    digits[1::2] = units[1::2].translate(FAR_LOW)
    return unhexlify(digits)


def neighbours(classes: bytes) -> bytes:
    """One byte for each pair of neighbouring class digits, (class before, class here); the text is preceded by a
    blank."""
    classes = b"0" + classes
    if len(classes) & 1:
        return unhexlify(classes[:-1]) + unhexlify(classes[1:])
    return unhexlify(classes) + unhexlify(classes[1:-1])


def total(values: bytes) -> int:
    """The sum of weights, none of which is above HEAVIEST.  adler32 with the start 0 sums up to AT_ONCE of them in
    C."""
    length = len(values)
    if length <= AT_ONCE:
        return adler32(values, 0) & 0xFFFF
    return sum([adler32(values[start : start + AT_ONCE], 0) & 0xFFFF for start in range(0, length, AT_ONCE)])


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes U+FFFD, as in tiktoken."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
