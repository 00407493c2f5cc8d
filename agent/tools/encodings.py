r"""Detects the encoding of a file by strict attempts to decode it in a fixed order, never by a guess that loses bytes.

The order of the attempts is: a byte order mark (UTF-8, UTF-32, UTF-16; the rest must decode) · a NUL, which means that
the file is not text · ISO-2022-JP (seven bits, with its escape sequences) · UTF-8 · then EUC-JP, Shift_JIS (as cp932)
and Latin-1 (cp1252 if bytes 80 to 9F occur). For EUC-JP, Shift_JIS and Latin-1 the bytes must decode strictly *and*
look like ordinary text. Exactly one of EUC-JP, Shift_JIS and Latin-1 must match; otherwise the encoding is unknown: a
file in an unknown encoding can be read (invalid bytes as `\xNN`) but is not edited. Japanese is recognised by its kana,
so a file with only a few kanji in a legacy encoding counts as unknown: the same bytes could be valid Chinese or Korean.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

from agent.errors import ToolError


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """The encoding of a text file: Python's codec for the text after the byte order mark, and a name for people."""

    codec: str
    label: str
    bom: bytes = b""


UTF8 = TextEncoding("utf-8", "UTF-8")

_BOMS = (
    TextEncoding("utf-8", "UTF-8 with BOM", codecs.BOM_UTF8),
    # UTF-32 precedes UTF-16, since the mark of UTF-32 LE begins with that of UTF-16 LE
    TextEncoding("utf-32-le", "UTF-32 LE", codecs.BOM_UTF32_LE),
    TextEncoding("utf-32-be", "UTF-32 BE", codecs.BOM_UTF32_BE),
    TextEncoding("utf-16-le", "UTF-16 LE", codecs.BOM_UTF16_LE),
    TextEncoding("utf-16-be", "UTF-16 BE", codecs.BOM_UTF16_BE),
)
_ISO_2022_JP = TextEncoding("iso2022_jp", "ISO-2022-JP")
_EUC_JP = TextEncoding("euc_jp", "EUC-JP")
_SHIFT_JIS = TextEncoding("cp932", "Shift_JIS")
_LATIN_1 = TextEncoding("latin-1", "Latin-1")
_CP1252 = TextEncoding("cp1252", "Windows-1252")

_LOOKED_AT = 1 << 18
"""Number of characters of a text in a legacy encoding that are compared with ordinary text; the whole text must
decode."""

_ESCAPES = (b"\x1b$B", b"\x1b$@", b"\x1b(J")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fc]")
_JAPANESE = re.compile(
    r"[\u3000-\u30ff\u4e00-\u9fff\uff01-\uff5e\uffe0-\uffe6\u2010-\u2026\u2190-\u21ff\u2200-\u22ff"
    r"\u2460-\u2473\u2500-\u257f\u25a0-\u25ff\u2600-\u266f\u0391-\u03c9\u0410-\u044f\u00a7-\u00f7\u2032\u2033\u203b]"
)
_HIGH = re.compile(rb"[\x80-\xff]+")
_LETTERS = frozenset([*range(0xC0, 0xD7), *range(0xD8, 0xF7), *range(0xF8, 0x100), *b"\x8a\x8c\x8e\x9a\x9c\x9e\x9f"])
_SIGNS = frozenset(b"\x80\x85\x8b\x91\x92\x93\x94\x95\x96\x97\x99\x9b\xd7\xf7") | frozenset(range(0xA0, 0xC0))
# Bytes that may be inside a word: apostrophes, dash, soft hyphen, the Catalan dot.
_IN_WORDS = frozenset(b"\x91\x92\x96\xad\xb7")

# Characters that cp932 and Unicode's own tables map differently.
_TWINS: dict[str, str | int | None] = {"\u301c": "\uff5e", "\u2212": "\uff0d", "\u2014": "\u2015", "\u2016": "\u2225"}


def decodes(data: bytes, codec: str, *, partial: bool = False) -> bool:
    """Whether `data` is valid in `codec`; with `partial` the last character may be truncated."""
    try:
        codecs.getincrementaldecoder(codec)("strict").decode(data, not partial)
    except UnicodeDecodeError:
        return False
    return True


def detect(data: bytes, *, partial: bool = False) -> TextEncoding | None:
    """The encoding of `data`, which is the whole file or (with `partial`) its beginning; None when the encoding is
    uncertain."""
    for form in _BOMS:
        if data.startswith(form.bom):
            return form if decodes(data[len(form.bom) :], form.codec, partial=partial) else None
    if b"\0" in data:
        return None
    if data.isascii() and any(escape in data for escape in _ESCAPES):
        return _ISO_2022_JP if decodes(data, "iso2022_jp", partial=partial) else UTF8
    if decodes(data, "utf-8", partial=partial):
        return UTF8
    if _CONTROLS.search(data):
        return None
    fitting = [form for form in (_EUC_JP, _SHIFT_JIS) if _is_japanese(data, form.codec, partial=partial)]
    if _is_latin(data):
        fitting.append(_CP1252 if re.search(rb"[\x80-\x9f]", data) else _LATIN_1)
    return fitting[0] if len(fitting) == 1 else None


def _is_japanese(data: bytes, codec: str, *, partial: bool) -> bool:
    try:
        text = codecs.getincrementaldecoder(codec)("strict").decode(data, not partial)
    except UnicodeDecodeError:
        return False
    text = text[:_LOOKED_AT]
    foreign = len(_NOT_ASCII.findall(text))
    kana = len(_KANA.findall(text))
    return kana >= 2 and kana >= foreign * 0.1 and len(_JAPANESE.findall(text)) >= foreign * 0.9


def _is_latin(data: bytes) -> bool:
    if not decodes(data, "cp1252"):
        return False
    data = data[:_LOOKED_AT]
    good = total = 0
    for run in _HIGH.finditer(data):
        total += 1
        before = data[run.start() - 1 : run.start()].isalpha()
        after = data[run.end() : run.end() + 1].isalpha()
        letters = sum(byte in _LETTERS for byte in run.group())
        signs = [byte for byte in run.group() if byte in _SIGNS]
        if letters + len(signs) < len(run.group()) or letters > 2 or len(signs) > 2:
            continue
        if letters == 2 and not (before or after):
            continue
        if signs and before and after and not letters and not all(byte in _IN_WORDS for byte in signs):
            continue  # a symbol inside a word shows that the text is in another code page
        good += 1
    return good >= total * 0.95


def decode(data: bytes, form: TextEncoding) -> str:
    """The text of a whole file; `form` is the result of `detect` for the same bytes."""
    return data[len(form.bom) :].decode(form.codec)


def encode(text: str, form: TextEncoding) -> bytes:
    """`text` in the encoding of a file, without a byte order mark; in cp932 a character of _TWINS becomes its twin.
    Raises ToolError for the first character that cannot be encoded."""
    try:
        return text.encode(form.codec)
    except UnicodeEncodeError as error:
        if form.codec == "cp932" and any(sign in text for sign in _TWINS):
            return encode(text.translate(str.maketrans(_TWINS)), form)
        sign = text[error.start]
        name = unicodedata.name(sign, "no name")
        raise ToolError(
            f"{sign.encode('unicode_escape').decode()} ({name}) cannot be written in {form.label}, the encoding of "
            f"this file. Use characters that {form.label} has, or convert the file with run_command first."
        ) from error


def escape_surrogates(text: str) -> str:
    r"""`text` with lone surrogates written as `\udcNN`, so that every store and wire accepts it."""
    return text.encode("utf-8", "backslashreplace").decode()


def decode_lenient(data: bytes) -> str:
    r"""UTF-8 text with invalid bytes written as `\xNN`, for output of unknown encoding."""
    return data.decode("utf-8", "backslashreplace")


_ODD = bytes((*range(9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))


def is_mostly_binary(data: bytes) -> bool:
    """Whether more than half of the characters of `data` are invalid UTF-8, or control characters other than white
    space and ESC."""
    told = data.decode("utf-8", "surrogateescape")
    undecoded = len(data) - len(told.encode("utf-8", "ignore"))  # each byte that could not be decoded is a surrogate
    odd = undecoded + len(data) - len(data.translate(None, _ODD))
    return odd * 2 > len(told)


_PRINTED = {byte: f"\\x{byte:02x}" for byte in (*range(0x20), *range(0x7F, 0x100)) if chr(byte) not in "\n\t"}


def printable(data: bytes) -> str:
    r"""Mostly binary bytes as text: printable ASCII, `\n` and tabs unchanged, all other bytes as `\xNN`."""
    return data.decode("latin-1").translate(_PRINTED)


def size_of(text: str) -> int:
    """The number of bytes of `text` in UTF-8, the unit of each limit of a result that is not in tokens: bytes grow like
    tokens, since a Japanese character is about one token and an English one about a quarter."""
    return len(text.encode("utf-8", "backslashreplace"))
