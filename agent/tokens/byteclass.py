"""The byte-class estimate: how many tokens a text has, without any vocabulary.

Every UTF-8 byte is one of sixteen classes, and a byte together with the one before it costs a fixed number of
thousandths of a token (eighteen features; public fact: tokens.md section 7).  Means are about 1 % off on a whole
conversation and 5 % on one document.  It is not a tokenizer: `exact` is False, and `window` keeps a margin for that.
`counter_for` takes it for every model whose vocabulary is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from zlib import adler32

SLICE = 1 << 16
"""Characters that are encoded at a time, so that a text of 100 MB needs no second 100 MB."""

BLOCK = 4096
"""Bytes that are weighed at a time."""

MOST = 65_520
"""The largest sum that adler32 tells without wrapping."""

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


CLASSES = bytes(class_of(byte) for byte in range(256))


@dataclass(frozen=True, slots=True)
class Fit:
    """The weights of one vocabulary, in thousandths of a token."""

    name: str
    lower_start: int
    upper_start: int
    lower: int
    upper: int
    digit_start: int
    punct_start: int
    punct: int
    newline_start: int
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
        letters = (LOWER, UPPER)
        weight = {
            LOWER: self.lower + (0 if before in letters else self.lower_start),
            UPPER: self.upper + (0 if before == UPPER else self.upper_start),
            DIGIT: 0 if before == DIGIT else self.digit_start,
            PUNCT: self.punct + (0 if before == PUNCT else self.punct_start),
            NEWLINE: 0 if before == NEWLINE else self.newline_start,
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


O200K = Fit("o200k", 761, 927, 47, 285, 1648, 349, 217, 1327, 560, 740, 611, 728, 724, 1119, 646, 288, 2000, 1810)
CL100K = Fit(
    "cl100k", 933, 1010, 26, 331, 1549, 320, 171, 1284, 123, 1006, 1059, 1044, 1196, 1770, 748, 516, 2000, 2920
)


@cache
def tables(fit: Fit) -> tuple[bytes, int, bytes, int]:
    """Two tables over (class before, class here) with six bits of the weight each, low and high, and how many bytes of
    each can be summed at a time."""
    weights = [fit.weight(pair >> 4, pair & 15) for pair in range(256)]
    low, high = bytes(weight & 63 for weight in weights), bytes(weight >> 6 for weight in weights)
    return low, MOST // max(low), high, MOST // max(high)


def pairs_of(classes: bytes, before: int) -> bytes:
    """One byte for each pair (class before, class here): the classes as one large integer, or-ed with itself moved by
    one byte and four bits.  One more follows, the last with a blank: it weighs nothing behind whole characters."""
    codes = int.from_bytes(classes, "little")
    moved = codes << 12 | before << 4 if before else codes << 12
    return (codes | moved).to_bytes(len(classes) + 1, "little")


def total(values: bytes, step: int) -> int:
    """The sum of small numbers: adler32 from 0 is one in C.  `step` of them are never over MOST."""
    length = len(values)
    if length <= step:
        return adler32(values, 0) & 0xFFFF
    if length <= 2 * step:
        return (adler32(values[:step], 0) & 0xFFFF) + (adler32(values[step:], 0) & 0xFFFF)
    return sum([adler32(values[start : start + step], 0) & 0xFFFF for start in range(0, length, step)])


@dataclass(slots=True)
class Tally:
    """What is known of a text so far: thousandths of a token, bytes, digits and runs of digits."""

    weight: int = 0
    size: int = 0
    digits: int = 0
    digit_runs: int = 0
    before: int = BLANK

    def take(self, data: bytes, fit: Fit) -> None:
        """Weigh the next bytes of the text, whole characters."""
        low, low_step, high, high_step = tables(fit)
        for start in range(0, len(data), BLOCK):
            classes = data[start : start + BLOCK].translate(CLASSES)
            # A block may end inside a character: what follows its E3 is weighed with the next block.
            pairs = pairs_of(classes, self.before)[:-1]
            self.weight += total(pairs.translate(low), low_step) + (total(pairs.translate(high), high_step) << 6)
            self.digits += classes.count(DIGIT)
            self.digit_runs += total(pairs.translate(_DIGIT_START), BLOCK)
            self.before = classes[-1]
        self.size += len(data)


_DIGIT_START = bytes(pair & 15 == DIGIT and pair >> 4 != DIGIT for pair in range(256))


class ByteClassCounter:
    """The estimate for one model.

    `factor` is the model's tokens relative to the vocabulary of `fit` (tokens.md section 6); `per_digit` is the least
    that a digit costs, in thousandths: 400 where up to three digits are a token (long arrays of numbers cost more than
    their runs tell), 1000 where each digit is one (Qwen, Gemma).
    """

    exact = False

    def __init__(self, fit: Fit = O200K, factor: float = 1.0, per_digit: int = 400) -> None:
        self.name = f"bytes:{fit.name}"
        self.fit = fit
        self.factor = factor
        self.per_digit = per_digit
        self._tables = tables(fit)
        self._costly_run = bytes([DIGIT]) * (fit.digit_start // per_digit + 1)

    def count(self, text: str) -> int:
        """Estimated tokens; 0 only for the empty text."""
        if len(text) <= BLOCK:
            data = encode(text)
            if len(data) <= BLOCK:
                return self._of_block(data)
        tally = Tally()
        for start in range(0, len(text), SLICE):
            tally.take(encode(text[start : start + SLICE]), self.fit)
        correction = max(0, self.per_digit * tally.digits - self.fit.digit_start * tally.digit_runs)
        return self._tokens(tally.weight + correction, tally.size)

    def _of_block(self, data: bytes) -> int:
        """The same for a short text, as nearly all are: without a tally, and where no run of digits is long enough to
        cost more than its start, without a count of digits."""
        classes = data.translate(CLASSES)
        pairs = pairs_of(classes, BLANK)
        low, low_step, high, high_step = self._tables
        weight = total(pairs.translate(low), low_step) + (total(pairs.translate(high), high_step) << 6)
        if self._costly_run in classes:
            runs = total(pairs.translate(_DIGIT_START), BLOCK)
            weight += max(0, self.per_digit * classes.count(DIGIT) - self.fit.digit_start * runs)
        return self._tokens(weight, len(data))

    def _tokens(self, weight: int, size: int) -> int:
        return max(round(weight * self.factor / 1000), -(-size // LONGEST_TOKEN))


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes U+FFFD, as tiktoken has it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
