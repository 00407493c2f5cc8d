"""The summary before, beside a new one that has lost some of what it named: one text, section by section.

What a summary names is its paths, identifiers, ids, numbers and short quotations (`names.py`).  Lines of the summary
before that hold what was lost stand below the heading that the new one has too, else above it below their own; nothing
is said twice.  Called by `summary.py` for each summary that `judge.py` takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.window.judge import SECTIONS, TOLERANCE, BadSummary
from agent.window.names import named, names_in, values_in, weights
from agent.window.sections import Line, bodies, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    Count = Callable[[str], int]

KEPT_SHARE = 0.75
"""Of what the summary before names, by weight, that the new one has; with less it is not used alone."""
HALF = 0.5
"""With less than this the new one is a worse summary, and the one before stays whole where there is room."""


def beside(before: str, text: str, budget: int, count: Count) -> str:
    """`text`, with what it lacks of the summary before, `before`.

    A text that has enough gets lines of the summary before as far as `budget` tokens go.  For another the first of
    these is taken that fits in the budget, and if none does in its tolerance: all lines of both, where it has less than
    half; its own with those of the summary before that hold what was lost.  Then come all of the summary before, or
    what is needed of it, and the first lines of `text`.  BadSummary where nothing fits.
    """
    weight = weights([*names_in(before), *values_in(before)])
    known = named(weight, text)
    if len(weight) < SECTIONS or not (lost := weight.keys() - known):
        return text
    enough = KEPT_SHARE * sum(weight.values())
    lines = parsed(before)
    lacking = {name: weight[name] for name in lost}

    def worth(words: str) -> float:
        return sum(weight[name] for name in named(weight, words))

    has = sum(weight[name] for name in known)
    if has >= enough:
        return _with_lines(lines, lacking, text, budget, count)
    most = int(budget * TOLERANCE)
    said = {line.text for line in lines}
    if all(line in said for line in bodies(text)):
        return before
    worse = has < HALF * sum(weight.values())
    for room in (budget, most):
        if worse and count(both := merged(lines, range(len(lines)), text)) <= room:
            return both
        if worth(both := _with_lines(lines, lacking, text, room, count)) >= enough:
            return both
    choices: list[Collection[int]] = [range(len(lines))]
    if not worse:
        choices.append(_lines_with(lines, weight, most, count, enough))
    for older in choices:
        room = most - count(merged(lines, older, ""))
        if (start := _first_lines(text, room, count)) and worth(both := merged(lines, older, start)) >= enough:
            return both
    raise BadSummary(f"it names {len(known)} of {len(weight)} names of the summary before")


def merged(lines: list[Line], kept: Collection[int], text: str) -> str:
    """The lines of the summary before whose numbers are in `kept`, and `text`; each below its heading."""
    said = {line.strip() for line in text.splitlines()}
    own = {_key(line): line.text for line in parsed(text) if line.kind == "heading"}
    above: list[str] = []
    below: dict[str, list[str]] = {}
    heading: Line | None = None
    headed: Line | None = None
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
    """The lines of `text`, those of `below` behind the heading of their key."""
    keys = {heading: key for key, heading in own.items()}
    left = dict(below)
    for line in text.splitlines():
        yield line
        yield from left.pop(keys.get(line, ""), ())
    for rest in left.values():
        yield from rest


def _with_lines(lines: list[Line], weight: Mapping[str, float], text: str, room: int, count: Count) -> str:
    """`text` with the lines of the summary before that have the most of `weight`, in `room` tokens; `text` itself where
    none fits.  The headings of these lines take room too, and only the merged text shows how much."""
    left = room - count(text)
    while left > 0:
        both = merged(lines, _lines_with(lines, weight, left, count), text)
        if (over := count(both) - room) <= 0:
            return both
        left -= over
    return text


def _key(line: Line) -> str:
    return " ".join(line.content.casefold().split())


def _lines_with(
    lines: list[Line], weight: Mapping[str, float], room: int, count: Count, enough: float | None = None
) -> set[int]:
    """The numbers of the lines with the most of the names in `weight`, in `room` tokens, until they have `enough` of
    them, None for all."""
    found = {number: set(named(weight, line.text)) for number, line in enumerate(lines) if line.kind != "heading"}
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
    """The lines of `text` from its beginning that fit in `room` tokens, "" when there is no entry among them."""
    kept: list[str] = []
    for line in text.splitlines():
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    found = "\n".join(kept).strip()
    return found if any(True for _ in bodies(found)) else ""
