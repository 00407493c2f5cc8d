"""Commands that look and change nothing: `tasks`, `show`, `request`, `config show`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.cli.running import Uuid  # noqa: TC001 - typer evaluates the annotations
from agent.errors import MakimonoError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.cli.state import State
    from agent.config import Settings
    from agent.run.preview import Preview
    from agent.run.timeline import Entry, Timeline
    from agent.taskqueue import Row

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
) -> int:
    """List the tasks, the newest first."""
    from agent.run.wiring import Wiring

    state: State = context.obj
    rows = []
    if state.has_tasks():
        wiring = Wiring(state.looking)
        try:
            rows = wiring.ledger.list(status, limit)
        finally:
            wiring.close()
    state.data([costed(state, row) for row in rows])
    if rows:
        headings = ("uuid", "status", "task", "turns", "tokens", "since", "title")
        listed = [_listed(state, row, short=state.terminal) for row in rows]
        tables.show(state, headings, listed, right=(3, 4), cut=(2, 6))
    else:
        state.say("no tasks" if status is None else f"no {status} tasks")
    return 0


def costed(state: State, row: Row) -> Row:
    """The row; its cost is null where no price is configured, for 0 would be a lie."""
    provider = row.llm_provider
    priced = provider is not None and _price(state.looking, provider) is not None
    return row if row.cost or priced else replace(row, cost=None)  # type: ignore[arg-type]


def _price(settings: Settings, provider: str) -> object | None:
    try:
        return settings.provider_of(provider).price
    except MakimonoError:  # a provider that is not configured any more
        return None


def _listed(state: State, row: Row, *, short: bool) -> tuple[object, ...]:
    from agent.run.solo import issue_of

    moment_of = moment(row.completed_at or row.heartbeat_at or row.created_at)
    why = row.outcome if row.status == "paused" else row.error_code if row.status == "failed" else None
    return (
        row.uuid[:8] if short else row.uuid,
        f"{row.status}: {why}" if why else row.status,
        issue_of(state.looking, row.key.instance) or row.key,
        row.llm_call_count,
        f"{row.total_tokens:,}" if row.total_tokens else "-",
        moment_of[5:16] if short else moment_of,
        row.title,
    )


def moment(stamp: str | None) -> str:
    """`2026-01-31 09:15:00` of a stamp."""
    return (stamp or "")[:19].replace("T", " ")


@app.command()
def show(context: typer.Context, uuid: Uuid) -> int:
    """Show what happened in one task: its row, messages, tool calls, compactions and outside effects."""
    from agent.run.timeline import timeline
    from agent.run.wiring import Wiring

    state: State = context.obj
    state.require_tasks(uuid)
    wiring = Wiring(state.looking)
    try:
        found = timeline(state.looking, wiring.ledger, uuid)
    finally:
        wiring.close()
    if state.json:
        state.stream({**found.head(), "row": costed(state, found.row)}, "entries", found.entries())
        return 0
    tables.facts(state, _row(found))
    for note in found.notes:
        state.say(f"note: {note}")
    state.say()
    _entries(state, found.entries())
    return 0


def _row(found: Timeline) -> dict[str, object]:
    row = found.row
    reported = f"{row.prompt_tokens:,} prompt ({row.cached_tokens:,} cached) + {row.completion_tokens:,} answers"
    return {
        "uuid": row.uuid,
        "task": row.key,
        "title": row.title,
        "status": f"{row.status} ({row.outcome})" if row.outcome else row.status,
        "requested": row.requested,
        "error": f"{row.error_code}: {row.error_message}" if row.error_code or row.error_message else "",
        "asked by": row.user,
        "model": f"{row.llm_provider} {row.model}" if row.model else "",
        "created": moment(row.created_at),
        "started": moment(row.started_at),
        "last sign": moment(row.heartbeat_at) if found.is_live else "",
        "ended": moment(row.completed_at),
        "process": f"{row.process_id} on {row.hostname}, attempt {row.attempt}" if found.is_live else "",
        "turns": row.llm_call_count,
        "tool calls": row.tool_call_count,
        "compactions": row.compression_count,
        "tokens": reported if row.total_tokens else "none reported",
        "cost": f"{row.cost:.4f}" if row.cost else "",
        "branch": row.branch,
        "pull request": row.url,
        "folder": found.folder,
    }


def _entries(state: State, entries: Iterable[Entry]) -> None:
    """A line an entry, as they are read: a long task has more of them than a table should hold."""
    out = tables.console() if state.terminal else None
    for entry in entries:
        line = entry_line(entry)
        if out is not None:
            from rich.text import Text

            out.print(Text(line, style=_style(entry)), no_wrap=True, overflow="ellipsis", crop=True)
        elif not state.say(line):
            return


def _style(entry: Entry) -> str:
    if entry.state == "error":
        return tables.STYLES["error"]
    return {"message": "", "tool": "dim", "compaction": "magenta", "summary": "magenta", "effect": "cyan"}[entry.kind]


def entry_line(entry: Entry) -> str:
    """One entry on one line."""
    who = f"{entry.state} {entry.who}" if entry.kind in ("tool", "effect") else entry.who
    sizes = [f"{entry.tokens:,} tk" if entry.tokens is not None else ""]
    if entry.prompt_tokens is not None:
        sizes.append(f"reported {entry.prompt_tokens:,}+{entry.completion_tokens or 0:,}")
    if entry.duration_ms is not None:
        sizes.append(f"{entry.duration_ms:,} ms")
    size = " ".join(part for part in sizes if part)
    parts = (moment(entry.at), f"{entry.kind} {entry.number}", who, size, entry.text)
    wide = (19, 14, 26, 12, 0)
    cells = [tables.cell(part) for part in parts]
    cells[2] = cells[2] if len(cells[2]) <= wide[2] else f"{cells[2][: wide[2] - 1]}…"
    return "  ".join(f"{text:<{width}}" for text, width in zip(cells, wide, strict=True)).rstrip()


@app.command()
def request(context: typer.Context, uuid: Uuid) -> int:
    """Show what would be sent to the model next, and why: layers, tokens, limit, window; nothing is sent."""
    import tempfile
    from pathlib import Path

    from agent.run.preview import preview, request_of
    from agent.run.wiring import Wiring

    state: State = context.obj
    state.require_tasks(uuid)
    wiring = Wiring(state.settings)
    with tempfile.TemporaryDirectory(prefix="makimono-request-") as place:
        try:
            found = preview(wiring, uuid, Path(place))
        finally:
            wiring.close()
        body = None if found.path is None else request_of(found.path)
        state.data({"why": found.why(), "request": body})
    if not state.json:
        _why(state, found)
        if body is not None:
            import orjson

            state.say("\nrequest:")
            state.say(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
    return 0


def _why(state: State, found: Preview) -> None:
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
        state.say()
        tables.show(state, headings, rows, right=(2, 3))
        state.say()
    if found.limits is not None:
        for line in found.limits.explain().splitlines():
            state.say(line)
    for note in found.notes:
        state.say(f"note: {note}")


@config.command("show")
def config_show(context: typer.Context) -> int:
    """Show every value and where it comes from; secrets are masked."""
    state: State = context.obj
    rows = state.looking.show()
    state.data([{"key": key, "value": value, "origin": origin} for key, value, origin in rows])
    tables.show(state, ("key", "origin", "value"), [(key, origin, value) for key, value, origin in rows])
    return 0
