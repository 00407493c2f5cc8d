"""`doctor`: is this machine fit for the work, and if not, what to do; `health`: does the daemon start tasks, or why
not."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.cli.state import State


@app.command()
def doctor(
    context: typer.Context,
    forget: Annotated[
        bool, typer.Option("--forget", help="First forget what refusals of the models' servers have taught.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First make rows again from all folders that have none, and queue issues that show that somebody has "
            "them and of which the ledger knows no task.",
        ),
    ] = False,
) -> int:
    """Look at everything that a task needs: server, window, forges, git, sandbox, SQLite, disk; and say what to do."""
    from agent.run.doctor import examine, worst

    state: State = context.obj
    if forget:
        _forget(state)
    if repair:
        _repair(state)
    with steps(state) as step:
        checks = list(examine(state.load, step))
    code = worst(checks)
    state.data({"ok": code == 0, "checks": checks})
    if state.terminal:
        tables.show(state, ("", "part", "found"), [(one.state, one.name, one.found) for one in checks])
    else:
        for one in checks:
            state.say(f"{one.state:<4}  {tables.cell(one.name)}: {tables.cell(one.found)}")
            _advise(state, one.advice, indent="      ")
    if state.terminal:
        for one in checks:
            if one.advice:
                state.say(f"{one.name}:")
                _advise(state, one.advice, indent="  ")
    return code


@app.command()
def health(
    context: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Only whether the daemon is there and goes round, whatever it waits for.")
    ] = False,
) -> int:
    """Say whether the daemon of this base_dir and host is alive and starts tasks, or why not."""
    from agent.errors import SurroundingsError
    from agent.run.health import look

    state: State = context.obj
    found = look(state.looking)
    well = found.live if live else found.ready
    state.data({"live": found.live, "ready": found.ready, "why": found.why})
    state.say("ready" if found.ready else "live, and starts no task" if found.live else "not live")
    for why in found.why:
        state.say(f"  {why}")
    return 0 if well else SurroundingsError.exit_code


def _forget(state: State) -> None:
    from agent.run.wiring import Wiring

    with closing(Wiring(state.load(True))) as wiring:
        wiring.learnt.forget_all()


def _repair(state: State) -> None:
    from agent.run.repair import repair
    from agent.run.wiring import Wiring

    with closing(Wiring(state.settings)) as wiring:
        done = repair(wiring)
    state.say(f"repair: {done.rows} row(s) made again from folders, {len(done.issues)} issue(s) queued again")
    for forge, why in done.unasked.items():
        state.say(f"repair: the issues of {forge} could not be compared with the rows: {why}")


def _advise(state: State, advice: str, *, indent: str) -> None:
    """What to do, which may be several lines that are to be copied."""
    for line in advice.splitlines():
        state.say(f"{indent}{line}")


@contextmanager
def steps(state: State) -> Iterator[Callable[[str], None]]:
    """Says on a terminal which step is under way, and nothing in a pipe."""
    if not (state.terminal and state.watched):
        yield lambda _name: None
        return
    import sys

    from rich.text import Text

    with tables.console(sys.stderr).status(Text("looking …")) as status:
        yield lambda name: status.update(Text(f"looking at {tables.cell(name)} …"))
