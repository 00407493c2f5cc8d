"""`tasks --watch`: the list of tasks, updated until Ctrl-C.

On a terminal the list is a table that redraws itself; in a pipe one line for each task that is new or has changed; with
`--json` one object per line.  The command only reads rows, and blocks no other process.
"""

from __future__ import annotations

import select
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.cli import tables
from agent.cli.config_and_output import write
from agent.errors import LedgerError
from agent.security.terminal import plain_json
from agent.store.ledgers import is_local
from agent.store.storable_text import fit_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from agent.cli.config_and_output import CliState
    from agent.taskqueue import Row

    Rows = Callable[[], Sequence[Row]]

SECONDS = 1.0
SEEN = ("status", "outcome", "requested", "error_code", "attempt", "llm_call_count", "tool_call_count", "branch", "url")
"""`tasks --watch` reports a task when one of these columns of its row has changed."""


def watch(state: CliState, status: str | None, limit: int | None, cells: Callable[[Row], Sequence[object]]) -> int:
    """Read the tasks once a second until Ctrl-C or until the reader closes the pipe; `cells` makes the cells of a
    task's table row."""
    looks = _looks(state, status, limit)
    if state.is_stdout_terminal:
        _table(state, looks, cells)
        return 0
    before: dict[str, dict[str, Any]] = {}
    for rows in looks:
        if nobody_reads(sys.stdout):
            return 0
        for change in changes(before, rows):
            text = _json(change) if state.json else line(change)
            if not write(sys.stdout, text + "\n"):
                return 0
    return 0


def nobody_reads(stream: TextIO) -> bool:
    """Whether the reading end of a pipe is closed.

    A write would also detect a closed pipe, but there may be nothing to write for a long time.
    """
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(state & (select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0))


def _looks(state: CliState, status: str | None, limit: int | None) -> Iterator[Sequence[Row]]:
    """The rows of the ledger, once a second: no rows while there is no ledger, the previous rows while the ledger is
    busy."""
    from agent.wiring.wiring import Wiring

    while not state.has_tasks():
        yield []
        clock.sleep(SECONDS)
    rows: Sequence[Row] = []
    with closing(Wiring(state.settings_to_inspect)) as wiring:
        while True:
            try:
                rows = wiring.ledger.list(status, limit)
            except LedgerError:
                pass
            yield rows
            clock.sleep(SECONDS)


def changes(before: dict[str, dict[str, Any]], rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The differences between `rows` and `before`; `before` is updated.

    A change has `uuid`, `task`, `title`, `turns`, `was` (the previous status, None for a new task), and the present
    columns of SEEN; `status` is `gone` for a row that is no longer listed.
    """
    now = {row.uuid: row for row in rows}
    for row in sorted(rows, key=lambda row: (row.created_at, row.uuid)):
        values = {name: getattr(row, name) for name in SEEN}
        known = before.get(row.uuid)
        if values == known:
            continue
        before[row.uuid] = values
        was = known["status"] if known is not None else None
        what = {"task": str(row.key), "title": row.title, "turns": row.turns}
        yield {"at": clock.stamp(), "uuid": row.uuid, **what, "was": was, **values}
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
    )
    return "  ".join(tables.cell(part) for part in parts if part)


def _json(change: dict[str, Any]) -> str:
    return plain_json(orjson.dumps(fit_json(change), default=str).decode())


def _table(state: CliState, looks: Iterator[Sequence[Row]], cells: Callable[[Row], Sequence[object]]) -> None:
    from rich.live import Live

    with Live(console=tables.console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        for rows in looks:
            texts = [[tables.cell(value) for value in cells(row)] for row in rows]
            live.update(tables.table(headings(state), texts, right=(3, 4), cut=CUT), refresh=True)


CUT = (2, 6, 7)
"""Columns that are shortened on a terminal."""


def headings(state: CliState) -> tuple[str, ...]:
    """Columns of the list of tasks; there is a column for the host only where several hosts may share the ledger."""
    columns = ("uuid", "status", "task", "turns", "tokens", "since")
    return (*columns, "host", "title") if is_shared(state) else (*columns, "title")


def is_shared(state: CliState) -> bool:
    """Whether several hosts may share the ledger."""
    return not is_local(state.settings_to_inspect.taskqueue.ledger, state.settings_to_inspect.plugin_guard)
