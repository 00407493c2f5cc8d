"""Text made fit for JSON, PostgreSQL and every wire: no lone surrogates, no NUL, no NaN.

A lone surrogate or NUL in a history makes every later request fail, so both become U+FFFD before they are written
(public fact: wire.md section 1, cases 46 and 47).  Clean text, nearly all there is, costs one search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

REPLACEMENT = "\ufffd"
NUL = b"\\u0000"  # as JSON writes it; also found where a text spells it, which then stays as it is
LARGEST_INTEGER = (1 << 63) - 1

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


DEL = b"\x7f"

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""In UTF-8: DEL and C1, which JSON takes as they are, and what changes the order of the letters on a line."""


def fit(text: str) -> str:
    """`text` with NUL and lone surrogates as U+FFFD; two halves that belong together become their character."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        orjson.dumps(text)  # unlike `encode` it leaves the UTF-8 with the text, for the line and for who counts tokens
    except orjson.JSONEncodeError:
        text = _PAIR.sub(_join, text)
        return _UNFIT.sub(REPLACEMENT, text)
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def fit_json(value: Any) -> Any:
    """`value` as plain JSON: strings fit, keys strings, NaN and infinities null, integers beyond 64 bits text."""
    if isinstance(value, str):
        return fit(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -LARGEST_INTEGER <= value <= LARGEST_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {fit(str(key)): fit_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [fit_json(inner) for inner in value]
    return fit(str(value))


def dumps(value: Any, option: int = 0) -> bytes:
    """Compact JSON, with what a terminal obeys escaped, since people read these files with tail and jq.  What orjson
    refuses (surrogates, odd keys and types), and NUL, is made fit first."""
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
    """`dumps` with the newline that ends a line of JSONL."""
    return dumps(record, orjson.OPT_APPEND_NEWLINE)
