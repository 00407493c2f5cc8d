"""The commands `doctor` (whether this machine is fit for the work, with advice) and `health` (whether the daemon starts
tasks, or why not)."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.cli.config_and_output import CliState


@app.command()
def doctor(
    context: typer.Context,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="First forget the facts about model servers that were learnt from their refusals."
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First restore rows from all folders that have none, and queue issues whose label says that a task "
            "has them although the ledger has no such task.",
        ),
    ] = False,
) -> int:
    """Check everything that a task needs: model server, window, forges, git, sandbox, SQLite, disk; and say what to
    do."""
    from agent.commands.doctor import examine, worst

    state: CliState = context.obj
    if forget:
        _forget(state)
    if repair:
        _repair(state)
    with steps(state) as step:
        checks = list(examine(state.load, step))
    code = worst(checks)
    state.print_json({"ok": code == 0, "checks": checks})
    if state.is_stdout_terminal:
        tables.show(state, ("", "part", "found"), [(one.state, one.name, one.found) for one in checks])
    else:
        for one in checks:
            state.print_line(f"{one.state:<4}  {tables.cell(one.name)}: {tables.cell(one.found)}")
            _advise(state, one.advice, indent="      ")
    if state.is_stdout_terminal:
        for one in checks:
            if one.advice:
                state.print_line(f"{one.name}:")
                _advise(state, one.advice, indent="  ")
    return code


@app.command()
def health(
    context: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Only check whether the daemon runs and its loop turns.")
    ] = False,
) -> int:
    """Say whether the daemon of this base_dir and host is alive and starts tasks, or why not."""
    from agent.daemon.health import read_health
    from agent.errors import HostError

    state: CliState = context.obj
    found = read_health(state.settings_to_inspect)
    well = found.live if live else found.ready
    state.print_json({"live": found.live, "ready": found.ready, "why": found.why})
    state.print_line("ready" if found.ready else "live, and starts no task" if found.live else "not live")
    for why in found.why:
        state.print_line(f"  {why}")
    return 0 if well else HostError.exit_code


def _forget(state: CliState) -> None:
    from agent.wiring.wiring import Wiring

    with closing(Wiring(state.load(True))) as wiring:
        wiring.learnt.forget_all()


def _repair(state: CliState) -> None:
    from agent.commands.repair_rows import repair
    from agent.wiring.wiring import Wiring

    with closing(Wiring(state.settings)) as wiring:
        done = repair(wiring)
    state.print_line(f"repair: {done.rows} row(s) made again from folders, {len(done.issues)} issue(s) queued again")
    for what, why in done.unasked.items():
        state.print_line(f"repair: issues of {what} could not be compared with the rows: {why}")


def _advise(state: CliState, advice: str, *, indent: str) -> None:
    """Print the advice of `doctor`, which may be several lines to copy."""
    for line in advice.splitlines():
        state.print_line(f"{indent}{line}")


@contextmanager
def steps(state: CliState) -> Iterator[Callable[[str], None]]:
    """Show on a terminal which check of `doctor` is running; show nothing in a pipe."""
    if not (state.is_stdout_terminal and state.is_stderr_terminal):
        yield lambda _name: None
        return
    import sys

    from rich.text import Text

    with tables.console(sys.stderr).status(Text("looking …")) as status:
        yield lambda name: status.update(Text(f"looking at {tables.cell(name)} …"))
