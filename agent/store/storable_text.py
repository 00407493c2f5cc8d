"""Makes text valid for JSON, PostgreSQL and every model API: no unpaired surrogates, no NUL, no NaN.

An unpaired surrogate or a NUL in a history would make every later request fail, so both become U+FFFD before they are
written (docs/wire.md, "The request").  Valid text, which is nearly all, costs one search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

REPLACEMENT = "\ufffd"
NUL = b"\\u0000"  # NUL in JSON's form; a text that contains this spelling literally is also found, and stays unchanged
LARGEST_INTEGER = (1 << 63) - 1

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


DEL = b"\x7f"

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""UTF-8 of DEL and the C1 controls, which JSON does not escape, and of the characters that change the direction of
text."""


def replace_surrogates(text: str) -> str:
    """`text` with NUL and unpaired surrogates replaced by U+FFFD; a pair of surrogates becomes the character that it
    encodes."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        orjson.dumps(text)  # unlike `encode`, this caches the UTF-8 in the text, for the line and for token counters
    except orjson.JSONEncodeError:
        text = _PAIR.sub(_join, text)
        return _UNFIT.sub(REPLACEMENT, text)
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def fit_json(value: Any) -> Any:
    """`value` as plain JSON: strings become valid, keys become strings, NaN and infinities become null, integers beyond
    64 bits become text."""
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
    """Compact JSON in which control characters for terminals are escaped, since people read these files with tail and
    jq.  Values that orjson refuses (surrogates, odd keys and types), and NUL, are made valid first."""
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
    """The JSON of `dumps`, with the newline that ends a line of JSONL."""
    return dumps(record, orjson.OPT_APPEND_NEWLINE)
