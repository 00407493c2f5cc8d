"""Describes in words which lines of a change a comment is about, for every forge.

A suggestion in a comment replaces lines: on GitHub and Forgejo the lines that the comment is about; on GitLab the first
line of the suggestion says how many lines before and after the line of the comment
(https://docs.github.com/en/pull-requests, https://docs.gitlab.com/user/project/merge_requests/reviews/suggestions/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HUNK_LINES, HUNK_SIZE = 40, 3000
"""Maximum lines and characters that are shown of the diff around a review comment; the end of the diff is shown, where
the line of the comment is."""

_SUGGESTION = re.compile(r"^ {0,3}(?:`{3,}|~{3,})suggestion(?::-(\d{1,4})\+(\d{1,4}))?[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Side:
    """A line of a change on which a review comment stands; with `removed`, `line` is the number of the line in the file
    before the change."""

    line: int
    removed: bool = False


def lines_in_words(path: str, first: Side | None, last: Side | None) -> str:
    """The place of a review comment in words: `a.py:7`, or `a.py lines 10–14 (removed lines)`; without `last` only the
    path."""
    if last is None:
        return path
    if first is None or first == last:
        return f"{path}:{last.line}{' (a removed line)' if last.removed else ''}"
    if first.removed != last.removed:
        sides = [f"{'removed ' if one.removed else ''}line {one.line}" for one in (first, last)]
        return f"{path}, {sides[0]} to {sides[1]}"
    return f"{path} lines {first.line}–{last.line}{' (removed lines)' if last.removed else ''}"


def suggestions_in_words(body: str, first: Side | None, last: Side | None) -> str:
    """The lines that the suggestions in a review comment replace, in words; "" if the comment has no suggestion, or
    stands on no line of the new file."""
    found = list(_SUGGESTION.finditer(body))
    if not found or last is None or last.removed:
        return ""
    begin = first.line if first is not None and not first.removed else last.line
    spans = [
        (begin, last.line) if one[1] is None else (max(1, last.line - int(one[1])), last.line + int(one[2]))
        for one in found
    ]
    words = [f"line {start}" if start == end else f"lines {start}–{end}" for start, end in dict.fromkeys(spans)]
    return f"its suggestion replaces {', '.join(words)}"


def shown_hunk(hunk: str) -> str:
    """The end of `hunk`, a part of a diff, cut to the maximum length; the last line of `hunk` is the line on which the
    comment stands."""
    lines = hunk.splitlines()
    kept = lines[-HUNK_LINES:]
    while len(kept) > 1 and sum(map(len, kept)) > HUNK_SIZE:
        del kept[0]
    text = "\n".join(kept)[-HUNK_SIZE:]
    return text if len(kept) == len(lines) else f"…\n{text}"
