"""The search itself: a pattern against each line of each text file below a path.

Pure of processes: `searching` runs it here for patterns that cannot backtrack, and in a child of its own (`python -m`
style, `main`) for all others, because Python's `re` cannot be interrupted and a pattern like `(a+)+$` never ends.
Lines longer than a megabyte are searched in pieces.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ToolError
from agent.tools import kinds, lines
from agent.tools.glob import matcher
from agent.tools.outputs import blocks
from agent.tools.reading import SAMPLE, line_end, look
from agent.tools.text import decode, detect, lenient
from agent.tools.tree import Tree, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PIECE = 1 << 20
SHOWN = 300  # characters of a matching line
MEMORY = 1 << 30
_LONGEST = 1000


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, or a ToolError that says where it is wrong."""
    if len(pattern) > _LONGEST:
        raise ToolError(f"the pattern has {len(pattern)} characters; at most {_LONGEST} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern {pattern!r} is not a regular expression: {error}. "
            r"For plain text put \ before . * + ? ( ) [ ] { } | ^ $"
        ) from error


def around(text: str, start: int, end: int) -> str:
    """A line shortened around the match."""
    if len(text) <= SHOWN:
        return text
    left = max(0, min(start - SHOWN // 3, len(text) - SHOWN))
    right = min(len(text), max(left + SHOWN, min(end, left + 2 * SHOWN)))
    before = f"[…{left:,} characters…] " if left else ""
    after = f" […{len(text) - right:,} characters…]" if right < len(text) else ""
    return f"{before}{text[left:right]}{after}"


def search(
    tree: Tree, pattern: str, path: str, glob: str | None, limit: int, seconds: float, emit: Callable[[str], None]
) -> str:
    """Emit `path:line: text` for each matching line, at most `limit`; returns a note on what was left out, or ""."""
    expression = compiled(pattern)
    fits = matcher(glob) if glob else None
    deadline = clock.monotonic() + seconds
    left_out: list[str] = []
    binary = found = 0
    late = f"stopped after {seconds:g} s: give a narrower path or glob"
    start = tree.relative(path)
    if tree.is_folder(path):
        names: Iterable[str] = (entry.path for entry in tree.walk(path, left_out) if entry.kind == "file")
    else:
        names = [start]
    below = len(start) + 1 if start else 0
    for name in names:
        if fits is not None and name != start and not (fits(name) or (below and fits(name[below:]))):
            continue
        if clock.monotonic() > deadline:
            return late
        try:
            with tree.open(name, known=True) as descriptor:
                text = _lines_of(descriptor)
                if text is None:
                    binary += 1
                    continue
                for number, line in enumerate(text, 1):
                    if number % 4096 == 0 and clock.monotonic() > deadline:
                        return late
                    piece, match = line.head, expression.search(line.head)
                    if match is None and line.missing:
                        piece, match = line.tail, expression.search(line.tail)
                    if match is None:
                        continue
                    if found == limit:
                        return f"only the first {limit} matches: give a narrower pattern, path or glob"
                    found += 1
                    emit(f"{name_of(name)}:{number}: {around(piece, match.start(), match.end())}")
        except ToolError:
            if name == start:
                raise
            left_out.append(name)
    notes = [f"{binary} binary file{'s' if binary > 1 else ''} skipped"] if binary else []
    if left_out:
        notes.append(
            f"not searched: {', '.join(name_of(one) for one in left_out[:5])}{' …' if len(left_out) > 5 else ''}"
        )
    return "; ".join(notes)


def _lines_of(descriptor: int) -> Iterable[lines.Line] | None:
    """The lines of a file, None for a binary one.  A small file, as most are, is read and decoded at once."""
    block = os.pread(descriptor, SAMPLE, 0)
    if len(block) == SAMPLE:
        form, kind = look(descriptor, os.fstat(descriptor).st_size)
        if kind is not None:
            return None
        chunks = lines.decoded(blocks(descriptor, len(form.bom) if form else 0), form)
        return lines.split(chunks, keep=PIECE, end=line_end(descriptor, form))
    if kinds.binary_kind(block) is not None:
        return None
    form = detect(block)
    text = decode(block, form) if form else lenient(block)
    end = "\r" if "\r" in text and "\n" not in text else "\n"
    every = text.split(end)
    if not every[-1]:
        every.pop()
    return (lines.Line(line.removesuffix("\r")) for line in every)


def main() -> None:
    """The child: a request as JSON on stdin, `{"match"}`, `{"note"}` or `{"error"}` a line on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = json.load(sys.stdin)

    def say(**record: str) -> None:
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()

    tree = Tree(Path(request.pop("root")))
    try:
        say(note=search(tree, **request, emit=lambda line: say(match=line)))
    except ToolError as error:
        say(error=str(error))
    except MemoryError:
        say(error="the pattern needs too much memory; give a simpler one")
