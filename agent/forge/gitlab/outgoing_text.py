"""Prepares text for GitLab: adds `Draft: ` to titles, limits the length, and escapes quick actions.

A line `/close` or `/assign @x` in a note or a description is a *quick action*: GitLab executes it with the rights of
the author.  Texts that this program posts quote models and people, so lines that look like quick actions are escaped.
All functions in `outgoing_text.py` are pure.
"""

from __future__ import annotations

import re
from itertools import islice

from agent.forge.base import UNTITLED
from agent.forge.markers import hidden_in, hide
from agent.security.inert_text import parts

MAX_NOTE = 1_000_000
MAX_DESCRIPTION = 1_048_576
MAX_TITLE = 255
DRAFT = "Draft: "
CUT = "\n\n… cut: GitLab takes no more. The whole text is in the task's folder."
_ACTION = re.compile(r"^([ \t]*)/(?=[\w-]+(?:\s|$))", re.MULTILINE)
_LEFT_OUT = re.compile(r"^```.+?\n```$|^<[^>\n]+?>\n.+?\n</[^>\n]+?>$|^>>>\n.+?\n>>>$", re.MULTILINE | re.DOTALL)
"""Parts of a text in which GitLab recognises no quick actions: lib/gitlab/quick_actions/extractor.rb,
`EXCLUSION_REGEX`."""
MOST_OPENINGS = 20
"""If more than this number of code blocks begin in a text, no part of the text counts as code, since the search for the
end of each block would scan the rest of the text."""
_OPENING = re.compile(r"^(?:```|<[^>\n]*+>$|>>>$)", re.MULTILINE)

_ANY_DRAFT = re.compile(r"^(?:\s*(?:draft:|\[draft\]|\(draft\)))+\s*", re.IGNORECASE)


def escape_quick_actions(text: str) -> str:
    """`text` in which quick actions are escaped, and unpaired surrogates and NUL are replaced.

    A quick action gets a backslash before its slash. A block of code stays unchanged, so that a patch in the block can
    be applied, if both Markdown and GitLab's parser of quick actions treat the block as code; if only one of them
    treats it as code, quick actions in the block get the backslash too. GitLab removes carriage returns before it
    searches for quick actions, so `escape_quick_actions` first replaces carriage returns by line feeds.
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


def truncate(text: str, limit: int) -> str:
    """`text` after the escapes of `escape_quick_actions`, cut to at most `limit` characters; a text that was cut still
    contains its hidden marker."""
    text = escape_quick_actions(text)
    if len(text) <= limit:
        return text
    mark = hidden_in(text)
    tail = f"{CUT}\n\n{hide(mark)}" if mark else CUT
    # the cut may turn `/close/x` into the quick action `/close`; one character is left for a backslash
    head = text[: limit - len(tail) - 1]
    return escape_quick_actions(head) + tail


def draft_title(text: str, *, draft: bool) -> str:
    """`text` as a merge request's title on one line and of at most MAX_TITLE characters, with the prefix `Draft: ` for
    a draft."""
    line = without_draft(" ".join(text.encode("utf-8", "replace").decode().split())) or UNTITLED
    room = MAX_TITLE - len(DRAFT)
    line = line if len(line) <= room else f"{line[: room - 1]}…"
    return f"{DRAFT}{line}" if draft else line


def without_draft(text: str) -> str:
    """A title without the prefixes (`Draft:`) by which GitLab recognises a draft."""
    return _ANY_DRAFT.sub("", text)
