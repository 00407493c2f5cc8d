"""The byte-class estimate: how many tokens a text has, without any vocabulary (docs/counting.md).

Each character has one of sixteen classes, and each pair of neighbouring classes costs a fixed share of a token.
Characters beyond ASCII share a class there; what each costs is added by its UTF-16 code unit, whose two bytes tell the
script.  A long run of one sign has a rate of its own, since vocabularies hold such runs as one token.  The weights of a
family of vocabularies are a `Fit` (`fits.py`).  It is not a tokenizer: `exact` is False, and `window` keeps a margin
for that.  `counter_for` takes it for every model whose vocabulary is not known or not installed.
"""

from __future__ import annotations

from binascii import unhexlify
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import adler32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BLOCK = 4096
"""Characters that are weighed at a time; each block is weighed as a text of its own."""

STEP = 25
"""A weight is a multiple of so many thousandths of a token, so that it is one small byte."""

HEAVIEST = 3_000 // STEP
"""No weight is larger."""

AT_ONCE = 65_520 // HEAVIEST
"""How many weights adler32 sums without wrapping."""

LONG_RUN = 48
"""Equal signs in a row that are weighed as a run."""

KEPT = 8
"""Signs of a run that are weighed as other text is; the rest costs the rate of the sign."""

EVERY = 8
"""Distance of the characters that are compared to find a run: LONG_RUN equal signs cover six of them."""

BLANK, NEWLINE, DIGIT, UPPER, OTHER, BEYOND = 0, 1, 2, 3, 14, 15
LETTERS_AND_SIGNS = (b"huxyz", b"bcdeflmrst", b"jqw$)", b"agnv`", b"-~", b"(*+./=_}", b"\"';>\\", b"k#&<]", b"op!?^",
                     b",:[{", b"i%@|")  # fmt: skip
"""Classes 4 to 14.  The partition is a local search for the smallest error over six vocabularies: it tells languages
that are written in ASCII apart by the letters that they use."""

SIX_EQUAL = bytes(5)
"""Between six equal characters there is no difference, five times."""

ASCII = bytes(range(128))

# UTF-16 code units by their high byte: first bytes of the ranges.  NEAR is one table for both bytes, which is cheaper,
# for texts whose characters have two bytes in UTF-8; FAR has a class for each script of those with three.
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
"""For texts of ASCII."""

MIXED = _table([BEYOND if byte == ord("?") else class_of(byte) for byte in range(128)] + [BEYOND] * 128)
"""For other texts, whose characters beyond ASCII became question marks."""

NEAR_BOTH = _table(_range_of(NEAR, byte) for byte in range(256))
FAR_HIGH = _table(_range_of(FAR, KHMER if byte == TIBETAN else byte) for byte in range(256))
FAR_LOW = _table(byte >> 4 for byte in range(256))


@dataclass(frozen=True)
class Fit:
    """The weights of one family of vocabularies.

    `pairs`, `near` and `far` have a byte for each pair of classes, in steps of STEP: of (character before, character),
    and of (high byte, low byte) of a code unit.  `runs` is the tokens of one more sign of a long run; signs that it
    lacks are not taken for a run.
    """

    name: str
    pairs: bytes
    near: bytes
    far: bytes
    runs: Mapping[str, float] = field(repr=False)


class ByteClassCounter:
    """The estimate by one fit."""

    exact = False

    def __init__(self, fit: Fit) -> None:
        self.name = f"bytes:{fit.name}"
        self.fit = fit

    def count(self, text: str) -> int:
        """Estimated tokens; 0 only for the empty text."""
        if len(text) <= BLOCK:
            tokens = self._weigh(text)
        else:
            tokens = sum(self._weigh(text[start : start + BLOCK]) for start in range(0, len(text), BLOCK))
        return max(round(tokens), 1 if text else 0)

    def _weigh(self, text: str) -> float:
        extra = 0.0
        if len(text) >= LONG_RUN:
            runs = [run for run in long_runs(text) if text[run[0]] in self.fit.runs]
            if runs:
                extra = sum((end - start - KEPT) * self.fit.runs[text[start]] for start, end in runs)
                text = without(text, runs)
        if text.isascii():
            steps = total(neighbours(text.encode().translate(PURE)).translate(self.fit.pairs))
        else:
            steps = total(neighbours(text.encode("ascii", "replace").translate(MIXED)).translate(self.fit.pairs))
            units, is_near = code_units(text)
            steps += total(units.translate(self.fit.near if is_near else self.fit.far))
        return steps * STEP / 1000 + extra


def long_runs(text: str) -> list[tuple[int, int]]:
    """(start, end) of each run of LONG_RUN equal signs or more.

    Such a run covers six characters at a distance of EVERY; only where six of them have the same low byte is looked
    closer.
    """
    sample = text[::EVERY]
    data = sample.encode() if sample.isascii() else sample.encode("utf-32-le", "surrogatepass")[::4]
    number = int.from_bytes(data, "little")
    same = (number ^ (number >> 8)).to_bytes(len(data), "little")
    place = same.find(SIX_EQUAL)
    if place < 0:
        return []
    found = []
    while place >= 0:
        start = place * EVERY
        sign = text[start]
        end = start + 5 * EVERY + 1
        if text[start:end] == sign * (end - start):
            end = len(text) - len(text[end:].lstrip(sign))
            start = len(text[:start].rstrip(sign))
            if end - start >= LONG_RUN:
                found.append((start, end))
            place = (end - 1) // EVERY
        place = same.find(SIX_EQUAL, place + 1)
    return found


def without(text: str, runs: list[tuple[int, int]]) -> str:
    """`text` with each run cut to KEPT signs."""
    parts = []
    done = 0
    for start, end in runs:
        parts.append(text[done : start + KEPT])
        done = end
    return "".join(parts) + text[done:]


def code_units(text: str) -> tuple[bytes, bool]:
    """A byte for each UTF-16 code unit, (class of its high byte, class of its low byte), and whether the classes are
    those of NEAR.  Where characters of ASCII are many they are left out, else they are there and weigh nothing."""
    sample = text[::EVERY] if len(text) > BLOCK // EVERY else ""
    many = sample.encode("ascii", "replace").count(b"?")
    if 4 * many > len(sample):
        units = text.encode("utf-16-be", "surrogatepass")
        is_near = 2 * (len(encode(sample)) - len(sample)) < 3 * many
    else:
        data = encode(text).translate(None, ASCII)
        rest = data.decode()
        units = rest.encode("utf-16-be")
        is_near = 2 * len(data) < 5 * len(rest)
    if is_near:
        return unhexlify(units.translate(NEAR_BOTH)), True
    digits = bytearray(len(units))
    digits[::2] = units[::2].translate(FAR_HIGH)
    digits[1::2] = units[1::2].translate(FAR_LOW)
    return unhexlify(digits), False


def neighbours(classes: bytes) -> bytes:
    """One byte for each two digits beside each other, (class before, class here); before a text stands a blank."""
    classes = b"0" + classes
    if len(classes) & 1:
        return unhexlify(classes[:-1]) + unhexlify(classes[1:])
    return unhexlify(classes) + unhexlify(classes[1:-1])


def total(values: bytes) -> int:
    """The sum of weights of at most HEAVIEST: adler32 from 0 is one in C, of at most AT_ONCE of them."""
    length = len(values)
    if length <= AT_ONCE:
        return adler32(values, 0) & 0xFFFF
    return sum([adler32(values[start : start + AT_ONCE], 0) & 0xFFFF for start in range(0, length, AT_ONCE)])


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes U+FFFD, as tiktoken has it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
