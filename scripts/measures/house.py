"""How well the repository reads to a stranger, as figures with goals; `scripts/measure_house PART` lists one figure.

Two of the figures are not for a machine: whether the name of a module tells what is in it, and whether a sentence is
understood without the code.  For these it prints a sheet on which a reader judges.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import grimp

from . import citations, source_text, syntax
from .source_text import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from .citations import Broken

HANDLER = {
    "agent/worker/handler.py": "the way of a task, step by step",
    "agent/worker/preparation.py": "prepare: issue, sandbox, work tree, publisher",
    "agent/worker/delivery.py": "deliver: commit, push, draft, check, ready",
    "agent/worker/end_of_attempt.py": "close: the row is closed, paused or released",
}
"""What a reader opens after the loop to follow `TaskHandler.handle` to the end of a task, with the step that each is.
They hold the order of the steps and of their outside effects.  Every other module of the room answers how one call of
them is done; its name and docstring say what it does, and one need not open it (`REACHED` counts them all)."""

BY_ERROR = {
    "agent/worker/error_disposition.py": "the table: which error does what to a task",
    "agent/worker/end_by_error.py": "how that is carried out",
}
"""What else he opens where an error ends the task."""

REACHED = "agent.worker.handler"
"""The modules of its room that this one imports, directly or not, are counted beside the others: an upper bound."""

PATH_LINES, HANDLER_LINES, OWN_ERRORS = 700, 1000, 90.0
"""The goals that are not 0."""
DRAWN = 70
"""Sentences on the sheet."""
COMMON = 30
"""How many of the names with the most definitions are listed."""


@dataclass
class House:
    """The repository below `root`, each part read once, when it is asked for."""

    root: Path = ROOT

    @cached_property
    def modules(self) -> syntax.Modules:
        return syntax.parsed(source_text.modules(self.root), self.root)

    @cached_property
    def raised(self) -> list[syntax.Raise]:
        return list(syntax.raises(self.modules))

    @cached_property
    def cited(self) -> list[Broken]:
        """Broken citations of the program and its pages, then those of tests and scripts; one for a line."""
        folders = [path for path in sorted((self.root / "agent").rglob("*")) if path.suffix in (".sql", ".j2")]
        read = [*source_text.modules(self.root), *folders, *source_text.pages(self.root), *self._aside()]
        found = (
            one for path in read for block in source_text.blocks(path, self.root) for one in citations.broken(block)
        )
        lines: dict[tuple[str, int], Broken] = {}
        for one in found:
            lines.setdefault((one.path, one.line), one)
        return list(lines.values())

    def _aside(self) -> Iterator[Path]:
        for path in (*sorted((self.root / "tests").rglob("*.py")), *sorted((self.root / "scripts").rglob("*.py"))):
            if not {"peers", "cases", "measures", "node_modules"} & set(path.relative_to(self.root).parts):
                yield path

    def reading_path(self) -> dict[str, int]:
        """Lines of what a newcomer reads: README, ARCHITECTURE, and the modules that ARCHITECTURE names in front of its
        first heading.  ValueError when it names none."""
        first = re.split(r"(?m)^## ", (self.root / "ARCHITECTURE.md").read_text(encoding="utf-8"))[0]
        named = re.findall(r"`(agent/[\w/]+\.py)`", first)
        if not named:
            raise ValueError(
                "ARCHITECTURE.md names no `agent/….py` before its first heading; it names the path to read there"
            )
        return self.lines(["README.md", "ARCHITECTURE.md", *named])

    def lines(self, paths: Iterable[str]) -> dict[str, int]:
        """How many lines each file has.  FileNotFoundError when one is not there."""
        return {path: len((self.root / path).read_bytes().splitlines()) for path in paths}

    def reached(self) -> list[str]:
        """The files of the room of `REACHED` that it imports, directly or through others, and itself."""
        graph = grimp.build_graph("agent", cache_dir=None, exclude_type_checking_imports=True)
        room = REACHED.rpartition(".")[0]
        found = {REACHED, *(one for one in graph.find_upstream_modules(REACHED) if one.startswith(f"{room}."))}
        return [f"{one.replace('.', '/')}.py" for one in sorted(found)]

    def circles(self, package: str = "agent") -> list[str]:
        """Imports that close a circle, imports in functions and for types included: those that the engine of
        import-linter would take out for the contract `acyclic_siblings`, and imports of a package by a module in it
        that the package imports, which that contract does not see."""
        graph = grimp.build_graph(package, cache_dir=None)
        rooms = [name for name in sorted(graph.modules) if graph.find_children(name) and "demo_data" not in name]
        between = [f"{room}: {a} -> {b}" for room in rooms for a, b in sorted(graph.nominate_cycle_breakers(room))]
        through = [
            f"{room}: {module} -> {room}"
            for room in rooms
            for module in sorted(graph.find_modules_that_directly_import(room))
            if module.startswith(f"{room}.") and graph.find_shortest_chain(room, module)
        ]
        return between + through

    def judged(self) -> list[syntax.Raise]:
        """The raises that count: neither raised again nor demanded by a protocol."""
        return [one for one in self.raised if one.kind in ("own", "foreign")]

    def sheet(self) -> list[str]:
        """Each module with the first sentence of its docstring."""
        rows = []
        for path, tree in self.modules.trees.items():
            said = " ".join((ast.get_docstring(tree) or "(no docstring)").split())
            rows.append(f"[ ] {path.removeprefix('agent/')}: {re.split(r'(?<=[.:]) ', said, maxsplit=1)[0]}")
        return rows


# --- the parts, as they are listed -----------------------------------------------------------------------------------


def path(house: House) -> Iterator[str]:
    """What is read, with its lines."""
    for name, lines in house.reading_path().items():
        yield f"{lines:6,} {name}"
    for title, chain in (("to follow the handler", HANDLER), ("where an error ends the task", BY_ERROR)):
        yield f"then, {title}:"
        for name, lines in house.lines(chain).items():
            yield f"{lines:6,} {name}: {chain[name]}"
    yield "left out, since the call says what they do:"
    for name, lines in house.lines(one for one in house.reached() if one not in HANDLER | BY_ERROR).items():
        yield f"{lines:6,} {name}"


def names(house: House) -> Iterator[str]:
    """The sheet of module names."""
    yield "Mark each module whose name does not tell what is in it.  No program can judge that."
    yield from house.sheet()


def sentences(house: House) -> Iterator[str]:
    """The sheet of sentences, drawn by `scripts/prose`; SEED in the environment draws others."""
    yield "Mark each sentence that is not understood without the code.  No program can judge that."
    command = [str(house.root / "scripts" / "prose"), "--sample", str(DRAWN), "--seed", os.environ.get("SEED", "0")]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True)
    yield from (f"[ ] {line}" for line in drawn.stdout.splitlines())


def cited(house: House) -> Iterator[str]:
    """Broken citations."""
    for one in house.cited:
        yield f"{one.path}:{one.line}: {one.why}"


def circles(house: House) -> Iterator[str]:
    """Imports that close circles."""
    yield from house.circles()


def errors(house: House) -> Iterator[str]:
    """Raises that are not of own errors, by class; then those that are not counted, and why."""
    titles = {
        "foreign": "not own",
        "demanded": "not counted, a protocol demands them",
        "again": "not counted, raised again",
    }
    for kind, title in titles.items():
        found = [one for one in house.raised if one.kind == kind]
        yield f"{title}: {len(found)}"
        for what, places in syntax.by_class(found).items():
            yield f"{len(places):5} {what or '(alone)'}"
            if kind == "foreign":
                yield from (f"          {one.path}:{one.line}" for one in places)


def callables(house: House) -> Iterator[str]:
    """Parameters that are callables, lambdas, functions in functions."""
    for title, found in syntax.callables(house.modules).items():
        yield f"{title}: {len(found)}"
        yield from (f"      {name}:{line}: {text}" for name, line, text in found)


def definitions(house: House) -> Iterator[str]:
    """The names with the most definitions, and where they are."""
    for name, found in list(syntax.definitions(house.modules).items())[:COMMON]:
        rooms = Counter("/".join(where.split("/")[1:2]) for where, _ in found)
        yield f"{len(found):4} {name}: {', '.join(f'{room} {count}' for room, count in rooms.most_common())}"


PARTS: dict[str, Callable[[House], Iterator[str]]] = {
    "path": path,
    "names": names,
    "sentences": sentences,
    "citations": cited,
    "circles": circles,
    "errors": errors,
    "callables": callables,
    "definitions": definitions,
}


def table(house: House) -> list[tuple[str, str, str]]:
    """(measure, figure, goal) of everything."""
    reading, handler, by_error = house.reading_path(), house.lines(HANDLER), house.lines(BY_ERROR)
    room = sum(house.lines(house.reached()).values())
    inside = [one for one in house.cited if not one.path.startswith(("tests/", "scripts/"))]
    judged = house.judged()
    own = sum(one.kind == "own" for one in judged)
    counts = [len(found) for found in syntax.callables(house.modules).values()]
    common = list(syntax.definitions(house.modules).items())[:COMMON]
    return [
        ("path: lines to read before the loop is clear", f"{sum(reading.values()):,}", f"<= {PATH_LINES:,}"),
        (
            "path: the same with the handler followed to its end",
            f"{sum((reading | handler).values()):,}",
            f"<= {HANDLER_LINES:,}",
        ),
        ("path: and where an error ends the task", f"{sum((reading | handler | by_error).values()):,}", ""),
        ("path: all modules of worker/ that the handler imports", f"{room:,}", ""),
        ("names: modules whose name does not tell", f"of {len(house.modules.trees)}", "a reader judges"),
        ("sentences: not understood without the code", f"of {DRAWN} drawn", "a reader judges"),
        ("citations: lines that cite what is not here", f"{len(inside)}", "0"),
        ("citations: the same in tests and scripts", f"{len(house.cited) - len(inside)}", "0"),
        ("circles: imports that close one", f"{len(house.circles())}", "0"),
        (
            "errors: own ones among raises",
            f"{own} of {len(judged)}, {100 * own / max(len(judged), 1):.1f} %",
            f">= {OWN_ERRORS:g} %",
        ),
        ("callables: parameters / lambdas / nested functions", " / ".join(map(str, counts)), ""),
        (f"definitions: of the {COMMON} most common names", f"{sum(len(found) for _, found in common)}", ""),
    ]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the table, or the parts that are named."""
    parser = argparse.ArgumentParser(
        prog="scripts/measure_house", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"list what is behind a figure: {', '.join(PARTS)}")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; known are {', '.join(PARTS)}")
    house = House(root)
    for name in given.parts:
        print("\n".join(PARTS[name](house)))
    if not given.parts:
        rows = table(house)
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for measure, figure, goal in rows:
            print(f"{measure:<{widths[0]}}  {figure:>{widths[1]}}  {goal}".rstrip())
        print("The word before the colon lists what is behind a figure: scripts/measure_house names errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
