"""Text from outside, marked as data for a model.

The marker is random, one per run, kept in the task's metadata.json: text that was written before the run cannot know
it.  It helps a model to tell data from instructions and is no wall (security facts, 4.2); the walls are elsewhere.
"""

from __future__ import annotations

import re
import secrets as _random

_FORGED = re.compile(r"(?<!<)<{2,}+(?=\s{0,99}(?:END\s{1,99})?UNTRUSTED\b)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.,:;@#/+() -]")


def new_marker() -> str:
    """24 hexadecimal digits: 96 bits."""
    return _random.token_hex(12)


def fence(text: str, marker: str, *, source: str, author: str | None = None) -> str:
    """`text` between two lines that only this run can write.

    `source` ("issue #3", "file README.md") and `author` are shortened to one harmless line.  What looks like such a
    line inside, with any marker, and the marker itself are made harmless, so that there is exactly one region.
    """
    harmless, _ = defuse(text, marker)
    before, behind = edges(marker, source=source, author=author)
    return f"{before}\n{harmless}\n{behind}"


def edges(marker: str, *, source: str, author: str | None = None) -> tuple[str, str]:
    """The two lines of a fence, for a text that is written in pieces; each piece goes through `defuse`."""
    by = f" author={_label(author)}" if author else ""
    return f"<<<UNTRUSTED {marker} source={_label(source)}{by}>>>", f"<<<END UNTRUSTED {marker}>>>"


def defuse(text: str, marker: str) -> tuple[str, int]:
    """`text` in which nothing can be taken for a fence, and how many forgeries there were (PI-11)."""
    text, count = _FORGED.subn(lambda match: "‹" * len(match[0]), text)
    if marker:
        text, copies = re.subn(re.escape(marker), "[marker]", text, flags=re.IGNORECASE)
        count += copies
    return text, count


def _label(text: str) -> str:
    return '"' + _UNSAFE.sub("_", " ".join(text.split()))[:200] + '"'
