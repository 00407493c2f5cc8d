"""Merges lines of the previous summary into a new summary that lacks some names of the previous one, section by
section.

The names of a summary are its paths, identifiers, ids, numbers and short quotations (`identifiers.py`).  Lines of the
previous summary with missing names are inserted below their heading if the new summary has the same heading, otherwise
at the top below a copy of their heading.  A line of the previous summary that the new one contains already is not
inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.window.identifiers import names_in, present_in, values_in, weights
from agent.window.summary_check import SECTIONS, TOLERANCE, BadSummary
from agent.window.text_structure import TextLine, body_lines, parse_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    Count = Callable[[str], int]

KEPT_SHARE = 0.75
"""A new summary that contains at least this share of the previous summary's names, by weight, is used even if no line
of the previous one fits in addition."""
HALF = 0.5
"""If a new summary contains less than the share HALF of the previous summary's names, it counts as worse than the
previous one, which then stays whole if it fits."""


def merge_missing(before: str, text: str, budget: int, count: Count) -> str:
    """Combine a new summary (`text`) with the previous one (`before`), so that few names are lost.

    If `text` lacks no name of the previous summary, or that summary has fewer than SECTIONS names, the result is
    `text`. If `text` contains enough names (KEPT_SHARE), lines of the previous summary with missing names are added as
    far as they fit into `budget` tokens. If `text` contains fewer names than KEPT_SHARE demands, candidates are tried,
    first within the budget, then within the budget and its tolerance: all lines of both summaries (only if `text` has
    less than HALF of the names), then the whole `text` with those lines of the previous summary that contain missing
    names. If no candidate fits, the result is the previous summary, or those of its lines that are needed for the
    names, with the first lines of `text`. If `text` contains fewer names than KEPT_SHARE demands, and has only lines of
    the previous summary, the result is the previous summary. Raises BadSummary if nothing with enough names fits.
    """
    weight = weights([*names_in(before), *values_in(before)])
    known = present_in(weight, text)
    if len(weight) < SECTIONS or not (lost := weight.keys() - known):
        return text
    enough = KEPT_SHARE * sum(weight.values())
    lines = parse_lines(before)
    lacking = {name: weight[name] for name in lost}

    def worth(words: str) -> float:
        return sum(weight[name] for name in present_in(weight, words))

    has = sum(weight[name] for name in known)
    if has >= enough:
        return _with_lines(lines, lacking, text, budget, count)
    most = int(budget * TOLERANCE)
    said = {line.text for line in lines}
    if all(line in said for line in body_lines(text)):
        return before
    worse = has < HALF * sum(weight.values())
    for room in (budget, most):
        if worse and count(both := merge_lines(lines, range(len(lines)), text)) <= room:
            return both
        if worth(both := _with_lines(lines, lacking, text, room, count)) >= enough:
            return both
    choices: list[Collection[int]] = [range(len(lines))]
    if not worse:
        choices.append(_lines_with(lines, weight, most, count, enough))
    for older in choices:
        room = most - count(merge_lines(lines, older, ""))
        if (start := _first_lines(text, room, count)) and worth(both := merge_lines(lines, older, start)) >= enough:
            return both
    raise BadSummary(f"it names {len(known)} of {len(weight)} names of the summary before")


def merge_lines(lines: list[TextLine], kept: Collection[int], text: str) -> str:
    """Add to `text` the lines of the previous summary that have a number in `kept`, each below its heading."""
    said = {line.strip() for line in text.splitlines()}
    own = {_key(line): line.text for line in parse_lines(text) if line.kind == "heading"}
    above: list[str] = []
    below: dict[str, list[str]] = {}
    heading: TextLine | None = None
    headed: TextLine | None = None
    for number, line in enumerate(lines):
        if line.kind == "heading":
            heading = line
        elif number in kept and line.text.strip() not in said:
            if heading is not None and _key(heading) in own:
                below.setdefault(_key(heading), []).append(line.text)
                continue
            if heading is not None and heading is not headed:
                above.append(heading.text)
                headed = heading
            above.append(line.text)
    return "\n".join([*above, *([""] if above and text else []), *_filled(text, own, below)]).strip("\n")


def _filled(text: str, own: Mapping[str, str], below: Mapping[str, list[str]]) -> Iterable[str]:
    """The lines of `text`; the lines in `below` are inserted after the heading that is their key."""
    keys = {heading: key for key, heading in own.items()}
    left = dict(below)
    for line in text.splitlines():
        yield line
        yield from left.pop(keys.get(line, ""), ())
    for rest in left.values():
        yield from rest


def _with_lines(lines: list[TextLine], weight: Mapping[str, float], text: str, room: int, count: Count) -> str:
    """Add to `text` those lines of the previous summary that have the highest `weight` of names and fit into `room`
    tokens; returns `text` itself if none fits.

    The headings of the added lines need tokens too, and only the merged text shows how many.
    """
    left = room - count(text)
    while left > 0:
        both = merge_lines(lines, _lines_with(lines, weight, left, count), text)
        if (over := count(both) - room) <= 0:
            return both
        left -= over
    return text


def _key(line: TextLine) -> str:
    return " ".join(line.content.casefold().split())


def _lines_with(
    lines: list[TextLine], weight: Mapping[str, float], room: int, count: Count, enough: float | None = None
) -> set[int]:
    """The numbers of the lines that have the highest weight of names and fit into `room` tokens.

    No more lines are chosen once the names in the chosen lines have the weight `enough`; None means the weight of all
    names.
    """
    found = {number: set(present_in(weight, line.text)) for number, line in enumerate(lines) if line.kind != "heading"}
    chosen: set[int] = set()
    missing = set(weight)
    left = sum(weight.values()) if enough is None else enough
    while left > 0 and found:
        gains = {number: sum(weight[name] for name in names & missing) for number, names in found.items()}
        number = max(gains, key=gains.__getitem__)
        if not (gained := found.pop(number) & missing):
            break
        if (tokens := count(lines[number].text) + 1) <= room:
            room -= tokens
            chosen.add(number)
            missing -= gained
            left -= sum(weight[name] for name in gained)
    return chosen


def _first_lines(text: str, room: int, count: Count) -> str:
    """The first lines of `text` that fit into `room` tokens; "" if they are only headings."""
    kept: list[str] = []
    for line in text.splitlines():
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    found = "\n".join(kept).strip()
    return found if any(True for _ in body_lines(found)) else ""
