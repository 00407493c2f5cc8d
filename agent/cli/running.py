"""Commands that make tasks run, wait and end: `run`, `pause`, `resume`, `stop`, `cleanup`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.app import app
from agent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.cli.state import State
    from agent.taskqueue.moves import Word


class Role(StrEnum):
    """What a daemon does of the whole."""

    both = "both"
    producer = "producer"
    worker = "worker"


Uuid = Annotated[str, typer.Argument(metavar="UUID", help="The task, or the beginning of its uuid.")]


@app.command()
def run(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Poll once, work off what there is, exit.")] = False,
    role: Annotated[
        Role,
        typer.Option(
            metavar="ROLE", help="producer only polls and queues, worker only works off what is queued, both does both."
        ),
    ] = Role.both,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics", metavar="PORT", min=0, max=65535, help="Answer GET /metrics on this port of 127.0.0.1."
        ),
    ] = None,
) -> int:
    """Run the daemon: poll, queue, one process per task."""
    from agent.cli.progress import listening, measured
    from agent.run.daemon import Daemon

    state: State = context.obj
    with listening(state) as (events, heard), measured(metrics, events, heard):
        daemon = Daemon(state.settings, events, heard, role=role.value)
        code = daemon.run(once=once)
    if state.json:
        state.data({"exit_code": code, "tasks": _ended(state, daemon.worked)})
    return code


def _ended(state: State, uuids: Sequence[str]) -> list[dict[str, object]]:
    """What became of the tasks, for scripts."""
    from agent.run.wiring import Wiring

    wiring = Wiring(state.settings)
    try:
        rows = [row for uuid in uuids if (row := wiring.ledger.get(uuid)) is not None]
    finally:
        wiring.close()
    return [{"uuid": row.uuid, "status": str(row.status), "error_code": row.error_code, "url": row.url} for row in rows]


@app.command()
def stop(context: typer.Context, uuid: Uuid) -> int:
    """Ask a task to stop; a running one ends at its next step."""
    return _ask(context.obj, uuid, "stop")


@app.command()
def pause(context: typer.Context, uuid: Uuid) -> int:
    """Ask a task to wait; a running one does at its next step, and goes on after `resume`."""
    return _ask(context.obj, uuid, "pause")


@app.command()
def resume(context: typer.Context, uuid: Uuid) -> int:
    """Put a paused task back in the queue."""
    return _ask(context.obj, uuid, "resume")


def _ask(state: State, prefix: str, word: Word) -> int:
    """Ask it of the task whose uuid begins with `prefix`."""
    from agent.run.closing import close_from_outside
    from agent.run.wiring import Wiring

    state.require_tasks(prefix)
    wiring = Wiring(state.looking)
    try:
        uuid = wiring.ledger.resolve(prefix)
        row = wiring.ledger.get(uuid)
        if word == "resume" and row is not None and row.status == "running" and row.requested != "pause":
            raise UsageError(f"task {uuid} is running and nobody paused it; there is nothing to resume")
        status = wiring.ledger.request(uuid, word)
        row = wiring.ledger.get(uuid)
        if status == "stopped" and row is not None:
            close_from_outside(wiring, row)  # nobody works on it, so nobody else tells the person
    finally:
        wiring.close()
    state.say(f"{uuid}: {f'{word} requested' if status == 'running' else status}")
    state.data({"uuid": uuid, "status": str(status), "requested": word})
    return 0


@app.command()
def cleanup(
    context: typer.Context,
    days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Age in days; context_storage.cleanup_days by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, remove nothing.")] = False,
) -> int:
    """Remove closed tasks that are old enough, folders and rows."""
    from agent.run.cleanup import cleanup as clean_up
    from agent.run.wiring import Wiring

    state: State = context.obj
    if days is not None and days < 0:
        raise UsageError(f"--days is {days:g}; it must be 0 or more")
    wiring = Wiring(state.settings)
    try:
        removed = clean_up(state.settings, wiring.ledger, days=days, dry_run=dry_run)
    finally:
        wiring.close()
    for one in removed:
        state.say(
            f"{'would remove' if dry_run else 'removed'} {one.uuid} {one.status} {one.completed_at} {one.size} bytes"
        )
    state.say(f"{len(removed)} task(s), {sum(one.size for one in removed)} bytes")
    state.data({"dry_run": dry_run, "removed": removed})
    return 0
