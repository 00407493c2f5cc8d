"""Marks text from outside as data for a model.

The marker is random, one per run, and saved in the task's metadata.json, so text that was written before the run cannot
contain it. The random marker helps a model to distinguish data from instructions. A fence is no security boundary
(docs/security.md, "Text from outside").
"""

from __future__ import annotations

import re
import secrets as _random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORGED = re.compile(r"(?<!<)<{2,}+(?=\s{0,99}(?:END\s{1,99})?UNTRUSTED\b)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.,:;@#/+() -]")


LABEL = 200
"""The source or the author of a fenced text is shortened to this many characters."""


def new_marker() -> str:
    """Make a random marker of 24 hexadecimal digits, that is 96 random bits."""
    return _random.token_hex(12)


def fence(text: str, marker: str, *, source: str, author: str | None = None) -> str:
    """Put `text` between an opening and a closing line with the marker of this run.

    `source` ("issue #3", "file README.md") and `author` are shortened to one line.  Forged fence lines in `text`, with
    any marker, and the marker itself are defused, so that there is exactly one fenced region.
    """
    harmless, _ = defuse(text, marker)
    before, behind = edges(marker, source=source, author=author)
    return f"{before}\n{harmless}\n{behind}"


def edges(marker: str, *, source: str, author: str | None = None) -> tuple[str, str]:
    """The opening and the closing line of a fence, for a text that is written in pieces; the caller must pass each
    piece through `defuse`."""
    by = f" author={_label(author)}" if author else ""
    return f"<<<UNTRUSTED {marker} source={_label(source)}{by}>>>", f"<<<END UNTRUSTED {marker}>>>"


@dataclass(frozen=True, slots=True)
class Region:
    """A fenced text: `source` and `author` are as its opening line shows them, "" for no author."""

    source: str
    author: str
    text: str


def regions(text: str, marker: str) -> Iterator[Region]:
    """The fenced texts in a message of the run with this marker, in order."""
    ours = re.escape(marker)
    opening = rf'<<<UNTRUSTED {ours} source="([^"]*)"(?: author="([^"]*)")?>>>\n'
    for found in re.finditer(rf"{opening}(.*?)\n<<<END UNTRUSTED {ours}>>>", text, re.DOTALL):
        yield Region(found[1], found[2] or "", found[3])


def defuse(text: str, marker: str) -> tuple[str, int]:
    """(`text` with forged fence lines and markers defused, the number of them, which rule PI-11 reports)."""
    text, count = _FORGED.subn(lambda match: "‹" * len(match[0]), text)
    if marker:
        text, copies = re.subn(re.escape(marker), "[marker]", text, flags=re.IGNORECASE)
        count += copies
    return text, count


def _label(text: str) -> str:
    return '"' + _UNSAFE.sub("_", " ".join(text.split())[:LABEL]) + '"'
