"""`main.py COMMAND`: the typer application and the one place where an error becomes a message and an exit code.

Exit codes: 0 done, 1 a task failed, 2 usage or configuration, 3 the surroundings, 130 interrupted.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.state import State, front
from agent.errors import MakimonoError, SurroundingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def _exit_with(code: object, **_: object) -> None:
    """What a command returns is the exit code."""
    raise typer.Exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="makimono",
    help="A coding agent whose whole mind is on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    result_callback=_exit_with,
)


@app.callback()
def options(
    config: Annotated[str | None, typer.Option("--config", metavar="PATH", help="Before or after the command.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; before or after the command.")] = False,
) -> None:
    """Work off issues: poll, queue, one process per task, a branch and a pull request for each."""
    del config, json  # `front` took them out of the arguments; here they are for the help


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    from agent.cli import commands  # noqa: F401 - each command registers itself on `app`

    state = State()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no Japanese still gets an answer
    try:
        app(front(argv, state), prog_name="main.py", obj=state)
    except MakimonoError as error:
        state.fail(error)
        return error.exit_code
    except OSError as error:  # something of this machine that cannot be read; writes have errors of their own
        state.fail(SurroundingsError(f"{error.filename or 'the system'}: {error.strerror or error}"))
        return SurroundingsError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0
