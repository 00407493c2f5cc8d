"""Text as GitLab takes it: titles with `Draft: `, lengths, and nothing in it that GitLab would carry out.

A line `/close` or `/assign @x` in a note or a description is a *quick action*: GitLab does it with the rights of the
account that wrote it.  What we write quotes models and people, so such lines are made plain text.  Pure functions.
"""

from __future__ import annotations

import re

from agent.forge.marks import hidden, hidden_in

MAX_NOTE = 1_000_000
MAX_DESCRIPTION = 1_048_576
MAX_TITLE = 255
DRAFT = "Draft: "
CUT = "\n\n… cut: GitLab takes no more. The whole text is in the task's folder."
_ACTION = re.compile(r"^([ \t]*)/(?=[A-Za-z_])", re.MULTILINE)
_ANY_DRAFT = re.compile(r"^(?:\s*(?:draft:|\[draft\]|\(draft\)))+\s*", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(```|~~~)")


def plain(text: str) -> str:
    """`text` without quick actions and lone surrogates.  In prose a backslash stands before the slash and is not seen;
    in a code block, where it would be, the line moves by a space."""
    lines, fence = [], ""
    for line in text.encode("utf-8", "replace").decode().replace("\0", "\ufffd").split("\n"):
        if match := _FENCE.match(line):
            fence = "" if fence == match[1] else fence or match[1]
        lines.append(_ACTION.sub(r"\1 /" if fence else r"\1\/", line) if "/" in line else line)
    return "\n".join(lines)


def fit(text: str, limit: int) -> str:
    """Plain text of at most `limit` characters; a cut keeps the hidden marker."""
    text = plain(text)
    if len(text) <= limit:
        return text
    mark = hidden_in(text)
    tail = f"{CUT}\n\n{hidden(mark)}" if mark else CUT
    return text[: limit - len(tail)] + tail


def title(text: str, *, draft: bool) -> str:
    """One line; a draft is a title that begins with `Draft: `."""
    line = bare(" ".join(text.encode("utf-8", "replace").decode().split())) or "Untitled"
    room = MAX_TITLE - len(DRAFT)
    line = line if len(line) <= room else f"{line[: room - 1]}…"
    return f"{DRAFT}{line}" if draft else line


def bare(text: str) -> str:
    """A title without what marks a draft."""
    return _ANY_DRAFT.sub("", text)
