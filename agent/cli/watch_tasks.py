"""`tasks --watch`: the list of tasks with the reasons why some wait, updated until Ctrl-C.

On a terminal the list is a table that redraws itself when something has changed; in a pipe, and on a terminal that
cannot move its cursor, one line for each task that is new or has changed; with `--json` one object per line. `tasks
--watch` only reads rows, and blocks no other process.
"""

from __future__ import annotations

import select
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agent import clock
from agent.cli import tables
from agent.cli.config_and_output import write
from agent.cli.termination import sigterm_as_exit
from agent.errors import LedgerError
from agent.security.terminal import plain_json
from agent.store.configured_ledger import is_local
from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TextIO

    from agent.cli.config_and_output import CliState
    from agent.daemon.task_reasons import Reason
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

SECONDS = 1.0
NOTES_SECONDS = 10.0
"""Seconds between two checks of the conditions that hold back all tasks (such as the disk); while a daemon runs, each
check reads every file of the program."""
FRAME = 6
"""The number of lines of the terminal that are not rows of the table: the head and the rule below it, two empty lines,
a line about older tasks, the cursor."""
MOST_NAMED = 6
"""The maximum number of tasks that a line of `waiting_lines` names."""
SEEN = ("status", "outcome", "requested", "error_code", "attempt", "llm_call_count", "tool_call_count", "branch", "url")
"""`tasks --watch` reports a task when one of these columns of its row, or the code of its reason, has changed."""


class Look(NamedTuple):
    """The data that `tasks` shows: the rows, the reasons why some tasks wait (uuid → reason), and sentences about
    conditions that hold back all tasks."""

    rows: Sequence[Row]
    reasons: Mapping[str, Reason]
    notes: Sequence[str]


def look_at(wiring: Wiring, status: str | None, limit: int | None, *, notes: bool = True) -> Look:
    """Read the data for `tasks` from the ledger once. Raises LedgerError when the ledger does not answer, UsageError
    for an unknown status."""
    from agent.daemon.task_reasons import TaskReasons

    rows = wiring.ledger.list(status, limit)
    reasons = TaskReasons(wiring.settings, wiring.ledger, wiring.owner)
    found = {row.uuid: one for row in rows if (one := reasons.find_reason(row)) is not None}
    return Look(rows, found, reasons.notes(rows) if notes else [])


def waiting_lines(look: Look) -> list[str]:
    """Lines about the reasons why tasks wait: a line for each reason, with the tasks that have it; then a line for each
    condition that holds back several tasks."""
    by_text: dict[str, list[str]] = {}
    for row in look.rows:
        if (reason := look.reasons.get(row.uuid)) is not None:
            by_text.setdefault(reason.text, []).append(row.uuid[:8])
    lines = []
    for text, uuids in by_text.items():
        if len(uuids) == 1:
            lines.append(f"{uuids[0]}: {text}")
            continue
        more = f" and {len(uuids) - MOST_NAMED} more" if len(uuids) > MOST_NAMED else ""
        lines.append(f"{len(uuids)} tasks: {text} ({', '.join(uuids[:MOST_NAMED])}{more})")
    return [*lines, *look.notes]


def can_redraw() -> bool:
    """Whether the terminal can move its cursor, so that a table can be redrawn in its place."""
    return not tables.console().is_dumb_terminal


def watch(state: CliState, status: str | None, limit: int | None, cells: Callable[[Row], Sequence[object]]) -> int:
    """Read the tasks once a second until Ctrl-C or until the reader closes the pipe; `cells` makes the cells of a
    task's table row."""
    looks = _looks(state, status, limit)
    if state.is_stdout_terminal and can_redraw():
        _table(state, looks, cells)
        return 0
    before: dict[str, dict[str, Any]] = {}
    for look in looks:
        if nobody_reads(sys.stdout):
            return 0
        for change in changes(before, look.rows, look.reasons):
            if not (write(sys.stdout, json_line(change)) if state.json else tables.print_text(state, line(change))):
                return 0
    return 0


def nobody_reads(stream: TextIO) -> bool:
    """Whether the reading end of a pipe is closed.

    A write would also detect a closed pipe, but there may be nothing to write for a long time.
    """
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(state & (select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0))


def _looks(state: CliState, status: str | None, limit: int | None) -> Iterator[Look]:
    """Yields the state of the ledger once a second: an empty one while no ledger exists, the previous one while the
    ledger cannot be read."""
    from agent.wiring.wiring import Wiring

    while not state.has_tasks():
        yield Look([], {}, [])
        clock.sleep(SECONDS)
    look, noted = Look([], {}, []), -NOTES_SECONDS
    with closing(Wiring(state.settings_to_inspect)) as wiring:
        while True:
            with_notes = clock.monotonic() - noted >= NOTES_SECONDS
            try:
                now = look_at(wiring, status, limit, notes=with_notes)
                look = now if with_notes else now._replace(notes=look.notes)
                noted = clock.monotonic() if with_notes else noted
            except LedgerError:
                pass
            yield look
            clock.sleep(SECONDS)


def changes(
    before: dict[str, dict[str, Any]], rows: Sequence[Row], reasons: Mapping[str, Reason] | None = None
) -> Iterator[dict[str, Any]]:
    """The differences between `rows` and the earlier rows `before`; `before` is updated.

    A change has `at` (the present time), `uuid`, `task`, `title`, `turns`, `was` (the previous status, None for a new
    task), the present columns of SEEN, and `why` and `waits_for` (the text and the code of the task's reason, None
    without one); for a row that is no longer listed it has only `at`, `uuid`, `was` and the `status` `gone`. A new text
    of the same reason code does not count as a change.
    """
    now = {row.uuid: row for row in rows}
    for row in sorted(rows, key=lambda row: (row.created_at, row.uuid)):
        reason = (reasons or {}).get(row.uuid)
        values = {name: getattr(row, name) for name in SEEN}
        values["waits_for"] = None if reason is None else reason.code
        known = before.get(row.uuid)
        if values == known:
            continue
        before[row.uuid] = values
        was = known["status"] if known is not None else None
        what = {"task": str(row.key), "title": row.title, "turns": row.turns}
        why = None if reason is None else reason.text
        yield {"at": clock.stamp(), "uuid": row.uuid, **what, "was": was, **values, "why": why}
    for uuid in set(before) - set(now):
        yield {"at": clock.stamp(), "uuid": uuid, "was": before.pop(uuid)["status"], "status": "gone"}


def line(change: dict[str, Any]) -> str:
    """One change of a task as one line of text."""
    moved = change["status"] if change["was"] in (None, change["status"]) else f"{change['was']} → {change['status']}"
    why = change.get("outcome") if change["status"] == "paused" else change.get("error_code")
    why = None if why == change["status"] else why
    parts = (
        change["at"][:19].replace("T", " "),
        change["uuid"],
        f"{moved}: {why}" if why else moved,
        f"{change['requested']} requested" if change.get("requested") else "",
        f"turn {change['turns']}" if change.get("turns") else "",
        change.get("task"),
        change.get("url"),
        change.get("why"),
    )
    return "  ".join(tables.cell(part) for part in parts if part)


def json_line(value: dict[str, Any]) -> str:
    """An object as one line of JSON that is safe to print."""
    return plain_json(orjson.dumps(fit_json(value), default=str).decode()) + "\n"


def _table(state: CliState, looks: Iterator[Look], cells: Callable[[Row], Sequence[object]]) -> None:
    """Show the newest state of the task list on the terminal. Nothing is written to the terminal while the text is the
    same, so the table does not flicker."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    out = tables.console()
    shown: object = None
    with sigterm_as_exit(), Live(console=out, auto_refresh=False, vertical_overflow="crop") as live:
        for look in looks:
            size = out.size
            lines = [tables.cell(text) for text in waiting_lines(look)][: max(3, size.height // 3)]
            room = max(1, size.height - len(lines) - FRAME)
            older = len(look.rows) - room
            hidden = [f"… and {older} older tasks; `tasks` lists all"] if older > 0 else []
            texts = [[tables.cell(value) for value in cells(row)] for row in look.rows[:room]]
            if (now := (size, texts, lines, hidden)) == shown:
                continue
            shown = now
            named = headings(state)
            places = columns(named)
            kept = tables.columns_that_fit(named, texts, places["cut"], places["spare"], size.width)
            table = tables.table(named, texts, right=places["right"], cut=places["cut"], columns=kept)
            told = [Text(text, no_wrap=True, overflow="ellipsis") for text in (*hidden, *lines)]
            live.update(Group(table, *told), refresh=True)


RIGHT = ("turns", "tokens", "cost")
"""Columns of the task list with numbers."""
CUT = ("task", "host", "title")
"""Columns that are shortened on a terminal that is too narrow."""
SPARE = ("turns", "tokens", "cost", "since")
"""Columns that a narrow terminal leaves out, in this order."""


def headings(state: CliState) -> tuple[str, ...]:
    """The columns of the task list; the list has a column for the cost only where a model has a price, and one for the
    host only where several hosts may share the ledger."""
    cost = [f"cost {state.settings_to_inspect.llm.currency}"] if is_priced(state) else []
    host = ["host"] if is_shared(state) else []
    return ("uuid", "status", "task", "turns", "tokens", *cost, "since", *host, "title")


def columns(named: Sequence[str]) -> dict[str, Sequence[int]]:
    """Parameter of `tables.show` (`right`, `cut`, `spare`) → positions of the columns in RIGHT, CUT or SPARE among the
    headings `named`."""
    places = {heading.split()[0]: place for place, heading in enumerate(named)}
    chosen = {"right": RIGHT, "cut": CUT, "spare": SPARE}
    return {name: [places[one] for one in names if one in places] for name, names in chosen.items()}


def is_priced(state: CliState) -> bool:
    """Whether a provider of the configuration has a price."""
    llm = state.settings_to_inspect.llm
    return any(getattr(getattr(llm, name), "price", None) is not None for name in type(llm).model_fields)


def is_shared(state: CliState) -> bool:
    """Whether several hosts may share the ledger."""
    return not is_local(state.settings_to_inspect.taskqueue.ledger, state.settings_to_inspect.plugin_guard)
