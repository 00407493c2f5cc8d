"""Masks declared secrets by exact value and by the encodings in which they leave by accident.

Used on everything that is written where others can read it: comments, logs, context files, tool results.  It knows
nothing of secrets that nobody declared; `secrets` looks for their shapes.
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"
SHORTEST = 8
"""A shorter value would be found in honest text."""

LINE = 24
"""A line of a secret of several lines (a key file, a JSON account) is looked for by itself from this length on."""


class Redactor:
    """`Redactor(secrets)(text)` is `text` with each secret and each of its encodings written as `***`.

    Values shorter than 8 characters are not looked for.  `bytes` is the same for bytes.  Safe to share.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self.needles = needles(secrets)
        self._bytes = [needle.encode("utf-8", "surrogatepass") for needle in self.needles]

    def __call__(self, text: str) -> str:
        # One search per needle: CPython's substring search passes 10 MB in milliseconds, an alternation in seconds.
        for needle in self.needles:
            if needle in text:
                text = text.replace(needle, MASK)
        return text

    def bytes(self, data: bytes) -> bytes:
        """The same for bytes (UTF-8)."""
        for needle in self._bytes:
            if needle in data:
                data = data.replace(needle, MASK.encode())
        return data


def needles(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every string that gives a secret away, longest first, so that none hides the rest of a longer one."""
    found: set[str] = set()
    for secret in secrets:
        value = secret.strip()
        if len(value) < SHORTEST:
            continue
        found |= forms(value)
        lines = [line.strip() for line in value.splitlines()]
        if len(lines) > 1:
            for line in lines:
                if len(line) >= LINE and not line.startswith("-----"):
                    found |= forms(line)
    return tuple(sorted(found, key=lambda needle: (-len(needle), needle)))


def forms(value: str) -> set[str]:
    """`value` as it is, as JSON, in URLs, in hexadecimal, and in base64 wherever it stands in what was encoded."""
    data = value.encode("utf-8", "surrogatepass")
    escaped = json.dumps(value)[1:-1]
    percent = {quote(data, safe=""), quote(data), quote_plus(data), quote_plus(data, safe="/:@")}
    found = {value, escaped, json.dumps(value, ensure_ascii=False)[1:-1], escaped.replace("/", "\\/")}
    # A JSON text inside a JSON text, as tool arguments are.
    found.add(json.dumps(escaped)[1:-1])
    found |= percent | {text.replace("%", "%25") for text in percent} | {_lower_percent(text) for text in percent}
    found |= {data.hex(), data.hex().upper()}
    for shift in range(3):
        found |= _base64(data, shift)
    return {text for text in found if len(text) >= SHORTEST}


def _lower_percent(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


def _base64(data: bytes, shift: int) -> set[str]:
    """The characters of base64 that depend on `data` alone when it stands `shift` bytes after a multiple of three."""
    start = math.ceil(shift * 8 / 6)
    end = (shift + len(data)) * 8 // 6
    found = set()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"\0" * shift + data).decode("ascii")[start:end]
        found.add(text)
        if shift == 0 and len(text) > 76:
            # `base64` breaks its lines at 76 characters.
            found |= {text[at : at + 76] for at in range(0, len(text) - LINE, 76)}
    return found
