"""The byte-class estimate of a text's tokens, without any vocabulary (docs/counting.md).

Each ASCII character has one of fifteen classes in the estimate; all characters beyond ASCII share the sixteenth. Each
pair of neighbouring character classes costs a fixed share of a token in the estimate. In addition to the costs of
pairs, a character beyond ASCII costs the weight of its UTF-16 code unit, since the two bytes of the unit identify the
script. A long run of one character is counted by a rate of its own, since vocabularies have such runs as one token. The
weights of a family of vocabularies are a `Fit` (`estimate_weights.py`).

The result of ByteClassCounter is an estimate: `exact` is False, and `agent/window/` adds a margin for the error.
`counter_for` uses the byte-class estimate for every model without a known and installed vocabulary.
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
"""A text is estimated in blocks of this many characters, each as a separate text."""

STEP = 25
"""A weight is stored as a multiple of STEP thousandths of a token, so that one weight fits into a byte."""

HEAVIEST = 3_000 // STEP
"""The largest weight in the estimate of tokens, in multiples of STEP."""

AT_ONCE = 65_520 // HEAVIEST
"""Number of weights of at most HEAVIEST that zlib.adler32 sums without overflow."""

LONG_RUN = 48
"""A run of at least LONG_RUN equal characters is counted by the rate that `Fit.runs` has for the character, if it has
one."""

KEPT = 8
"""The first KEPT characters of a long run are counted like other text; each further character costs the rate of the
character."""

EVERY = 8
"""The search for long runs compares only every EVERY-th character of a text; LONG_RUN equal characters contain six of
these."""

BLANK, NEWLINE, DIGIT, UPPER, OTHER, BEYOND = 0, 1, 2, 3, 14, 15
LETTERS_AND_SIGNS = (b"huxyz", b"bcdeflmrst", b"jqw$)", b"agnv`", b"-~", b"(*+./=_}", b"\"';>\\", b"k#&<]", b"op!?^",
                     b",:[{", b"i%@|")  # fmt: skip
"""The letters and signs of the classes 4 to 14.

A local search for the smallest error over six vocabularies found this division into classes: languages that are written
in ASCII differ in the letters that they use most.
"""

MIXED_FROM = 64
"""A text with at least this many characters beyond ASCII is checked for mixed scripts."""

_FAR, _NEAR = re.compile("[^\0-\u07ff\u1e00-\u1eff]+"), re.compile("[\0-\u07ff\u1e00-\u1eff]+")
"""A run of characters that belong to `Fit.far`, and a run of characters that belong to `Fit.near`.  All Vietnamese
letters, which have two or three bytes in UTF-8, belong to `Fit.near`."""

SIX_EQUAL = bytes(5)
"""The pattern that is searched in the differences between neighbouring bytes: five zeros in a row mean six equal
bytes."""

ASCII = bytes(range(128))

# The first high bytes of the ranges of UTF-16 code units that form one class each. NEAR is for characters with two
# bytes in UTF-8; its table is used for both bytes of a UTF-16 code unit, which is faster than one table for each byte.
# FAR is for the high bytes of characters with three bytes in UTF-8, with a class for each script.
NEAR = (0x00, 0x01, 0x03, 0x05, 0x06, 0x09, 0x0E, 0x1E, 0x20, 0x30, 0x31, 0x80, 0xA0, 0xD8)
FAR = (0x00, 0x01, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x10, 0x12, 0x17, 0x1E, 0x30, 0x31, 0xA0, 0xD8)
TIBETAN, KHMER = 0x0F, 0x17


def _table(classes: Iterable[int]) -> bytes:
    """A table for `bytes.translate`, made from 256 classes, that maps bytes to hexadecimal digits."""
    return b"".join(b"%x" % one for one in classes)


def class_of(byte: int) -> int:
    """The class that an ASCII character, given by its code, has in the estimate."""
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
"""Maps bytes to classes for texts beyond ASCII, in which a character beyond ASCII was replaced by a question mark or by
its byte in Latin-1."""

NEAR_BOTH = _table(_range_of(NEAR, byte) for byte in range(256))
FAR_HIGH = _table(_range_of(FAR, KHMER if byte == TIBETAN else byte) for byte in range(256))
FAR_LOW = _table(byte >> 4 for byte in range(256))


@dataclass(frozen=True)
class Fit:
    """The weights for the estimate of one family of vocabularies.

    `pairs`, `near` and `far` have one byte, a weight in multiples of STEP, for each pair of classes: (character before,
    character) in `pairs`, and (high byte, low byte) of a UTF-16 code unit in `near` and `far`.  `runs` has, by
    character, the tokens that each further character of a long run costs.  A long run of a character that is not in
    `runs` is counted like other text.
    """

    name: str
    pairs: bytes
    near: bytes
    far: bytes
    runs: Mapping[str, float] = field(repr=False)

    @cached_property
    def latin(self) -> bytes:
        """The weight of each byte of Latin-1, seen as the low byte of a UTF-16 code unit."""
        lows = [int(chr(digit), 16) for digit in NEAR_BOTH]
        return bytes(self.near[low] for low in lows)


class ByteClassCounter:
    """A counter that estimates tokens with the weights of one family."""

    exact = False

    def __init__(self, fit: Fit) -> None:
        self.name = f"bytes:{fit.name}"
        self.fit = fit
        self._memo = Memo(self.weigh)

    def count(self, text: str) -> int:
        """Estimated tokens of a text; 0 only for the empty text."""
        return self._memo(text)

    def weigh(self, text: str) -> int:
        """Estimated tokens of a text, as `count` returns, but without the cache."""
        if len(text) <= BLOCK:
            thousandths = self._weigh(text)
        else:
            thousandths = sum(self._weigh(text[start : start + BLOCK]) for start in range(0, len(text), BLOCK))
        return max(round(thousandths / 1000), 1 if text else 0)

    def _weigh(self, text: str) -> float:
        """Estimated tokens of one block of text, in thousandths: whole numbers, unless there are long runs, so that the
        sum of blocks is exact."""
        signs, table, latin = _signs(text)
        extra = 0.0
        if len(text) >= LONG_RUN and (places := sixes(sample_of(text, signs))):
            runs = [run for run in runs_at(text, places) if text[run[0]] in self.fit.runs]
            if runs:
                extra = sum(1000 * self.fit.runs[text[start]] * (end - start - KEPT) for start, end in runs)
                text = without(text, runs)
                signs, table, latin = _signs(text)
        steps = total(neighbours(signs.translate(table)).translate(self.fit.pairs))
        if latin:
            steps += total(signs.translate(self.fit.latin))
        elif table is MIXED:
            near_units, far_units = code_units(text)
            steps += total(near_units.translate(self.fit.near)) if near_units else 0
            steps += total(far_units.translate(self.fit.far)) if far_units else 0
        return steps * STEP + extra


def _signs(text: str) -> tuple[bytes, bytes, bool]:
    """Returns (a byte for each character, the table that maps these bytes to classes, whether bytes beyond ASCII are
    Latin-1).

    Characters that are not in Latin-1 are replaced by question marks. A text that has only characters of Latin-1 is
    estimated faster.
    """
    if text.isascii():
        return text.encode(), PURE, False
    try:
        return text.encode("latin-1"), MIXED, True
    except UnicodeEncodeError:
        return text.encode("ascii", "replace"), MIXED, False


def sample_of(text: str, signs: bytes = b"") -> bytes:
    """One byte for every EVERY-th character; equal characters give equal bytes.

    The bytes are taken from `signs` (one byte for each character of the text) if fewer than one in EVERY of its bytes
    are question marks; otherwise they are made from the text.
    """
    if signs and EVERY * signs.count(b"?") < len(signs):
        return signs[::EVERY]
    return text[::EVERY].encode("utf-32-le", "surrogatepass")[::4]


def sixes(sample: bytes) -> list[int]:
    """The positions in `sample` from which at least six bytes in a row are equal."""
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
    """(start, end) of each long run that covers one of `places`: a place is a position, in multiples of EVERY, from
    which six characters at the distance EVERY have the same byte in the sample."""
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
    """The end of the run of `sign` that reaches at least to `end`; the function reads at most about twice the length of
    the run."""
    length = LONG_RUN
    while piece := text[end : end + length]:
        same = len(piece) - len(piece.lstrip(sign))
        end += same
        if same < len(piece):
            break
        length *= 2
    return end


def without(text: str, runs: list[tuple[int, int]]) -> str:
    """The text `text` with each long run cut to KEPT characters."""
    parts = []
    done = 0
    for start, end in runs:
        parts.append(text[done : start + KEPT])
        done = end
    return "".join(parts) + text[done:]


def code_units(text: str) -> tuple[bytes, bytes]:
    """Encode a text for the estimate: one byte for each UTF-16 code unit, with the classes of its high and its low byte
    in four bits each.

    Returns one string for the characters that `Fit.near` covers, and one for those of `Fit.far`.

    For nearly all texts one of the two strings (near, far) is empty.  ASCII characters are left out, or, in a long text
    with many other characters, remain with the weight 0.
    """
    sample = text[::EVERY] if len(text) > BLOCK // EVERY else ""
    many = sample.encode("ascii", "replace").count(b"?") if sample else 0
    # number of UTF-8 bytes of the characters beyond ASCII, minus two for each of these characters
    more = len(encode(sample)) - len(sample) - many
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
    """Whether a text may contain both scripts with two and scripts with three bytes in UTF-8.

    `characters` is the number of characters beyond ASCII, `more` the number of their UTF-8 bytes minus two for each of
    these characters.
    """
    return characters >= MIXED_FROM and characters < 4 * more < 3 * characters


def near(units: bytes) -> bytes:
    """Classes of the UTF-16 code units of scripts with two bytes in UTF-8."""
    return unhexlify(units.translate(NEAR_BOTH))


def far(units: bytes) -> bytes:
    """Classes of the UTF-16 code units of scripts with three bytes in UTF-8."""
    digits = bytearray(len(units))
    digits[::2] = units[::2].translate(FAR_HIGH)
    digits[1::2] = units[1::2].translate(FAR_LOW)
    return unhexlify(digits)


def neighbours(classes: bytes) -> bytes:
    """One byte for each pair of neighbouring class digits (class before, class of the character); the first character
    counts as preceded by a blank."""
    classes = b"0" + classes
    if len(classes) & 1:
        return unhexlify(classes[:-1]) + unhexlify(classes[1:])
    return unhexlify(classes) + unhexlify(classes[1:-1])


def total(values: bytes) -> int:
    """The sum of weights that are at most HEAVIEST; adler32 with the start 0 adds up to AT_ONCE of them in C."""
    length = len(values)
    if length <= AT_ONCE:
        return adler32(values, 0) & 0xFFFF
    return sum([adler32(values[start : start + AT_ONCE], 0) & 0xFFFF for start in range(0, length, AT_ONCE)])


def encode(text: str) -> bytes:
    """The text in UTF-8; a lone surrogate in it becomes U+FFFD, as in tiktoken."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
