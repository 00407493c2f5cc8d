"""Shortens the plan, the open question and the lists of files to a budget of tokens that they share.

Open items of the plan take precedence over done items, and newer paths over older ones. Of the items that do not fit
into the budget, only the number is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.context.carry_over_text import lines_of
from agent.store.storable_text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.values import Json

    Count = Callable[[str], int]

DONE = frozenset(("done", "completed", True))
_WIDTHS = (400, 240, 160, 100, 60, 40)
"""The widths in characters to which items of the plan may be cut; the first width with which all open items fit is
used."""

_NUMBERS = re.compile(r" \(\+\d+ -\d+\)$|, \+\d+ -\d+(?=\)$)|, binary(?=\)$)")

HEADING = 6
"""The number of tokens that a heading counts."""


def fit_state(plan: Any, question: str, changed: Sequence[str], read: Sequence[str], room: int, count: Count) -> Json:
    """The plan, the question and the paths as `{"plan", "question", "changed", "read"}`, shortened so that all together
    have about `room` tokens as `count` counts.

    Paths are ordered from the oldest to the newest, in the arguments and in the result.
    """
    found: Json = {}
    left = room
    # the question and each item are put on one line, so that no text looks like a heading
    question = " ".join(question.split())
    plan = [_on_one_line(item) for item in plan] if isinstance(plan, list) else plan
    if question:
        found["question"] = fit_text(question, max(left // 3, left - _cost(count, plan, changed, read)), count)
        left -= _tokens(found["question"], count)
    if plan:
        most = left if not changed and not read else max(left * 6 // 10, left - _cost(count, changed, read))
        found["plan"] = fit_plan(plan, most, count)
        left -= _tokens(found["plan"], count)
    if changed:
        most = left if not read else max(left * 8 // 10, left - _cost(count, read))
        found["changed"] = fit_paths(changed, most, count)
        left -= _tokens(found["changed"], count)
    if read:
        found["read"] = fit_paths(read, left, count)
    return {key: value for key, value in found.items() if value}


def _cost(count: Count, *values: Any) -> int:
    """The tokens of several texts, with a heading for each."""
    return sum(_tokens(value, count) for value in values if value)


def _tokens(value: Any, count: Count) -> int:
    return count(lines_of(value)) + HEADING


def fit_text(text: str, room: int, count: Count) -> str:
    """The beginning and end of a text, cut until they have at most `room` tokens or about 20 characters."""
    text = replace_surrogates(text).strip()
    size = len(text)
    shown = text
    while size > 20 and count(shown) > room:
        size = size * 3 // 4
        shown = f"{text[: size * 2 // 3]} […] {text[len(text) - size // 3 :]}"
    return shown


def fit_plan(plan: Any, room: int, count: Count) -> Any:
    """The unchanged plan if it fits; else its open items, cut to one width, and the number of the other items."""
    if not isinstance(plan, list):
        return fit_text(str(plan), room, count)
    if _tokens(plan, count) <= room:
        return plan
    opened = [item for item in plan if not _is_done(item)]
    done = len(plan) - len(opened)
    counted = [f"({done} done before)"] if done else []
    for width in _WIDTHS:
        shown = [_narrow(item, width) for item in opened]
        if _tokens([*shown, *counted], count) <= room:
            return [*shown, *counted]
    kept = [_narrow(item, _WIDTHS[-1]) for item in opened]
    while kept and _tokens([*kept, f"({len(opened) - len(kept)} more open)", *counted], count) > room:
        kept.pop()
    return [*kept, f"({len(opened) - len(kept)} more open)", *counted]


def _is_done(item: Any) -> bool:
    return isinstance(item, dict) and (item.get("status") in DONE or item.get("done") is True)


def _on_one_line(item: Any) -> Any:
    return _narrow(item, 1 << 30)


def _narrow(item: Any, width: int) -> Any:
    if isinstance(item, str):
        return _short(item, width)
    if not isinstance(item, dict):
        return item
    return {key: _short(value, width) if isinstance(value, str) else value for key, value in item.items()}


def _short(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def fit_paths(paths: Sequence[str], room: int, count: Count) -> list[str]:
    """The unchanged paths if they fit; else the paths without the numbers of changed lines; else one line for each
    folder; else only the newest paths and the number of the others.

    A path in the list may be followed by a remark in parentheses.
    """
    if _tokens(list(paths), count) <= room:
        return list(paths)
    plain = [_NUMBERS.sub("", path) for path in paths]
    if _tokens(plain, count) <= room:
        return plain
    for kept in _halves(len(plain)):
        rest = len(plain) - kept
        shown = [*([f"({rest} older ones)"] if rest else []), *folded(plain[rest:])]
        if _tokens(shown, count) <= room or not kept:
            break
    return shown


def _halves(number: int) -> Iterable[int]:
    """Yields how many items to try to show, from `number` down to 0, with smaller steps at smaller numbers."""
    while number:
        yield number
        number = min(number - 1, number * 7 // 8)
    yield 0


def folded(paths: Sequence[str]) -> list[str]:
    """One line for each folder, such as `src/app/: a.py, b.py`, with the folders in the order of their newest path."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        name, bracket, remark = path.partition(" (")
        folder, slash, base = name.rpartition("/")
        names = folders.pop(folder + slash, [])
        folders[folder + slash] = [*names, base + bracket + remark]
    return [f"{folder}: {', '.join(names)}" if folder else ", ".join(names) for folder, names in folders.items()]
