"""Commands that start, pause and end tasks, and that maintain stored data: `run`, `poke`, `pause`, `resume`, `stop`,
`retry`, `cleanup`, `backup`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.app import app
from agent.config.value_kinds import MOST_PRIORITY
from agent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.cli.config_and_output import CliState
    from agent.taskqueue.transitions import Request
    from agent.wiring.wiring import Wiring


MISSED = 20
"""The maximum number of lines about unreadable files of a backup that are printed."""


class Role(StrEnum):
    """What a daemon does: poll the forges and queue tasks (`producer`), run queued tasks (`worker`), or both."""

    both = "both"
    producer = "producer"
    worker = "worker"


Uuid = Annotated[str, typer.Argument(metavar="UUID", help="The task, or the beginning of its uuid.")]


@app.command()
def run(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Poll once, run the queued tasks, and exit.")] = False,
    role: Annotated[
        Role,
        typer.Option(
            metavar="ROLE",
            help="producer: only polls and queues tasks; worker: only runs queued tasks; both: does both.",
        ),
    ] = Role.both,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics",
            metavar="PORT",
            min=0,
            max=65535,
            help="Answer GET /metrics, /live and /ready on this port of 127.0.0.1.",
        ),
    ] = None,
) -> int:
    """Run the daemon: poll the forges, queue tasks, run one process per task."""
    from agent.cli.progress import event_sources, serve_metrics
    from agent.daemon.daemon import Daemon

    state: CliState = context.obj
    with event_sources(state) as (events, heard), serve_metrics(metrics, state.settings, events, heard):
        daemon = Daemon(state.settings, events, heard, role=role.value)
        code = daemon.run(once=once)
    if state.json:
        state.print_json({"exit_code": code, "tasks": _ended(state, daemon.worked)})
    return code


def _ended(state: CliState, uuids: Sequence[str]) -> list[dict[str, object]]:
    """Uuid, status, error code and address of the pull request of each task in `uuids`, for the JSON output of
    `run`."""
    from agent.wiring.wiring import Wiring

    wiring = Wiring(state.settings)
    try:
        rows = [row for uuid in uuids if (row := wiring.ledger.get(uuid)) is not None]
    finally:
        wiring.close()
    return [{"uuid": row.uuid, "status": str(row.status), "error_code": row.error_code, "url": row.url} for row in rows]


@app.command()
def poke(context: typer.Context) -> int:
    """Make the daemon of this base_dir and host poll all its sources at once."""
    from agent.daemon.poke_daemon import poke_daemon

    state: CliState = context.obj
    pid = poke_daemon(state.settings_to_inspect)
    state.print_line(f"the daemon (process {pid}) polls now")
    state.print_json({"pid": pid})
    return 0


@app.command()
def stop(context: typer.Context, uuid: Uuid) -> int:
    """Ask a task to stop; a running task ends at its next step."""
    return _request_transition(context.obj, uuid, "stop")


@app.command()
def pause(context: typer.Context, uuid: Uuid) -> int:
    """Ask a task to pause; a running task pauses at its next step, and continues after `resume`."""
    return _request_transition(context.obj, uuid, "pause")


@app.command()
def resume(context: typer.Context, uuid: Uuid) -> int:
    """Put a paused task back into the queue."""
    return _request_transition(context.obj, uuid, "resume")


@app.command()
def retry(
    context: typer.Context,
    uuid: Annotated[
        str | None, typer.Argument(metavar="[UUID]", help="The task, or the beginning of its uuid.")
    ] = None,
    failed_since: Annotated[
        str | None,
        typer.Option(
            "--failed-since",
            metavar="WHEN",
            help="Instead of UUID: all that failed since then, as 90m, 12h, 2d or 2026-01-31T09:15 (UTC).",
        ),
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="With --failed-since: only those with this error code.")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            metavar="N",
            min=-MOST_PRIORITY,
            max=MOST_PRIORITY,
            help="The priority; the higher number goes first. Without it, the priority of the earlier task.",
        ),
    ] = None,
) -> int:
    """Queue a new task that continues an ended task, or one new task for each task that failed since a time."""
    from agent.commands.task_control import retry_by_prefix
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    if (uuid is None) == (failed_since is None):
        raise UsageError("retry takes the UUID of a task, or --failed-since WHEN; give one of the two")
    if uuid is None:
        return _retry_all(state, str(failed_since), code, priority)
    if code is not None:
        raise UsageError("--code goes with --failed-since only; leave it out")
    state.require_tasks(uuid)
    wiring = Wiring(state.settings)
    try:
        done = retry_by_prefix(wiring, uuid, priority)
    finally:
        wiring.close()
    state.print_line(f"{done.uuid}: queued, {done.begins}")
    state.print_json({"uuid": done.uuid, "status": "queued", "parent_uuid": done.parent_uuid})
    return 0


def _retry_all(state: CliState, text: str, code: str | None, priority: int | None) -> int:
    """Queue new tasks for the tasks that failed since the time `text` (`retry.failed_since`); returns 1 when one of
    them could not be continued."""
    from agent.commands.retry import failed_since, parse_moment
    from agent.wiring.wiring import Wiring

    since = parse_moment(text)
    if not state.has_tasks():
        raise UsageError(f"nothing can be tried again: {state.where_none()}")
    wiring = Wiring(state.settings)
    try:
        done = failed_since(wiring, since, code, priority=priority)
    finally:
        wiring.close()
    for made, parent in done.queued:
        state.print_line(f"{made}: queued, follows {parent}")
    for left, why in done.left.items():
        state.print_line(f"{left}: left as it is: {why}")
    if not (done.queued or done.left):
        named = "" if code is None else f" with the code {code}"
        others = ", ".join(f"{number} with {other}" for other, number in sorted(done.other_codes.items()))
        nothing = f"nothing has failed{named} since {since:%Y-%m-%d %H:%M} UTC that nobody has tried again"
        state.print_line(nothing + (f"; failed since then: {others}" if others else ""))
    queued = [{"uuid": made, "parent_uuid": parent} for made, parent in done.queued]
    state.print_json({"queued": queued, "left": done.left})
    return 1 if done.left else 0


def _request_transition(state: CliState, prefix: str, word: Request) -> int:
    """Request a stop, pause or resume of the task with a uuid that begins with `prefix`."""
    from agent.commands.task_control import give_order
    from agent.wiring.wiring import Wiring

    state.require_tasks(prefix)
    wiring = Wiring(state.settings_to_inspect)
    try:
        uuid, status = give_order(wiring, prefix, word)
    finally:
        wiring.close()
    state.print_line(f"{uuid}: {f'{word} requested' if status == 'running' else status}")
    state.print_json({"uuid": uuid, "status": str(status), "requested": word})
    return 0


@app.command()
def cleanup(
    context: typer.Context,
    days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Age in days; context_storage.cleanup_days by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    gone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host that does not come back: the tasks that it worked on are removed too. Repeatable.",
        ),
    ] = None,
) -> int:
    """Remove closed tasks that are old enough (folders and rows), and repository mirrors and cached set-ups that were
    not used for the same time."""
    from agent.commands.branch_cleanup import Branches
    from agent.commands.cleanup import cleanup as clean_up
    from agent.commands.cleanup import replicas
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    if days is not None and days < 0:
        raise UsageError(f"--days is {days:g}; it must be 0 or more")
    if not state.has_tasks():
        raise UsageError(f"nothing can be removed: {state.where_none()}")
    wiring = Wiring(state.settings)
    try:
        more: dict[str, Any] = {"gone": _names_of_hosts(wiring, gone or ())}
        branches = Branches(wiring, dry_run)
        if state.settings.context_storage.cleanup_branches:
            more["branch"] = branches.remove
        more["replica"], without = replicas(state.settings)
        broken: dict[str, str] = {}
        more["failed"] = broken.__setitem__
        removed = clean_up(state.settings, wiring.ledger, days=days, dry_run=dry_run, **more)
    finally:
        wiring.close()
    for one in removed:
        did = ("would empty" if dry_run else "emptied") if one.until else "would remove" if dry_run else "removed"
        stays = f"; its row, and how it ended, stay until {one.until[:10]}" if one.until else ""
        state.print_line(f"{did} {one.uuid} {one.status} {one.completed_at} {one.size:,} bytes{stays}")
    if without:
        state.print_line(f"every task that may have a replica stays: {without}")
    for uuid in branches.waiting:
        state.print_line(f"kept {uuid}: nobody answered about its branch; the next cleanup asks again")
    for name, why in broken.items():
        state.print_line(f"kept {name}: it cannot be removed: {why}; the next cleanup tries again")
    age = state.settings.context_storage.cleanup_days if days is None else days
    said = f"older than {age:g} day{'' if age == 1 else 's'}"
    said += "" if days is not None else " (context_storage.cleanup_days; --days takes another age)"
    if removed:
        state.print_line(f"{len(removed)} in all, {sum(one.size for one in removed):,} bytes; each {said}")
    elif not (branches.waiting or broken or without):
        state.print_line(f"nothing to remove: nothing that has ended is {said}")
    state.print_json(
        {"dry_run": dry_run, "days": age, "removed": removed, "waiting": branches.waiting, "broken": broken}
    )
    return 1 if broken or without else 0


def _names_of_hosts(wiring: Wiring, names: Iterable[str]) -> list[str]:
    """Return the names given with `--gone`; raises UsageError for the name of this host and for a name that no row of
    the ledger has.
    """
    from agent.taskqueue.row_holder import hostname

    found = list(names)
    for name in found:
        if name == hostname():
            raise UsageError(f"--gone {name}: that is this host; name one that does not come back")
        if wiring.ledger.host_last_seen(name) is None:
            raise UsageError(f"--gone {name}: no task names a host of this name; `tasks` shows them")
    return found


@app.command()
def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder outside base_dir.")],
) -> int:
    """Copy all stored data to DIR, while a daemon runs; docs/operations.md says how to restore."""
    from agent.commands.backup import backup as back_up

    state: CliState = context.obj
    if not state.has_tasks():
        raise UsageError(f"there is nothing to copy: {state.where_none()}")
    made = back_up(state.settings_to_inspect, folder)
    state.print_line(
        f"{made.folder}: {made.completed} ended and {made.running} open task(s), {made.rows}, {made.size:,} bytes"
    )
    if made.note:
        state.print_line(made.note)
    for line in made.missed[:MISSED]:
        state.print_line(f"not copied: {line}")
    if len(made.missed) > MISSED:
        state.print_line(f"and {len(made.missed) - MISSED} more")
    state.print_json(made)
    return 1 if made.missed else 0
