"""Commands that only read: `tasks`, `request`, `config show`; `show` is in `show.py`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.cli.daemon import Uuid  # noqa: TC001 - typer evaluates the annotations at run time
from agent.errors import MakimonoError

if TYPE_CHECKING:
    from agent.cli.config_and_output import CliState
    from agent.commands.request_preview import Preview
    from agent.config import Settings
    from agent.daemon.task_reasons import Reason
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
        int | None, typer.Option("--limit", metavar="LIMIT", min=1, help="Maximum number of tasks, the newest first.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the tasks: a live table; in a pipe a line for each change.")
    ] = False,
) -> int:
    """List the tasks, the newest first, with the reason why each task that does not run waits."""
    from agent.cli import watch_tasks
    from agent.taskqueue.ledger import status_of
    from agent.wiring import missing_task_sources
    from agent.wiring.folders import task_folder_count
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    if status is not None:
        status_of(status)  # a wrong status is refused even if there is no ledger
    if watch:
        return watch_tasks.watch(state, status, limit, lambda row: _listed(state, row, short=True))
    look, missing, is_empty = watch_tasks.Look([], {}, []), list[str](), True
    if state.has_tasks():
        wiring = Wiring(state.settings_to_inspect)
        try:
            look = watch_tasks.look_at(wiring, status, limit, notes=not state.json)
            is_empty = not look.rows and not any(wiring.ledger.counts().values())
            missing = missing_task_sources.without_source(state.settings_to_inspect, wiring.ledger.open_instances())
        finally:
            wiring.close()
    if state.json:
        state.print_json([_with_reason(costed(state, row), look.reasons.get(row.uuid)) for row in look.rows])
        return 0
    if look.rows:
        listed = [_listed(state, row, short=state.is_stdout_terminal) for row in look.rows]
        headings = watch_tasks.headings(state)
        tables.show(state, headings, listed, **watch_tasks.columns(headings))
    else:
        none = "no tasks" if status is None else f"no {status} tasks"
        tables.print_text(state, none if state.has_tasks() else f"{none}: {state.where_none()}")
        if is_empty and (count := task_folder_count(state.settings_to_inspect)):
            said = (
                f"{count} folder(s) of tasks have no row; stop the daemon and call `doctor --repair`, which makes them"
            )
            tables.print_text(state, said)
    for line in (*watch_tasks.waiting_lines(look), *missing):
        tables.print_text(state, tables.cell(line))
    return 0


def _with_reason(row: Row, reason: Reason | None) -> dict[str, object]:
    """The columns of the row, and `why` and `waits_for`: the text and the code of the reason why the task waits (None
    if it waits for nothing)."""
    told = (None, None) if reason is None else (reason.text, reason.code)
    return {**{one.name: getattr(row, one.name) for one in fields(row)}, "why": told[0], "waits_for": told[1]}


def costed(state: CliState, row: Row) -> Row:
    """The task's row, with the cost None instead of 0 if its provider has no configured price, because the real cost is
    unknown then."""
    provider = row.llm_provider
    priced = provider is not None and _price(state.settings_to_inspect, provider) is not None
    return row if row.cost or priced else replace(row, cost=None)  # type: ignore[arg-type]


def _price(settings: Settings, provider: str) -> object | None:
    try:
        return settings.provider_of(provider).price
    except MakimonoError:  # the provider that the row names is not configured any more
        return None


def _listed(state: CliState, row: Row, *, short: bool) -> tuple[object, ...]:
    from agent.cli.watch_tasks import is_priced, is_shared
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
        *([f"{row.cost:.4f}" if row.cost else "-"] if is_priced(state) else []),
        moment_of[5:16] if short else moment_of,
        *([row.hostname or "-"] if is_shared(state) else []),
        row.title,
    )


def display_time(stamp: str | None) -> str:
    """A time stamp in the form `2026-01-31 09:15:00`, "" for None."""
    return (stamp or "")[:19].replace("T", " ")


@app.command()
def request(
    context: typer.Context,
    uuid: Uuid,
    messages: Annotated[
        int | None,
        typer.Option(
            "--messages",
            metavar="N",
            min=1,
            help="Show the request as it would be with assembler.working_memory_limit at this number.",
        ),
    ] = None,
    no_summary: Annotated[
        bool,
        typer.Option("--no-summary", help="Show the request as it would be without the summary of earlier messages."),
    ] = False,
) -> int:
    """Show the request that would be sent to the model next, and why: layers, tokens, limit, window; nothing is
    sent."""
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
        state.print_json({"why": found.to_json(), "request": body})
    if not state.json:
        _print_preview(state, found)
        if body is not None:
            import orjson

            state.print_line("\nrequest:")
            state.print_line(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())
    return 0


def _print_preview(state: CliState, found: Preview) -> None:
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
    """Show every value of the configuration and its origin; secrets are masked."""
    state: CliState = context.obj
    rows = state.settings_to_inspect.show()
    state.print_json([{"key": key, "value": value, "origin": origin} for key, value, origin in rows])
    tables.show(state, ("key", "origin", "value"), [(key, origin, value) for key, value, origin in rows])
    return 0
