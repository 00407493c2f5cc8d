"""Reads the letters of a text in several forms in which a model can read it, to find text that repeats another text in
disguise.

A model that reads `QWx3YXlz…`, `&#97;lways` or `al**way**s` may write the plain text. To find a disguised repetition,
texts are compared by their letters and digits alone, without case, accents, look-alikes, width, markup and spaces, and
encoded parts are decoded too. A translation or a paraphrase is not detected: it counts as an inference of the model,
not as a repetition.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import quopri
import re
import unicodedata
import zlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH = 2
"""Maximum number of encodings inside each other that are decoded."""
LONGEST = 100_000
"""Maximum number of bytes that are decompressed from one compressed text; the rest is not read."""
MOST_SIGNS = 7
"""Maximum number of signs like `=20` in a text that is not taken for quoted-printable; code has a few by chance."""
READABLE = 0.8
"""Minimum share of letters, digits and spaces in a decoded text that counts as readable."""

_OTHER = re.compile(r"[\W_]+")
_TAG = re.compile(r"<[^<>\n]{0,200}>")
_ENTITY = re.compile(r"&#?\w{1,31};")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
_ESCAPE = re.compile(r"\\u\{?([0-9a-fA-F]{4,6})\}?")
_BYTES = re.compile(r"(?:\\(?:x[0-9a-fA-F]{2}|[0-3][0-7]{2}))+")
_ANSI = re.compile(r"(?:\x1b|\ufffd|\\x1b|\\033|\\e)\[[0-9;]{0,20}[A-Za-z]")
"""Matches a control sequence of a terminal, such as a colour, also in the form in which a program's source has it."""
_QUOTED = re.compile(r"=(?:[0-9A-F]{2}|\r?\n)")
_BASE32 = re.compile(r"[A-Z2-7]{24,}")
_GZIP, _ZLIB = b"\x1f\x8b", b"\x78"
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}(?:\r?\n[A-Za-z0-9+/_-]{4,})*={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[\s:]?){12,}")
_TWINS = str.maketrans("асԁеһіјӏкорԛѕтѵѡхуүνορτυχαεικ", "acdehijlkopqstvwxyyvoptuxaeik")
"""Small letters of Cyrillic and Greek that look like Latin ones → the Latin letters."""


def letters(text: str) -> str:
    """The letters and digits of a text in a row, in small letters without accents."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).casefold().translate(_TWINS)
    return _OTHER.sub("", text.casefold())


def readings(text: str, depth: int = DEPTH) -> Iterator[str]:
    """Yields the letters of the text (also in reverse and by ROT13), of the text without markup, and of each decoded
    part; an encoded part of a decoded one is decoded too, until `depth` encodings are decoded."""
    text = _ANSI.sub("", text)
    yield (own := letters(text))
    if depth == DEPTH:
        yield own[::-1]
        yield codecs.encode(own, "rot13")
    plain = (
        _TAG.sub("", _ENTITY.sub(lambda found: html.unescape(found[0]), text)) if "<" in text or "&" in text else text
    )
    if plain != text:
        yield letters(plain)
    if depth:
        for found in _decoded(plain):
            yield from readings(found, depth - 1)


def _decoded(text: str) -> Iterator[str]:
    if _PERCENT.search(text):
        yield unquote(text, errors="replace")
    if _ESCAPE.search(text):
        yield _ESCAPE.sub(_sign, text)
    if _BYTES.search(text):
        yield _BYTES.sub(_text, text)
    if next(islice(_QUOTED.finditer(text), MOST_SIGNS, None), None):
        yield quopri.decodestring(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    for found in _BASE32.finditer(text):
        with suppress(binascii.Error):
            # whole groups of 8 characters; the rest would give at most four bytes
            data = found[0][: len(found[0]) // 8 * 8]
            yield from _readable(base64.b32decode(data))
    for found in _HEX.finditer(text):
        with suppress(ValueError):
            yield from _readable(bytes.fromhex(re.sub(r"[\s:]", "", found[0])))
    for found in _BASE64.finditer(text):
        data = re.sub(r"\s", "", found[0]).rstrip("=").replace("-", "+").replace("_", "/")
        with suppress(binascii.Error, ValueError):
            yield from _readable(base64.b64decode(data[: len(data) // 4 * 4] if len(data) % 4 == 1 else _padded(data)))


def _padded(data: str) -> str:
    return data + "=" * (-len(data) % 4)


def _sign(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else ""


def _text(found: re.Match[str]) -> str:
    """The text for bytes that the source of a program has as hexadecimal or octal escapes."""
    numbers = (int(one[1:], 16) if one[0] == "x" else int(one, 8) for one in found[0].split("\\")[1:])
    return bytes(numbers).decode("utf-8", "replace")


def _readable(data: bytes) -> Iterator[str]:
    """Yields the text that the bytes encode in UTF-8 or UTF-16, if it is readable (READABLE); compressed bytes are
    decompressed first."""
    if data.startswith((_GZIP, _ZLIB)):
        with suppress(zlib.error):
            data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, LONGEST)
    for encoding in ("utf-8", "utf-16-le"):
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if sum(sign.isalnum() or sign.isspace() for sign in text) >= READABLE * len(text):
                yield text
                return
