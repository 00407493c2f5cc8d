"""Text as GitLab takes it: titles with `Draft: `, lengths, and nothing in it that GitLab would carry out.

A line `/close` or `/assign @x` in a note or a description is a *quick action*: GitLab does it with the rights of the
account that wrote it.  What we write quotes models and people, so such lines are made plain text.  Pure functions.
"""

from __future__ import annotations

import re
from itertools import islice

from agent.forge.marks import hidden, hidden_in
from agent.security.inert import parts

MAX_NOTE = 1_000_000
MAX_DESCRIPTION = 1_048_576
MAX_TITLE = 255
DRAFT = "Draft: "
CUT = "\n\n… cut: GitLab takes no more. The whole text is in the task's folder."
_ACTION = re.compile(r"^([ \t]*)/(?=[\w-]+(?:\s|$))", re.MULTILINE)
_LEFT_OUT = re.compile(r"^```.+?\n```$|^<[^>\n]+?>\n.+?\n</[^>\n]+?>$|^>>>\n.+?\n>>>$", re.MULTILINE | re.DOTALL)
"""What GitLab looks for no quick actions in: lib/gitlab/quick_actions/extractor.rb, `EXCLUSION_REGEX`."""
MOST_OPENINGS = 20
"""Above this nothing is taken for code: the end of each is looked for to the end of the text."""
_OPENING = re.compile(r"^(?:```|<[^>\n]*+>$|>>>$)", re.MULTILINE)

_ANY_DRAFT = re.compile(r"^(?:\s*(?:draft:|\[draft\]|\(draft\)))+\s*", re.IGNORECASE)


def plain(text: str) -> str:
    """`text` without quick actions and lone surrogates.

    A backslash before the slash.  A block of code stays as it is where both Markdown and GitLab's own reader of quick
    actions take it for one (a patch in it can be applied); where they differ, the backslash is seen in it.  GitLab
    takes carriage returns out before it looks, so they go first.
    """
    text = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if _ACTION.search(text) is None:
        return text
    few = next(islice(_OPENING.finditer(text), MOST_OPENINGS, None), None) is None
    left_out = {found.span() for found in _LEFT_OUT.finditer(text)} if few else set()
    done, position = [], 0
    for part, is_code in parts(text):
        code = is_code and (position, position + len(part.rstrip("\n"))) in left_out
        done.append(part if code else _ACTION.sub(r"\1\\/", part))
        position += len(part)
    return "".join(done)


def fit(text: str, limit: int) -> str:
    """Plain text of at most `limit` characters; a cut keeps the hidden marker."""
    text = plain(text)
    if len(text) <= limit:
        return text
    mark = hidden_in(text)
    tail = f"{CUT}\n\n{hidden(mark)}" if mark else CUT
    head = text[: limit - len(tail) - 1]  # the cut may make an action of `/close/x`, and its backslash needs room
    return plain(head) + tail


def title(text: str, *, draft: bool) -> str:
    """One line; a draft is a title that begins with `Draft: `."""
    line = bare(" ".join(text.encode("utf-8", "replace").decode().split())) or "Untitled"
    room = MAX_TITLE - len(DRAFT)
    line = line if len(line) <= room else f"{line[: room - 1]}…"
    return f"{DRAFT}{line}" if draft else line


def bare(text: str) -> str:
    """A title without what marks a draft."""
    return _ANY_DRAFT.sub("", text)
