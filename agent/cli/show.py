"""The command `show`: the outcome of one task first, then its last turns; `show --watch` updates this output.

Without `--full` only the ends of the task's files are read (`commands/turns.py`), so a task of any length is shown at
once.  `--full` and `--json` print every record (`commands/timeline.py`).
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent import clock
from agent.cli import tables
from agent.cli.app import app
from agent.cli.config_and_output import require_folder_of, write
from agent.cli.daemon import Uuid  # noqa: TC001 - typer evaluates the annotations at run time
from agent.cli.tasks_request_config import costed, display_time
from agent.cli.termination import sigterm_as_exit
from agent.cli.watch_tasks import SECONDS, can_redraw, json_line, nobody_reads
from agent.errors import LedgerError, UsageError
from agent.values import CLOSED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.cli.config_and_output import CliState
    from agent.commands.timeline import Timeline, TimelineEntry
    from agent.commands.turns import Between, LastTurns, ToolCall, Turn
    from agent.daemon.task_reasons import Reason
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

    Line = tuple[str, str]
    """A line of text and the style in which it is printed."""

WIDE = 120
"""The minimum width in columns of a terminal on which an entry of a task's timeline and its text share one line."""

MOST_SAID = 600
"""The maximum characters of the model's summary or question that `show` prints above the turns."""


@app.command()
def show(
    context: typer.Context,
    uuid: Uuid,
    full: Annotated[bool, typer.Option("--full", help="Every record of the task, not only the last turns.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Follow the task until it has ended; in a pipe print a line for each change."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the whole task, without the log, as one HTML page to FILE instead."
        ),
    ] = None,
) -> int:
    """Show the result of one task: its state and what can be done next, then its turns with their tool calls."""
    from agent.commands.timeline import timeline
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    if full + watch + (html is not None) > 1:
        raise UsageError("--full prints once, --watch keeps looking, --html writes a file; give one of them")
    state.require_tasks(uuid)
    if html is not None:
        return _write_html(state, uuid, html)
    wiring = Wiring(state.settings_to_inspect)
    try:
        if watch:
            return _watch(state, wiring, wiring.ledger.resolve(uuid))
        found = timeline(state.settings_to_inspect, wiring.ledger, uuid, whole=full or state.json)
        reason = _reason(wiring, found.row)
    finally:
        wiring.close()
    if state.json:
        head = {**found.head(), "row": costed(state, found.row), **_outcome(found.row, reason)}
        state.print_json_items(head, "entries", found.entries())
    elif full:
        _print(state, _head(state, found, reason))
        _print(state, [(f"note: {note}", "") for note in found.notes])
        state.print_line()
        _entries(state, found.entries())
    else:
        _print_outcome(state, found, reason, _turns(found))
    return 0


def _print_outcome(state: CliState, found: Timeline, reason: Reason | None, turns: LastTurns) -> None:
    _print(state, _head(state, found, reason, turns.closing))
    _print(state, [(f"note: {note}", "") for note in (*found.notes, *turns.notes)])
    state.print_line()
    _print(state, list(_turn_lines(turns, found.row)), cut=True)


def _write_html(state: CliState, uuid: str, path: Path) -> int:
    from agent.dashboard.task_export import write_page

    require_folder_of(path)
    made = write_page(state.settings_to_inspect, uuid, path)
    state.print_line(f"{made.path}: {made.size:,} bytes")
    state.print_json({"path": str(made.path), "bytes": made.size})
    return 0


def _reason(wiring: Wiring, row: Row) -> Reason | None:
    from agent.daemon.task_reasons import TaskReasons

    return TaskReasons(wiring.settings, wiring.ledger, wiring.owner).find_reason(row)


def _outcome(row: Row, reason: Reason | None) -> dict[str, Any]:
    """The fields that `show --json` adds to the row: why the task waits, and what a person can do."""
    from agent.commands.next_step import next_step

    return {"why": None if reason is None else asdict(reason), "next": next_step(row, reason)}


def _turns(found: Timeline) -> LastTurns:
    from agent.commands.turns import LastTurns, last_turns

    return LastTurns() if found.folder is None else last_turns(found.folder)


# --- the outcome ----------------------------------------------------------------------------------------------


def _head(state: CliState, found: Timeline, reason: Reason | None, said: str = "") -> list[Line]:
    """The outcome and the facts of a task as lines of text; the outcome comes first."""
    from agent.commands.next_step import next_step
    from agent.wiring.private_tracker import issue_of

    row = found.row
    counted = f"{row.prompt_tokens:,} prompt ({row.cached_tokens:,} cached) + {row.completion_tokens:,} answers"
    if row.estimated_tokens:
        counted += f", {row.estimated_tokens:,} of them estimated"
    status = _status(row)
    values = {
        "status": status,
        "why": waiting_reason(row, reason),
        "said": said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…",
        "next": next_step(row, reason),
        "branch": row.branch,
        "pull request": f"{row.url or ''}{f' ({row.pull_state})' if row.pull_state else ''}",
        "cost": f"{row.cost:.4f} {state.settings_to_inspect.llm.currency}" if row.cost else "",
        "asked by": row.user,
        "title": row.title,
        "task": issue_of(state.settings_to_inspect, row.key.instance) or row.key,
        "uuid": row.uuid,
        "continues": row.parent_uuid,
        "model": f"{row.llm_provider} {row.model}" if row.model else "",
        "created": display_time(row.created_at),
        "started": display_time(row.started_at),
        "last sign": display_time(row.heartbeat_at) if found.is_live else "",
        "ended": display_time(row.completed_at),
        "process": f"{row.process_id} on {row.hostname}, attempt {row.attempt}" if found.is_live else "",
        "host": row.hostname,
        "turns": row.turns,
        "requests": row.llm_call_count,
        "tool calls": row.tool_call_count,
        "compactions": row.compression_count,
        "tokens": counted if row.total_tokens else "none reported",
        "folder": found.folder,
    }
    rows = [(name, tables.cell(value)) for name, value in values.items() if tables.cell(value)]
    styles = {"status": tables.STYLES.get(str(row.status), ""), "why": tables.STYLES.get(str(row.status), "")}
    return [(line, styles.get(name, "")) for line, (name, _) in zip(tables.aligned(("", ""), rows), rows, strict=True)]


def waiting_reason(row: Row, reason: Reason | None) -> str:
    """The reason why the task waits, or the error with which it ended, followed by the reason if there is one; "" if
    there is neither."""
    error = ": ".join(part for part in (row.error_code, row.error_message) if part)
    if row.status in CLOSED_STATUSES and error:
        return error if reason is None else f"{error}; {reason.text}"
    return "" if reason is None else reason.text


def _status(row: Row) -> str:
    """The status with the outcome, such as `completed (finished)`; a queued or running task is shown without its
    outcome, which belongs to an earlier pause, or to an end that is still to be published."""
    goes_on = row.status in ("queued", "running") or row.outcome in (None, "", row.status)
    return row.status if goes_on else f"{row.status} ({row.outcome})"


# --- the turns ------------------------------------------------------------------------------------------------


def _turn_lines(turns: LastTurns, row: Row) -> Iterator[Line]:
    """The turns of a task as lines of text: a line for each turn, one for each further tool call, one for each event
    between turns, and one about turns that are left out."""
    from agent.commands.turns import Turn

    if not turns.complete:
        yield f"earlier turns are left out; `show {row.uuid[:8]} --full` has every record", "dim"
    for one in turns.items:
        yield from _turn(one) if isinstance(one, Turn) else [_between(one)]


def _turn(turn: Turn) -> Iterator[Line]:
    tokens = ""
    if turn.prompt_tokens is not None:
        tokens = f"[{turn.prompt_tokens:,}+{turn.completion_tokens or 0:,} tk]"
    head = f"{turn.seq:>5}  {turn.at[11:19]:<8}"
    calls = list(turn.calls)
    if not turn.text and calls:
        first = calls.pop(0)
        yield _joined(head, _call(first), tokens), tables.STYLES["error"] if first.failed else ""
    else:
        yield _joined(head, turn.text or "(no text)", tokens), ""
    for call in calls:
        yield _joined(" " * 15, _call(call)), tables.STYLES["error"] if call.failed else "dim"


def _call(call: ToolCall) -> str:
    """A tool call on one line, such as `run_command make → 1,204 characters, 120 ms`."""
    told = [call.status] if call.failed else []
    told += [f"{call.size:,} characters"] if call.size is not None else []
    told += [f"{call.ms:,} ms"] if call.ms is not None else []
    about = call.about if len(call.about) <= 100 else f"{call.about[:99]}…"
    return f"{call.tool} {about}".rstrip() + f" → {', '.join(told) if told else 'no result yet'}"


def _between(one: Between) -> Line:
    style = {"compaction": "magenta", "message": "cyan", "request": tables.STYLES["error"], "effect": "dim"}[one.kind]
    return _joined(f"{'':>5}  {one.at[11:19]:<8}", f"{one.kind} {one.number}  {one.text}"), style


def _joined(head: str, *parts: str) -> str:
    return "  ".join([head, *(tables.cell(part) for part in parts if part)])


# --- output ---------------------------------------------------------------------------------------------------


def _print(state: CliState, lines: Iterable[Line], *, cut: bool = False) -> None:
    """Print the lines, on a terminal in colour and folded; with `cut` each line is cut at the terminal's width."""
    if not state.is_stdout_terminal:
        for line, _ in lines:
            if not state.print_line(line):
                return
        return
    from rich.text import Text

    out = tables.console()
    for line, style in lines:
        text = tables.cell_line(line)
        if cut:
            out.print(Text(text, style=style), no_wrap=True, overflow="ellipsis", crop=True)
            continue
        for part in tables.folded(text, out.width):
            out.print(Text(part, style=style), soft_wrap=True)


def _entries(state: CliState, entries: Iterable[TimelineEntry]) -> None:
    """Print the lines of each timeline entry while the entries are read, since a table would have to hold all entries
    of a long task; an empty line comes before each answer of the model."""
    out = tables.console() if state.is_stdout_terminal else None
    for entry in entries:
        begins = entry.kind == "message" and entry.who == "assistant"
        if out is not None:
            from rich.text import Text

            if begins:
                out.print()
            for line in entry_lines(entry, out.width):
                out.print(Text(line, style=_style(entry)), no_wrap=True, overflow="ellipsis", crop=True)
        elif (begins and not state.print_line()) or not state.print_line(entry_line(entry)):
            return


def _style(entry: TimelineEntry) -> str:
    if entry.state not in ("", "success", "ok", "intent", "receipt", "tool_calls", "stop"):
        return tables.STYLES["error"]
    styles = {"message": "", "tool": "dim", "compaction": "magenta", "summary": "magenta", "effect": "cyan"}
    return styles.get(entry.kind, "")


def entry_lines(entry: TimelineEntry, width: int) -> list[str]:
    """One entry of a task's timeline as lines for a terminal; on a narrow terminal the text of the entry is on a line
    of its own."""
    if width >= WIDE:
        return [entry_line(entry)]
    text = tables.cell(entry.text)
    return [entry_line(replace(entry, text=""), year=False), *([f"    {text}"] if text else [])]


def entry_line(entry: TimelineEntry, *, year: bool = True) -> str:
    """One entry of a task's timeline as one line of text."""
    who = f"{entry.state} {entry.who}" if entry.kind in ("tool", "effect") else entry.who
    sizes = [f"{entry.tokens:,} tk" if entry.tokens is not None else ""]
    if entry.prompt_tokens is not None:
        sizes.append(f"reported {entry.prompt_tokens:,}+{entry.completion_tokens or 0:,}")
    if entry.duration_ms is not None:
        sizes.append(f"{entry.duration_ms:,} ms")
    if entry.message is not None:
        sizes.append(f"message {entry.message}")
    size = " ".join(part for part in sizes if part)
    at = display_time(entry.at)
    parts = (at if year else at[5:], f"{entry.kind} {entry.number}", who, size, entry.text)
    wide = (19, 14, 26, 12, 0) if year else (14, 14, 20, 0, 0)
    cells = [tables.cell(part) for part in parts]
    cells[2] = cells[2] if len(cells[2]) <= wide[2] else f"{cells[2][: wide[2] - 1]}…"
    return "  ".join(f"{text:<{width}}" for text, width in zip(cells, wide, strict=True)).rstrip()


# --- watching -------------------------------------------------------------------------------------------------


class _Look:
    """The state of one task that `show --watch` read last: its row, timeline head and last turns; the files are read
    again only when one of them, the row, its reason, or the lock of its folder has changed."""

    def __init__(self, state: CliState, wiring: Wiring, uuid: str) -> None:
        self.state = state
        self.wiring = wiring
        self.uuid = uuid
        self.found: Timeline | None = None
        self.turns: LastTurns | None = None
        self.reason: Reason | None = None
        self._sizes: tuple[object, ...] = ()

    def again(self) -> bool:
        """Read the state of the task again; returns whether anything has changed. If the ledger cannot be read, the
        state counts as unchanged."""
        from agent.commands.timeline import timeline

        try:
            found = timeline(self.state.settings_to_inspect, self.wiring.ledger, self.uuid, whole=False)
            reason = _reason(self.wiring, found.row)
        except LedgerError:
            return False
        sizes = (_sizes(found.folder), found.row, found.is_live, reason)
        if sizes == self._sizes:
            return False
        self._sizes = sizes
        self.found, self.reason = found, reason
        self.turns = _turns(found)
        return True


def _sizes(folder: Path | None) -> tuple[int, ...]:
    """The sizes of the files of a task, 0 for a missing one; () if there is no folder."""
    from agent.commands.timeline import FILES

    def size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    return () if folder is None else tuple(size(folder / name) for name in FILES)


def _watch(state: CliState, wiring: Wiring, uuid: str) -> int:
    """Show the task again after each change, until the task has ended, Ctrl-C, or the reader closes the pipe."""
    look = _Look(state, wiring, uuid)
    if state.is_stdout_terminal and can_redraw():
        with sigterm_as_exit():
            _redraw(state, look)
    else:
        _follow(state, look)
    return 0


def _is_over(look: _Look) -> bool:
    return look.found is not None and look.found.row.status in CLOSED_STATUSES


def _redraw(state: CliState, look: _Look) -> None:
    """Show the task in a frame of the terminal's size; at the end, also after Ctrl-C, the frame is replaced by the
    whole text of `show`."""
    try:
        _draw(state, look)
    finally:
        if look.found is not None and look.turns is not None:
            _print_outcome(state, look.found, look.reason, look.turns)


def _draw(state: CliState, look: _Look) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    out = tables.console()
    with Live(console=out, auto_refresh=False, vertical_overflow="crop", transient=True) as live:
        size = out.size
        while True:
            changed = look.again()
            if (changed or out.size != size) and look.found is not None and look.turns is not None:
                size = out.size
                whole = _head(state, look.found, look.reason, look.turns.closing)
                head = [(part, style) for line, style in whole for part in tables.folded(line, size.width)]
                notes = [(f"note: {note}", "") for note in (*look.found.notes, *look.turns.notes)]
                turns = list(_turn_lines(look.turns, look.found.row))
                room = max(3, size.height - len(head) - len(notes) - 2)
                lines = [*head, *notes, ("", ""), *turns[-room:]]
                texts = [
                    Text(tables.cell_line(line), style=style, no_wrap=True, overflow="ellipsis")
                    for line, style in lines[: size.height - 1]
                ]
                live.update(Group(*texts), refresh=True)
            if _is_over(look):
                return
            clock.sleep(SECONDS)


def _follow(state: CliState, look: _Look) -> None:
    """Print each change of the task as a line: the status with its reason, each event between turns, and each turn once
    the turn has ended."""
    said: set[tuple[object, ...]] = set()
    before = ""
    while True:
        if nobody_reads(sys.stdout):
            return
        if look.again() and look.found is not None and look.turns is not None:
            row = look.found.row
            now = f"{_status(row)}{f': {waiting_reason(row, look.reason)}' if waiting_reason(row, look.reason) else ''}"
            items = list(look.turns.items)
            fresh = [one for one in items if _key(one) not in said and (_is_over(look) or _is_whole(one))]
            said = {key for one in items if (key := _key(one)) in said or one in fresh}
            for one in fresh:
                if not _print_turn(state, one):
                    return
            if now != before:
                before = now
                told = {"status": row.status, "outcome": row.outcome, **_outcome(row, look.reason)}
                if not (
                    write(sys.stdout, json_line(told)) if state.json else tables.print_text(state, tables.cell(now))
                ):
                    return
        if _is_over(look):
            return
        clock.sleep(SECONDS)


def _key(one: Turn | Between) -> tuple[object, ...]:
    from agent.commands.turns import Turn

    return ("turn", one.seq) if isinstance(one, Turn) else (one.kind, one.number)


def _is_whole(one: Turn | Between) -> bool:
    """Whether a turn is complete: all its tool calls have results. An event between turns waits for no
    results, so it is always complete."""
    from agent.commands.turns import Turn

    return not isinstance(one, Turn) or all(call.size is not None for call in one.calls)


def _print_turn(state: CliState, one: Turn | Between) -> bool:
    from agent.commands.turns import Turn

    if state.json:
        kind = "turn" if isinstance(one, Turn) else one.kind
        return write(sys.stdout, json_line({**asdict(one), "kind": kind}))
    lines = _turn(one) if isinstance(one, Turn) else [_between(one)]
    return all(tables.print_text(state, line) for line, _ in lines)
