"""Makes the title and text of a task's pull request, and preserves what people have written into it.

The program's own part of the text is between two hidden markers; the text outside of them belongs to people and is not
changed. A task that continues in an open pull request preserves the summaries of earlier tasks, so that the text
contains all of them. The title of a pull request is changed only if nobody else has changed it: a third marker in the
text has the digest of the title that this program has set. The functions of `pull_text.py` have no side effects
(docs/forges.md, "The pull request").
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent.forge.markers import hide, marker
from agent.values import Public

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT, SUMMARY, TITLE = "text", "summary", "title-"
"""Names of the markers in the text of a pull request; the marker at the end of a part has the part's name and
`-end`."""
TITLE_SEEN = 200
"""The number of characters of a title that the digest covers, since hosts may cut longer titles."""
TRIES = 8
"""Maximum number of times that `fitted` makes a text shorter; more than one try is needed, because cleaning may make
the text longer again."""

_ID = r"([A-Za-z0-9._-]+)"
_PART = re.compile(rf"<!-- makimono:{_ID}:{TEXT} -->")
_PART_END = re.compile(rf"<!-- makimono:{_ID}:{TEXT}-end -->\n?")
_SUMMARY = re.compile(rf"<!-- makimono:{_ID}:{SUMMARY} -->\n")
_SUMMARY_END = re.compile(rf"\n<!-- makimono:{_ID}:{SUMMARY}-end -->")
_TITLE = re.compile(rf"<!-- makimono:{_ID}:{TITLE}([0-9a-f]{{12}}) -->")
_UNMARKED = re.compile(r"task `[0-9a-f-]{36}`</sub>\Z")
"""Matches the end of the last line in a pull request's text by an older version of this program, which wrote no
markers; the line also contains `<sub>`."""
_UNMARKED_LENGTH = len(f"task `{'-' * 36}`</sub>")


def marks(uuid: str, name: str) -> tuple[str, str]:
    """The hidden markers at the beginning and end of a part of a pull request's text."""
    return hide(marker(uuid, name)), hide(marker(uuid, f"{name}-end"))


def title_of(text: str) -> str:
    """The digest by which this program recognises a title that it has set."""
    seen = " ".join(text.split())[:TITLE_SEEN]
    return blake2b(seen.encode("utf-8", "replace"), digest_size=6).hexdigest()


def is_own_title(title: str, body: str | None) -> bool:
    """Whether this program has set `title`, by the digest in the text `body` of the pull request; True if the text has
    no digest."""
    known = _TITLE.search(body or "")
    return known is None or known[2] == title_of(title)


def summaries(body: str | None, uuid: str) -> list[str]:
    """The parts of the text with the summaries of tasks other than `uuid`, with their markers, oldest first."""
    text = _lines(body)
    ends: dict[str, list[re.Match[str]]] = {}
    for end in _SUMMARY_END.finditer(text):
        ends.setdefault(end[1], []).append(end)
    found, seen = [], 0
    for begin in _SUMMARY.finditer(text):
        of_it = ends.get(begin[1], [])
        after = bisect_left(of_it, begin.end(), key=re.Match.start)
        if begin.start() < seen or after == len(of_it):
            continue
        seen = of_it[after].end()
        if begin[1] != uuid:
            found.append(text[begin.start() : seen])
    return found


def merged(body: str | None, part: str, uuid: str, title: str) -> Public:
    """The text of the pull request, with `part` as the program's own part; `body` is its present text, None or "" if
    there is none.  `title` is the title that is set together with the text; if it is "", the digest in the present text
    stays."""
    begin, end = marks(uuid, TEXT)
    known = _TITLE.search(body or "")
    digest = title_of(title) if title else known[2] if known else title_of("")
    ours = f"{begin}\n{part.strip()}\n{end}\n{hide(marker(uuid, f'{TITLE}{digest}'))}\n"
    old = _TITLE.sub("", _lines(body))
    first = _PART.search(old)
    last = None if first is None else deque(_PART_END.finditer(old, first.end()), maxlen=1)
    if first and last:
        before, after = old[: first.start()], old[last[0].end() :]
    else:
        before, after = ("" if _is_unmarked(old) else old), ""
    around = (before.rstrip(), ours.rstrip(), after.strip())
    return Public("\n\n".join(text for text in around if text) + "\n")


def _is_unmarked(text: str) -> bool:
    line = text.rstrip().rpartition("\n")[2]
    return "<sub>" in line and _UNMARKED.search(line[-_UNMARKED_LENGTH:]) is not None


def _lines(body: str | None) -> str:
    return (body or "").replace("\r\n", "\n")


def closed(text: str) -> str:
    """Close a code block that `text` leaves open, since what is put after the text would become a part of the block."""
    fence = ""
    for line in text.splitlines():
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if found is None:
            continue
        if not fence:
            fence = "" if found[1][0] == "`" and "`" in found[2] else found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"{text.rstrip()}\n{fence}" if fence else text


def fitted(render: Callable[[str], str], words: str, room: int, note: str) -> str:
    """The text `render(words)`; if it has more than `room` characters, `words` (the model's own text) is cut until the
    text fits, at most TRIES times, and `note` is put after the rest of `words`.

    The end of the whole text, which has the branch, the result of the check and the closing keyword, is not cut. If the
    template alone is longer than `room`, the returned text is too long."""
    keep = len(words)
    text = render(closed(words))
    for _ in range(TRIES):
        if len(text) <= room or keep <= 0:
            break
        keep = max(0, keep - (len(text) - room) - len(note))
        text = render(closed(words[:keep]) + note)
    return text
