"""Shapes of tokens and private keys in a text that others read: written as `***`.

The shapes are those that stop a push (`secrets`); examples of the vendors' documents and placeholders stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.redact import MASK
from agent.security.secrets import HINTS, SHAPES, is_real

if TYPE_CHECKING:
    from collections import Counter

_SHAPES = tuple((rule, re.compile(shape.pattern.decode("ascii"))) for rule, _, shape in SHAPES if rule != "SE-03")
_HINTS = re.compile(HINTS.pattern.decode("ascii"))
_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(
    r"[^-<&`\"']{0,40}?[A-Za-z0-9+/=]{20,}+(?:[\s\\>|*+-]{1,12}[A-Za-z0-9+/=]{16,}+)*+"
    r"(?:[\s\\>|*+-]{1,12}[A-Za-z0-9+/]{1,80}={1,2})?"
)
"""What follows the first line of a key: what a quotation or a list puts before lines, and then lines of base64."""
_END = "-----END "
_FARTHEST = 1 << 15
"""A key is no longer than this; what ends later ends another one."""


def masked(text: str, found: Counter[str]) -> str:
    """`text` without tokens and private keys, counting each into `found` by rule."""
    if _HINTS.search(text) is None:
        return text
    text = _without_keys(text, found)
    for rule, shape in _SHAPES:
        count = 0

        def new(match: re.Match[str]) -> str:
            nonlocal count
            if not is_real(match[0].encode("ascii")):
                return match[0]
            count += 1
            return MASK

        text = shape.sub(new, text)
        if count:
            found[rule] += count
    return text


def _without_keys(text: str, found: Counter[str]) -> str:
    kept, position = [], 0
    while (first := _KEY.search(text, position)) is not None:
        kept.append(text[position : first.start()])
        position = first.end()
        body = _BODY.match(text, position)
        if body is None:  # a program that reads keys
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
