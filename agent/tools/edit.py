r"""Finds and replaces text in a file so that no other text changes.

The model sees and writes `\n`; the file may have any line ends, including mixed ones. The old text is searched for in a
view of the file that has only `\n` as line ends. The common parts at the beginning and end of old and new text are not
touched; only the part that differs is replaced, with the line end that the file has at that place. `edit.py` works on
strings; `edit_file.py` reads and writes the files.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from difflib import get_close_matches

from agent.security import invisible_characters

END = re.compile(r"\r\n|\n|\r")
HINT_LINES = 3000
HINT_WIDTH = 300


@dataclass(frozen=True, slots=True)
class Change:
    """Replaces the characters `start` to `end` of the file's text by `text`."""

    start: int
    end: int
    text: str


class NormalizedText:
    """The text of a file as the model sees it, and a mapping from positions in this view to positions in the file's own
    text."""

    def __init__(self, raw: str, *, seen_only: bool = False) -> None:
        self.raw = raw
        text = normalize_newlines(raw)
        self._pairs: list[int] = []  # positions in `text` of two-character line ends
        if "\r\n" in raw:
            self._pairs = [match.start() - count for count, match in enumerate(re.finditer("\r\n", raw))]
        self._kept: list[int] | None = None
        if seen_only:
            for line_break in invisible_characters.LINE_BREAKS:
                text = text.replace(line_break, "\n")
            text = self._seen(text)
        self.text = text

    def _seen(self, text: str) -> str:
        """`text` without the characters that `security.sanitise.output` removes; the positions of the other characters
        are stored."""
        bad = set("".join(invisible_characters.removable(text).values()))
        if not bad:  # a text without removable characters has no terminal sequences
            return text
        spans = [match.span() for match in invisible_characters.ESCAPES.finditer(text)]
        kept: list[int] = []
        position = 0
        for start, end in [*spans, (len(text), len(text))]:
            kept += [place for place in range(position, start) if text[place] not in bad]
            position = end
        self._kept = kept
        return "".join(map(text.__getitem__, kept))

    def _raw(self, position: int) -> int:
        return position + bisect_left(self._pairs, position)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The (start, end) in the file's own text that corresponds to the characters `start` to `end` of the normalized
        text."""
        if self._kept is None:
            return self._raw(start), self._raw(end)
        first = self._kept[start] if start < len(self._kept) else (self._kept[-1] + 1 if self._kept else 0)
        if start == end:
            return self._raw(first), self._raw(first)
        return self._raw(first), self._raw(self._kept[end - 1] + 1)


def normalize_newlines(text: str) -> str:
    r"""A text with `\n` as the only line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def find(raw: str, old: str, new: str) -> tuple[NormalizedText, list[int], str, str]:
    """(the file's normalized text, positions of `old` in that text, old, new) for the first form of `old` that the file
    contains; no positions if the file contains none of the forms. The forms of the text `old` are tried in this order:
    unchanged; in composed, then in decomposed Unicode form; without characters that a cleaned result does not show.
    """
    old, new = normalize_newlines(old), normalize_newlines(new)
    view = NormalizedText(raw)
    for form in (None, "NFC", "NFD"):
        was = unicodedata.normalize(form, old) if form else old
        places = _places(view.text, was)
        if places:
            return view, places, was, unicodedata.normalize(form, new) if form else new
    seen = NormalizedText(raw, seen_only=True)
    was = NormalizedText(old, seen_only=True).text
    if was and (was != old or seen.text != view.text):
        places = _places(seen.text, was)
        if places:
            return seen, places, was, NormalizedText(new, seen_only=True).text
    return view, [], old, new


def _places(text: str, wanted: str) -> list[int]:
    places = []
    position = text.find(wanted)
    while position >= 0:
        places.append(position)
        position = text.find(wanted, position + len(wanted))
    return places


def changes(view: NormalizedText, places: list[int], old: str, new: str) -> list[Change]:
    """The smallest changes that replace each occurrence of `old` by `new`; empty when `old` and `new` are equal."""
    if old == new:
        return []
    front = _common(old, new)
    back = _common(old[front:][::-1], new[front:][::-1])
    middle = new[front : len(new) - back]
    made = []
    for place in places:
        start, end = view.span(place + front, place + len(old) - back)
        made.append(
            Change(start, end, middle.replace("\n", line_end_at(view.raw, start)) if "\n" in middle else middle)
        )
    return made


def _common(one: str, other: str) -> int:
    """The length of the common beginning of two texts, found by binary search, since comparing slices is faster than
    comparing characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def line_end_at(raw: str, position: int) -> str:
    r"""The line end at `position`: the next one in the text, else the last one before, else `\n`."""
    following = END.search(raw, position)
    if following is not None:
        return following.group()
    before = max(raw.rfind("\n", 0, position), raw.rfind("\r", 0, position))
    if before < 0:
        return "\n"
    return "\r\n" if raw[before - 1 : before + 1] == "\r\n" else raw[before]


def line_number(text: str, position: int) -> int:
    r"""The number of the line at a position in a text with `\n` ends, counted from 1."""
    return text.count("\n", 0, position) + 1


def nearest(text: str, old: str) -> str:
    """The lines of `text` that are most similar to the beginning of `old`, with their numbers; "" when none is
    similar."""
    first = next((line.strip() for line in old.split("\n") if line.strip()), "")[:HINT_WIDTH]
    if not first:
        return ""
    every = text.split("\n")
    same = next((number for number, line in enumerate(every) if line.strip() == first), None)
    if same is None:
        some = {line.strip()[:HINT_WIDTH]: number for number, line in reversed(list(enumerate(every[:HINT_LINES])))}
        near = get_close_matches(first, some, n=1, cutoff=0.6)
        if not near:
            return ""
        same = some[near[0]]
    count = min(old.count("\n") + 1, 8)
    shown = "\n".join(line[:HINT_WIDTH] for line in every[same : same + count])
    return f"The nearest is at line {same + 1}:\n{shown}"
