"""Searches a pattern in each line of each text file below a path.

The code of the search is the same in any process: `search_text.py` runs it in its own process for patterns that cannot
backtrack, and in a child process (`main`) for all others, because Python's `re` cannot be interrupted and a pattern
like `(a+)+$` may never end. A line of over four million characters is searched in pieces that overlap by 65,536: a
longer match may be missed there, and the result says so.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ToolError
from agent.filetree import printable
from agent.globs import matcher
from agent.tools import file_types, lines
from agent.tools.encodings import decode, decode_lenient, detect
from agent.tools.outputs import blocks
from agent.tools.read_file import SAMPLE, detect_file, line_end
from agent.tools.work_tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PIECE = 1 << 22  # number of characters of a long line that are searched at once
OVERLAP = 1 << 16
SHOWN = 300  # characters of a long matching line that are shown, twice as many for a long match
MEMORY = 1 << 30
_LONGEST = 1000


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern; raises ToolError, with the fault of the pattern, if it is invalid or longer than
    _LONGEST."""
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


def around(piece: lines.Piece, start: int, end: int) -> str:
    """The line, shortened to the text around its match."""
    text, before = piece.text, piece.before
    if len(text) <= SHOWN and piece.ends and not before:
        return text
    left = max(0, min(start - SHOWN // 3, len(text) - SHOWN))
    right = min(len(text), max(left + SHOWN, min(end, left + 2 * SHOWN)))
    head = f"[…{left + before:,} characters…] " if left + before else ""
    more = "" if piece.ends else "more than "
    tail = f" […{more}{len(text) - right:,} characters…]" if right < len(text) or more else ""
    return f"{head}{text[left:right]}{tail}"


def match_in(expression: re.Pattern[str], piece: lines.Piece) -> re.Match[str] | None:
    """The first match in a piece, None without one; `^` and `$` match only at the ends of the whole line, not of the
    piece."""
    start = 1 if piece.before else 0
    match = expression.search(piece.text, start)
    if match is None or piece.ends or match.end() < len(piece.text):
        return match
    return expression.search(f"{piece.text}\0", start)


def search(
    tree: Tree, pattern: str, path: str, glob: str | None, limit: int, seconds: float, emit: Callable[[str], None]
) -> str:
    """Emit `path:line: text` for each matching line, at most `limit`; returns a note on what was omitted, or ""."""
    expression = compiled(pattern)
    fits = matcher(glob) if glob else None
    deadline = clock.monotonic() + seconds
    left_out: list[str] = []
    binary = found = long_lines = 0
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
                parts = _pieces_of(descriptor)
                if parts is None:
                    binary += 1
                    continue
                # Number of the last line with a match in this file; further pieces of that line are not searched.
                seen = 0
                for count, piece in enumerate(parts, 1):
                    if (count % 4096 == 0 or not piece.ends) and clock.monotonic() > deadline:
                        return late
                    if not piece.ends and not piece.before:
                        long_lines += 1
                    if piece.number == seen:
                        continue
                    match = match_in(expression, piece)
                    if match is None:
                        continue
                    if found == limit:
                        return f"only the first {limit} matches: give a narrower pattern, path or glob"
                    found, seen = found + 1, piece.number
                    emit(f"{printable(name)}:{piece.number}: {around(piece, match.start(), match.end())}")
        except ToolError:
            if name == start:
                raise
            left_out.append(name)
    notes = [f"{binary} binary file{'s' if binary > 1 else ''} skipped"] if binary else []
    if long_lines:
        said = "1 line was" if long_lines == 1 else f"{long_lines:,} lines were"
        notes.append(f"{said} searched in pieces: a match of over {OVERLAP:,} characters may be missing")
    if left_out:
        notes.append(
            f"not searched: {', '.join(printable(one) for one in left_out[:5])}{' …' if len(left_out) > 5 else ''}"
        )
    return "; ".join(notes)


def _pieces_of(descriptor: int) -> Iterable[lines.Piece] | None:
    """The lines of a file, None for a binary file. A small file is read and decoded as a whole, a large file in
    pieces."""
    block = os.pread(descriptor, SAMPLE, 0)
    if len(block) == SAMPLE:
        form, kind = detect_file(descriptor, os.fstat(descriptor).st_size)
        if kind is not None:
            return None
        chunks = lines.decoded(blocks(descriptor, len(form.bom) if form else 0), form)
        return lines.pieces(chunks, size=PIECE, overlap=OVERLAP, end=line_end(descriptor, form))
    if file_types.binary_kind(block) is not None:
        return None
    form = detect(block)
    text = decode(block, form) if form else decode_lenient(block)
    end = "\r" if "\r" in text and "\n" not in text else "\n"
    every = text.split(end)
    if not every[-1]:
        every.pop()
    return (lines.Piece(number, line.removesuffix("\r")) for number, line in enumerate(every, 1))


def main() -> None:
    """The child process: it reads a request as JSON from stdin, and writes `{"match"}`, `{"note"}` or `{"error"}` per
    line to stdout. The signal SIGPROF ends the process when its CPU time reaches the number `seconds` in the request,
    since Python code cannot look at the clock during a match."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])

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
