"""Commands that only read: `tasks`, `show`, `request`, `config show`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.cli.daemon import Uuid  # noqa: TC001 - typer evaluates the annotations at run time
from agent.errors import MakimonoError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.cli.config_and_output import CliState
    from agent.commands.request_preview import Preview
    from agent.commands.timeline import Timeline, TimelineEntry
    from agent.config import Settings
    from agent.taskqueue import Row

WIDE = 120
"""The minimum width in columns of a terminal on which an entry of a task's timeline and its text share one line."""

config = typer.Typer(help="The configuration.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config, name="config")


@app.command()
def tasks(
    context: typer.Context,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="STATUS", help="Only queued, running, paused, completed, failed or stopped ones."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="LIMIT", min=1, help="At most so many, the newest first.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep looking: a live table, in a pipe a line for each change.")
    ] = False,
) -> int:
    """List the tasks, the newest first."""
    from agent.cli import watch_tasks
    from agent.wiring import missing_task_sources
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    if watch:
        return watch_tasks.watch(state, status, limit, lambda row: _listed(state, row, short=True))
    rows, waiting = [], list[str]()
    if state.has_tasks():
        wiring = Wiring(state.settings_to_inspect)
        try:
            rows = wiring.ledger.list(status, limit)
            waiting = missing_task_sources.without_source(state.settings_to_inspect, wiring.ledger.open_instances())
            waiting += warnings(state.settings_to_inspect)
        finally:
            wiring.close()
    state.print_json([costed(state, row) for row in rows])
    if rows:
        listed = [_listed(state, row, short=state.is_stdout_terminal) for row in rows]
        tables.show(state, watch_tasks.headings(state), listed, right=(3, 4), cut=watch_tasks.CUT)
    else:
        none = "no tasks" if status is None else f"no {status} tasks"
        state.print_line(none if state.has_tasks() else f"{none}: {state.where_none()}")
    for line in waiting:
        state.print_line(line)
    return 0


def warnings(settings: Settings) -> list[str]:
    """The reasons why queued tasks are not started."""
    from agent.daemon import program_version, start_holds

    old = program_version.restart_reason(settings)
    return [*([old] if old else []), *start_holds.lines(settings.base_dir)]


def costed(state: CliState, row: Row) -> Row:
    """The task's row, with the cost None instead of 0 if its provider has no configured price, because the real cost is
    unknown then."""
    provider = row.llm_provider
    priced = provider is not None and _price(state.settings_to_inspect, provider) is not None
    return row if row.cost or priced else replace(row, cost=None)  # type: ignore[arg-type]


def _price(settings: Settings, provider: str) -> object | None:
    try:
        return settings.provider_of(provider).price
    except MakimonoError:  # the provider of the row is not configured any more
        return None


def _listed(state: CliState, row: Row, *, short: bool) -> tuple[object, ...]:
    from agent.cli.watch_tasks import is_shared
    from agent.wiring.private_tracker import issue_of

    moment_of = display_time(row.completed_at or row.heartbeat_at or row.created_at)
    reason = row.outcome if row.status == "paused" else row.error_code if row.status in ("failed", "queued") else None
    why = None if reason == row.status else reason
    return (
        row.uuid[:8] if short else row.uuid,
        f"{row.status}: {why}" if why else row.status,
        issue_of(state.settings_to_inspect, row.key.instance)
        or (str(row.key).removeprefix("local:local/") if short else row.key),
        row.turns,
        f"{'~' if row.estimated_tokens else ''}{row.total_tokens:,}" if row.total_tokens else "-",
        moment_of[5:16] if short else moment_of,
        *([row.hostname or "-"] if is_shared(state) else []),
        row.title,
    )


def display_time(stamp: str | None) -> str:
    """A time stamp as `2026-01-31 09:15:00`."""
    return (stamp or "")[:19].replace("T", " ")


@app.command()
def show(
    context: typer.Context,
    uuid: Uuid,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write all of it as one page to FILE instead, without the log."),
    ] = None,
) -> int:
    """Show what happened in one task: its row, messages, tool calls, compactions and outside effects."""
    from agent.commands.timeline import timeline
    from agent.wiring.private_tracker import issue_of
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    state.require_tasks(uuid)
    if html is not None:
        return _write_html(state, uuid, html)
    wiring = Wiring(state.settings_to_inspect)
    try:
        found = timeline(state.settings_to_inspect, wiring.ledger, uuid)
    finally:
        wiring.close()
    if state.json:
        state.print_json_items({**found.head(), "row": costed(state, found.row)}, "entries", found.entries())
        return 0
    tables.facts(state, _row(found, issue_of(state.settings_to_inspect, found.row.key.instance)))
    for note in found.notes:
        state.print_line(f"note: {note}")
    state.print_line()
    _entries(state, found.entries())
    return 0


def _write_html(state: CliState, uuid: str, path: Path) -> int:
    from agent.dashboard.html_page import write_page

    made = write_page(state.settings_to_inspect, uuid, path)
    state.print_line(f"{made.path}: {made.size:,} bytes")
    state.print_json({"path": str(made.path), "bytes": made.size})
    return 0


def _status(row: Row) -> str:
    """The status with the outcome, such as `completed (finished)`; a queued or running task is shown without its
    outcome, which is that of its last pause."""
    goes_on = row.status in ("queued", "running") or row.outcome in (None, "", row.status)
    return row.status if goes_on else f"{row.status} ({row.outcome})"


def _row(found: Timeline, issue: str | None) -> dict[str, object]:
    """The row of the task as names and values.

    `issue` is the file or address of the issue if the task has a private tracker (`solve`), None for any other task.
    """
    row = found.row
    counted = f"{row.prompt_tokens:,} prompt ({row.cached_tokens:,} cached) + {row.completion_tokens:,} answers"
    if row.estimated_tokens:
        counted += f", {row.estimated_tokens:,} of them estimated"
    return {
        "uuid": row.uuid,
        "task": issue or row.key,
        "title": row.title,
        "status": _status(row),
        "requested": row.requested,
        "error": f"{row.error_code}: {row.error_message}" if row.error_code or row.error_message else "",
        "asked by": row.user,
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
        "cost": f"{row.cost:.4f}" if row.cost else "",
        "branch": row.branch,
        "pull request": row.url,
        "folder": found.folder,
    }


def _entries(state: CliState, entries: Iterable[TimelineEntry]) -> None:
    """Print one line for each entry while the entries are read, since a table would have to hold all entries of a long
    task."""
    out = tables.console() if state.is_stdout_terminal else None
    for entry in entries:
        if out is not None:
            from rich.text import Text

            for line in entry_lines(entry, out.width):
                out.print(Text(line, style=_style(entry)), no_wrap=True, overflow="ellipsis", crop=True)
        elif not state.print_line(entry_line(entry)):
            return


def _style(entry: TimelineEntry) -> str:
    if entry.state == "error":
        return tables.STYLES["error"]
    return {"message": "", "tool": "dim", "compaction": "magenta", "summary": "magenta", "effect": "cyan"}[entry.kind]


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


@app.command()
def request(
    context: typer.Context,
    uuid: Uuid,
    messages: Annotated[
        int | None,
        typer.Option(
            "--messages", metavar="N", min=1, help="As it would be with assembler.working_memory_limit at this number."
        ),
    ] = None,
    no_summary: Annotated[
        bool, typer.Option("--no-summary", help="As it would be without the summary of what was left out.")
    ] = False,
) -> int:
    """Show what would be sent to the model next, and why: layers, tokens, limit, window; nothing is sent."""
    import tempfile
    from pathlib import Path

    from agent.commands.request_preview import preview, request_of
    from agent.window.context_layers import AssemblyOptions
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    state.require_tasks(uuid)
    wiring = Wiring(state.settings)
    options = AssemblyOptions(messages, not no_summary)
    with tempfile.TemporaryDirectory(prefix="makimono-request-") as place:
        try:
            found = preview(wiring, uuid, Path(place), options)
        finally:
            wiring.close()
        body = None if found.path is None else request_of(found.path)
        state.print_json({"why": found.why(), "request": body})
    if not state.json:
        _why(state, found)
        if body is not None:
            import orjson

            state.print_line("\nrequest:")
            state.print_line(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
    return 0


def _why(state: CliState, found: Preview) -> None:
    kind = "counted" if found.exact else "estimated"
    tokens = f"{found.tokens:,}"
    if found.reported:
        tokens += f" (the provider's last report, and {kind} what came since; {found.by_counter:,} by counting all)"
    elif found.counter:
        tokens += f" ({kind}, {found.counter})"
    tables.facts(
        state,
        {
            "task": f"{found.row.uuid} {found.row.status}",
            "model": f"{found.provider} {found.model}".strip(),
            "address": found.url,
            "dialect": found.dialect,
            "learnt": "; ".join(f"{name}: {value}" for name, value in (found.learnt or {}).items()),
            "messages": found.messages or "",
            "tokens": tokens if found.counter else "",
        },
    )
    if found.parts:
        headings = ("layer", "span", "messages", "tokens", "", "why")
        rows = [
            (one.layer.replace("_", " "), one.span, one.messages or "", f"{one.tokens:,}", one.state, one.why)
            for one in found.parts
        ]
        state.print_line()
        tables.show(state, headings, rows, right=(2, 3))
        state.print_line()
    if found.limits is not None:
        for line in found.limits.explain().splitlines():
            state.print_line(line)
    for note in found.notes:
        state.print_line(f"note: {note}")


@config.command("show")
def config_show(context: typer.Context) -> int:
    """Show every value and where it comes from; secrets are masked."""
    state: CliState = context.obj
    rows = state.settings_to_inspect.show()
    state.print_json([{"key": key, "value": value, "origin": origin} for key, value, origin in rows])
    tables.show(state, ("key", "origin", "value"), [(key, origin, value) for key, value, origin in rows])
    return 0
