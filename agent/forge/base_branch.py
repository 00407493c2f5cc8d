"""Finds the branch from which the work on an issue starts, if the issue names one: by the first or last line of its
text (`base: NAME`), or by a label `base:NAME`.

The issues of most forges have no field for a branch, so the text or a label names it (docs/forges.md, "What users of
such agents report", row 21).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BASE = re.compile(r"[ \t]*base:[ \t]*`?([^\s`:~^?*\[\\]+)`?[ \t]*", re.IGNORECASE)


def base_of(body: str, labels: Iterable[str] = ()) -> tuple[str, str | None]:
    """Split an issue's text: (the text without the line that names the branch, the branch or None if neither text nor
    label names one)."""
    lines = body.split("\n")
    full = [number for number, line in enumerate(lines) if line.strip()]
    for number in (full[0], full[-1]) if full else ():
        if match := _BASE.fullmatch(lines[number].rstrip("\r")):
            rest = lines[:number] + lines[number + 1 :]
            return "\n".join(rest).strip("\r\n"), match[1]
    named = (match[1] for label in sorted(labels) if (match := _BASE.fullmatch(label)))
    return body, next(named, None)
