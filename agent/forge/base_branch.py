"""The branch that an issue asks to start from: a line `base: NAME`, first or last of its text, or a label `base:NAME`.

For forges whose issues have no field for it (field facts: row 21).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BASE = re.compile(r"[ \t]*base:[ \t]*`?([^\s`:~^?*\[\\]+)`?[ \t]*", re.IGNORECASE)


def base_of(body: str, labels: Iterable[str] = ()) -> tuple[str, str | None]:
    """(body without the line, branch or None)."""
    lines = body.split("\n")
    full = [number for number, line in enumerate(lines) if line.strip()]
    for number in (full[0], full[-1]) if full else ():
        if match := _BASE.fullmatch(lines[number].rstrip("\r")):
            rest = lines[:number] + lines[number + 1 :]
            return "\n".join(rest).strip("\r\n"), match[1]
    named = (match[1] for label in sorted(labels) if (match := _BASE.fullmatch(label)))
    return body, next(named, None)
