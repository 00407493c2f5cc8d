"""Replaces texts that have the shape of a token or private key by `***` in published texts.

A text with the shape of a token or key in a change also stops a push (`secrets`); documented examples and placeholders
are not masked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.redact import MASK
from agent.security.secrets import HINTS, SHAPES, is_real

if TYPE_CHECKING:
    from collections import Counter

_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(
    r"[^-<&`\"']{0,40}?[A-Za-z0-9+/=]{20,}+(?>(?:[\s\\>|*+-]{1,12}[A-Za-z0-9+/=]{16,}+)*)"
    r"(?:[\s\\>|*+-]{1,12}[A-Za-z0-9+/]{1,80}={1,2})?"
)
"""Matches the lines after the header of a private key: each has an optional prefix of a quotation or list, then
base64."""
_END = "-----END "
_FARTHEST = 1 << 15
"""A private key has at most this many characters; a footer further away belongs to another key."""


def mask_tokens(text: str, found: Counter[str]) -> str:
    """`text` with tokens and private keys masked; each is counted into `found` by rule."""
    if HINTS.search(_bytes(text)) is None:
        return text
    data = _bytes(_without_keys(text, found))
    for rule, _, shape in SHAPES:
        if rule == "SE-03":
            continue
        count = 0

        def new(match: re.Match[bytes]) -> bytes:
            nonlocal count
            if not is_real(match[0]):
                return match[0]
            count += 1
            return MASK.encode("ascii")

        data = shape.sub(new, data)
        if count:
            found[rule] += count
    return data.decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    """`text` as bytes: the shapes are compiled once, for bytes, and shared with the search in diffs."""
    return text.encode("utf-8", "surrogatepass")


def _without_keys(text: str, found: Counter[str]) -> str:
    kept, position = [], 0
    while (first := _KEY.search(text, position)) is not None:
        kept.append(text[position : first.start()])
        position = first.end()
        body = _BODY.match(text, position)
        # no key follows this header, as in the source of a program that parses keys: nothing is masked
        if body is None:
            kept.append(first[0])
            continue
        found["SE-03"] += 1
        kept.append(MASK)
        end = text.find(_END, position, position + _FARTHEST)
        position = body.end()
        if end >= 0 and _KEY.search(text, position, end) is None:
            close = text.find("-----", end + len(_END), end + 100)
            position = max(position, close + 5 if close >= 0 else end + len(_END))
    return "".join((*kept, text[position:]))
