"""Prints rows for a person: as a Rich table on a terminal, as aligned text in a pipe.

Every cell of a table is sanitised and put on one line. Widths of columns are numbers of terminal cells; a Japanese
character takes two.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

from agent.security.terminal import strip_terminal_controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table

    from agent.cli.config_and_output import CliState

STYLES = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "running": "cyan",
    "completed": "green",
    "failed": "bold red",
    "paused": "yellow",
    "error": "red",
    "cut": "yellow",
    "masked": "yellow",
}
"""Text of a cell → the colour of the cell."""

INDENT = 4
"""The number of spaces before each line but the first of a folded text; a value that follows its name is indented to
its own beginning instead."""

LEAST_CUT, BETWEEN = 8, 3
"""LEAST_CUT is the least width in terminal cells of a shortened column, as long as another column can be left out;
BETWEEN is the number of terminal cells between two columns."""

_NAME = re.compile(r"\S+(?: \S+)*? {2,}")
_WORD = re.compile(r"(?<! ) *+[^ ]+")


def cell(value: object) -> str:
    """One value of a table as text on one sanitised line."""
    return "" if value is None else " ".join(strip_terminal_controls(str(value)).split())


def cell_line(text: str) -> str:
    """One line of text, sanitised, with its spaces unchanged."""
    return strip_terminal_controls(text).replace("\n", " ").replace("\t", " ")


def console(stream: TextIO | None = None) -> Console:
    """A Rich console that does not interpret the text as mark-up."""
    from rich.console import Console

    given: Mapping[str, Any] = {"file": stream or sys.stdout, "markup": False, "highlight": False, "emoji": False}
    made = Console(**given)
    if not made.is_dumb_terminal:
        return made
    columns, lines = shutil.get_terminal_size()  # Rich would assume 80 columns for a dumb terminal
    return Console(**given, width=columns, height=lines)


def folded(text: str, width: int) -> list[str]:
    """One line of text as lines for a terminal of `width` columns, broken at spaces; a value that follows its name
    continues below its own beginning.

    A path or an address that is longer than a line is not broken, so that a person can copy it. Text of wide
    characters, which has no spaces, is broken anywhere.
    """
    from rich.cells import cell_len, chop_cells

    if cell_len(text) <= width:
        return [text]
    name = _NAME.match(text)
    indent = name.end() if name is not None and name.end() <= width // 2 else min(INDENT, width // 2)
    words: list[str] = []
    for word in _WORD.findall(text):
        is_prose = cell_len(word) > max(width - indent, len(word)) and "/" not in word
        words += chop_cells(word, width - indent) if is_prose else [word]
    made = words[:1]
    for word in words[1:]:
        is_value = cell_len(made[-1]) < indent  # True while the line has only a name and no value
        if is_value or cell_len(made[-1] + word) <= width:
            made[-1] += word
        else:
            made.append(" " * indent + word.lstrip(" "))
    return made


def print_text(state: CliState, text: str) -> bool:
    """Print one line of text, which is folded on a terminal.  Returns False when the reader has closed the pipe."""
    lines = folded(cell_line(text), console().width) if state.is_stdout_terminal else [cell_line(text)]
    return all(state.print_line(line) for line in lines)


def show(
    state: CliState,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
    spare: Sequence[int] = (),
) -> None:
    """Print a table; the columns in `right` are aligned to the right, as numbers are.

    If `cut` names columns, each row takes one line of the terminal, and the named columns are shortened.  On a narrow
    terminal the columns in `spare` are left out, in that order. With the option `--json` this function prints nothing.
    """
    if state.json:
        return
    texts = [[cell(value) for value in row] for row in rows]
    if state.is_stdout_terminal:
        out = console()
        out.print(table(headings, texts, right, cut, columns_that_fit(headings, texts, cut, spare, out.width)))
        return
    for line in aligned(headings, texts, right):
        if not state.print_line(line):
            return


def columns_that_fit(
    headings: Sequence[str], rows: Sequence[Sequence[str]], cut: Sequence[int], spare: Sequence[int], width: int
) -> list[int]:
    """The columns of a table that a terminal of `width` columns has room for: those in `spare` are left out, in that
    order, until each column in `cut` has LEAST_CUT cells."""
    from rich.cells import cell_len

    columns = [*range(len(headings))]
    sizes = [max(cell_len(line[number]) for line in (headings, *rows)) for number in columns]
    for number in spare:
        shortened = [one for one in columns if one in cut]
        whole = sum(sizes[one] for one in columns if one not in cut) + BETWEEN * len(columns)
        if width - whole >= sum(min(LEAST_CUT, sizes[one]) for one in shortened):
            break
        columns.remove(number)
    return columns


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
    columns: Sequence[int] | None = None,
) -> Table:
    """A Rich table for a terminal, made from sanitised cells; `columns` are those that are shown, by default all."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(headings))
    columns = range(len(headings)) if columns is None else columns
    for number in columns:
        whole = bool(cut) and number not in cut
        made.add_column(
            headings[number], justify="right" if number in right else "left", overflow="fold", no_wrap=whole
        )
    one_line: Mapping[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if cut else {}
    for row in rows:
        made.add_row(*(Text(row[number], style=STYLES.get(row[number], ""), **one_line) for number in columns))
    return made


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """The lines of a table in plain text; the cells of the last column are not padded."""
    from rich.cells import cell_len

    lines = [list(headings), *rows] if any(headings) else list(rows)
    widths = [max((cell_len(line[number]) for line in lines), default=0) for number in range(len(headings))]
    for line in lines:
        padded = []
        for number, text in enumerate(line):
            blank = " " * (widths[number] - cell_len(text))
            padded.append(blank + text if number in right else text + blank)
        yield "  ".join(padded).rstrip()


def facts(state: CliState, values: Mapping[str, object]) -> None:
    """Print names and values, one pair on each line; empty values are left out.

    On a terminal a long value is folded at spaces.
    """
    if state.json:
        return
    rows = [(name, cell(value)) for name, value in values.items() if cell(value)]
    out = console() if state.is_stdout_terminal else None
    for line, (_, value) in zip(aligned(("", ""), rows), rows, strict=True):
        if out is not None:
            from rich.text import Text

            for part in folded(line, out.width):
                text = Text(part)
                text.stylize(STYLES.get(value, ""), len(line) - len(value))
                out.print(text, soft_wrap=True)
        elif not state.print_line(line):
            return
