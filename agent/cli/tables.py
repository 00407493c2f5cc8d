"""Prints rows for a person: as a Rich table on a terminal, as aligned text in a pipe.

Every cell of a table is sanitised and put on one line. Widths of columns are numbers of terminal cells; a Japanese
character takes two.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from agent.security.terminal import plain

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


def cell(value: object) -> str:
    """One value of a table as text on one sanitised line."""
    return "" if value is None else " ".join(plain(str(value)).split())


def cell_line(text: str) -> str:
    """One line of text, sanitised, with its spaces unchanged."""
    return plain(text).replace("\n", " ").replace("\t", " ")


def console(stream: TextIO | None = None) -> Console:
    """A Rich console that does not interpret the text as mark-up."""
    from rich.console import Console

    return Console(file=stream or sys.stdout, markup=False, highlight=False, emoji=False)


def show(
    state: CliState,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
) -> None:
    """Print a table; the columns in `right` are aligned to the right, as numbers are.

    If `cut` names columns, each row takes one line of the terminal, and the named columns are shortened.  With `--json`
    nothing is printed.
    """
    if state.json:
        return
    texts = [[cell(value) for value in row] for row in rows]
    if state.is_stdout_terminal:
        _rich(headings, texts, right, cut)
        return
    for line in aligned(headings, texts, right):
        if not state.print_line(line):
            return


def _rich(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], cut: Sequence[int] = ()
) -> None:
    console().print(table(headings, rows, right, cut))


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), cut: Sequence[int] = ()
) -> Table:
    """A Rich table for a terminal, made from sanitised cells."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(headings))
    for number, heading in enumerate(headings):
        whole = bool(cut) and number not in cut
        made.add_column(heading, justify="right" if number in right else "left", overflow="fold", no_wrap=whole)
    one_line: Mapping[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if cut else {}
    for row in rows:
        made.add_row(*(Text(text, style=STYLES.get(text, ""), **one_line) for text in row))
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

    A long value is not folded, so that a path can be copied.
    """
    if state.json:
        return
    rows = [(name, cell(value)) for name, value in values.items() if cell(value)]
    for line, (_, value) in zip(aligned(("", ""), rows), rows, strict=True):
        if state.is_stdout_terminal:
            from rich.text import Text

            style = STYLES.get(value, "")
            text = Text(line)
            text.stylize(style, len(line) - len(value))
            console().print(text, soft_wrap=True)
        elif not state.print_line(line):
            return
