"""Makes text and JSON valid for files, PostgreSQL and every model API: without unpaired surrogates, NUL and NaN.

An unpaired surrogate or a NUL in a stored message would make every later request to the model fail, so both become
U+FFFD before they are written (docs/wire.md, "The request"). Text without surrogates and NUL (nearly all text) is not
copied.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

REPLACEMENT = "\ufffd"
# NUL as JSON writes it; a text that contains these six characters itself is checked for NUL too, but not changed
NUL = b"\\u0000"
LARGEST_INTEGER = (1 << 63) - 1

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


DEL = b"\x7f"

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""Matches, in UTF-8, DEL and the C1 control characters, which JSON does not escape, and the characters that change the
direction of text."""


def replace_surrogates(text: str) -> str:
    """`text` with NUL and unpaired surrogates replaced by U+FFFD; a pair of surrogates becomes the character that it
    encodes."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        orjson.dumps(text)  # unlike `encode`, `dumps` caches the UTF-8 inside the str object, for later encodings
    except orjson.JSONEncodeError:
        text = _PAIR.sub(_join, text)
        return _UNFIT.sub(REPLACEMENT, text)
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def fit_json(value: Any) -> Any:
    """Convert `value` to plain JSON: invalid characters in strings are replaced, keys become strings, NaN and
    infinities become null, integers outside ±LARGEST_INTEGER become text, tuples and sets become lists, and other
    objects their `str`."""
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -LARGEST_INTEGER <= value <= LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {replace_surrogates(str(key)): fit_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [fit_json(inner) for inner in value]
    return replace_surrogates(str(value))


def dumps(value: Any, option: int = 0) -> bytes:
    """Encode `value` as compact JSON in which control characters are escaped, since people show the stored files on
    terminals with tail and jq.  Values that orjson refuses (surrogates, keys that are no strings, unknown types), and
    NUL, are made valid first (`fit_json`)."""
    try:
        data = orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        data = orjson.dumps(fit_json(value), option=option)
    if NUL in data:
        data = orjson.dumps(fit_json(value), option=option)
    if data.isascii() and DEL not in data:
        return data
    return _CONTROLS.sub(_escaped, data)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


def line(record: Any) -> bytes:
    """A record as one line of a JSONL file: the JSON made by `dumps` and a newline."""
    return dumps(record, orjson.OPT_APPEND_NEWLINE)
