"""Rates of words that make prose hard to read, per 1,000 words; `scripts/prose --help` names the options.

Counted are comments and docstrings of `agent/`, by room, and the pages (README, ARCHITECTURE, AGENTS, docs/), by page.
Code in backticks, addresses and fenced examples are neither words nor hits.  `[tool.prose]` of pyproject.toml has the
limits that `scripts/check` holds for `agent/` as a whole, and the goal.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import source_text
from .source_text import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from .source_text import Block

_BE = r"\b(?:am|is|are|was|were|be|been|being)(?:n['’]t)?"
_ADVERB = r"(?:\s+(?:not|no\s+longer|never|only|also|always|then|still|already|once|both|all|[a-z]+ly))?"

GROUPS = {
    "who": re.compile(r"\b(?:whoever|whatever|whose)\b", re.IGNORECASE),
    "told": re.compile(r"\b(?:told|said|heard|kept|words|stands|mends)\b", re.IGNORECASE),
    "is_told": re.compile(rf"{_BE}{_ADVERB}\s+(?:told|asked|kept)\b", re.IGNORECASE),
}
"""What is counted and held.  A hit of `is_told` is one of `told` as well, unless it is `asked`."""

ANY_FORM = re.compile(
    r"\b(?:told|tells?|telling|said|says?|saying|heard|hears?|hearing|kept|keeps?|keeping|words?|stands?|stood|standing"
    r"|mends?|mended|mending)\b",
    re.IGNORECASE,
)
"""The words of `told` in every form.  Shown and not held: it shows whether they were only put into another tense."""

TOTAL, PAGES, TOP = "agent", "pages", "top"


@dataclass(frozen=True)
class Hit:
    """A word or two of a group, and the line of the file that holds the first."""

    path: str
    line: int
    group: str
    words: str


@dataclass(frozen=True)
class Rates:
    """Words of a place, and its hits per 1,000 of them by group; `any_form` likewise."""

    words: int
    groups: dict[str, float]
    any_form: float


def hits(block: Block) -> Iterator[Hit]:
    """Each hit of each group in a block."""
    text = source_text.without_code(block.text)
    for group, pattern in GROUPS.items():
        for found in pattern.finditer(text):
            yield Hit(block.path, block.line_at(found.start()), group, " ".join(found[0].split()))


def rates(blocks: Iterable[Block]) -> Rates:
    """The rates of some blocks together; 0 where there are no words."""
    words, forms, counted = 0, 0, Counter[str]()
    for block in blocks:
        words += source_text.words(block.text)
        forms += len(ANY_FORM.findall(source_text.without_code(block.text)))
        counted.update(hit.group for hit in hits(block))
    per = 1000 / max(words, 1)
    return Rates(words, {group: counted[group] * per for group in GROUPS}, forms * per)


def places(root: Path = ROOT) -> dict[str, list[Block]]:
    """The blocks of each place: `top` (agent/*.py), each room of agent/, and each page by its path."""
    found: dict[str, list[Block]] = {}
    for path in [*source_text.modules(root), *source_text.pages(root)]:
        parts = path.relative_to(root).parts
        room = (
            (TOP if len(parts) == 2 else parts[1]) if parts[0] == "agent" and path.suffix == ".py" else "/".join(parts)
        )
        found.setdefault(room, []).extend(source_text.blocks(path, root))
    return found


def of_agent(found: dict[str, list[Block]]) -> list[Block]:
    """The blocks of `agent/` among those of all places."""
    return [block for blocks in found.values() for block in blocks if block.path.startswith("agent/")]


def selected(found: dict[str, list[Block]], place: str) -> list[Block]:
    """Blocks of a room, of `top`, `agent` or `pages`, or below a path from the root or from agent/; [] for none."""
    every = [block for blocks in found.values() for block in blocks]
    if place in found:
        return found[place]
    if place in (TOTAL, PAGES):
        return [block for block in every if block.path.startswith("agent/") is (place == TOTAL)]
    below = place.rstrip("/")
    return [
        block
        for block in every
        if any(block.path == start or block.path.startswith(f"{start}/") for start in (below, f"agent/{below}"))
    ]


def over(measured: Rates, limits: dict[str, float], name: str, where: str) -> list[str]:
    """A line for each group whose rate is above its limit, and for each one that has no limit."""
    lines = []
    for group, rate in measured.groups.items():
        if group not in limits:
            lines.append(f"{group}: pyproject.toml has no number for it in [tool.prose] {where}; add one")
        elif rate > limits[group]:
            lines.append(
                f"{group}: {rate:.2f} per 1,000 words in {name}, {where} allows {limits[group]:g} (pyproject.toml, "
                f"[tool.prose]); `scripts/prose --hits PLACE` lists what to rewrite"
            )
    return lines


def slack(measured: Rates, limits: dict[str, float]) -> list[str]:
    """A line for each limit that can be lower: limits are rates rounded up to a tenth."""
    found = []
    for group, rate in measured.groups.items():
        least = math.ceil(round(rate * 10, 6)) / 10
        if limits.get(group, 0) > least:
            found.append(
                f"{group}: {rate:.2f} now; lower its limit from {limits[group]:g} to {least:g} in pyproject.toml"
            )
    return found


def sample(blocks: Iterable[Block], number: int, seed: str) -> list[str]:
    """`number` sentences drawn at random, the same for the same seed and texts; all of them where there are fewer."""
    every = [(block.path, line, text) for block in blocks for line, text in source_text.sentences(block)]
    drawn = random.Random(seed).sample(every, min(number, len(every)))
    return [f"{path}:{line}: {text}" for path, line, text in drawn]


def table(found: dict[str, list[Block]], settings: dict[str, dict[str, float]]) -> str:
    """The rates of every place, with totals, limits and goal."""
    head = ["per 1,000 words", "words", *GROUPS, "any form"]
    rooms = [name for name, blocks in found.items() if blocks and blocks[0].path.startswith("agent/")]
    rows = [_row(name, rates(found[name])) for name in sorted(rooms)]
    rows.append(_row(TOTAL, rates(of_agent(found))))
    rows += [[name, "", *(f"{settings[name].get(group, math.nan):.2f}" for group in GROUPS), ""] for name in settings]
    rest = [name for name in found if name not in rooms]
    rows += [_row(name, rates(found[name])) for name in rest]
    rows.append(_row(PAGES, rates(block for name in rest for block in found[name])))
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in [head, *rows]
    )


def _row(name: str, measured: Rates) -> list[str]:
    numbers = [*measured.groups.values(), measured.any_form]
    return [name, f"{measured.words:,}", *(f"{number:.2f}" for number in numbers)]


def settings_of(root: Path = ROOT) -> dict[str, dict[str, float]]:
    """`[tool.prose]` of pyproject.toml: `limits` and `goal`, each a number for every group."""
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return {name: dict(tools.get("prose", {}).get(name, {})) for name in ("limits", "goal")}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print what is asked for; 1 when `--check` or `--goal` finds a rate over its number, 2 for an unknown place."""
    parser = argparse.ArgumentParser(prog="scripts/prose", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="print only rates of agent/ over their limit; exit 1 then")
    parser.add_argument("--goal", action="store_true", help="compare the rates of agent/ with the goal; exit 1 if over")
    parser.add_argument(
        "--hits", metavar="PLACE", help="list hits of a room, a page, a path, `top`, `agent` or `pages`"
    )
    parser.add_argument("--sample", metavar="N", type=int, help="print N sentences of agent/ drawn at random")
    parser.add_argument("--seed", metavar="S", default="0", help="another seed draws other sentences (default 0)")
    given = parser.parse_args(arguments)
    found, settings = places(root), settings_of(root)
    if given.hits is not None:
        return _print_hits(found, given.hits, root)
    if given.sample is not None:
        print("\n".join(sample(of_agent(found), given.sample, given.seed)))
    elif given.check or given.goal:
        measured = rates(of_agent(found))
        which = "goal" if given.goal else "limits"
        lines = over(measured, settings[which], "agent/", which)
        for line in lines or slack(measured, settings["limits"]):
            print(line)
        return 1 if lines else 0
    else:
        print(table(found, settings))
    return 0


def _print_hits(found: dict[str, list[Block]], place: str, root: Path) -> int:
    chosen = selected(found, place)
    if not chosen:
        print(f"prose: there is no {place!r}; known are {', '.join(found)}, or a path", file=sys.stderr)
        return 2
    lines: dict[str, list[str]] = {}
    for hit in sorted((hit for block in chosen for hit in hits(block)), key=lambda hit: (hit.path, hit.line)):
        text = lines.setdefault(hit.path, (root / hit.path).read_text(encoding="utf-8").split("\n"))
        print(f"{hit.path}:{hit.line}: {hit.group}: {hit.words} | {text[hit.line - 1].strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
