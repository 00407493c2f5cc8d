"""`main.py COMMAND`: the typer application and the one place where an error becomes a message and an exit code.

Exit codes: 0 done, 1 a task failed, 2 usage or configuration, 3 the surroundings, 130 interrupted.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from agent import __version__
from agent.cli.state import State, failure, front, write
from agent.errors import MakimonoError, SurroundingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def _exit_with(code: object, **_: object) -> None:
    """What a command returns is the exit code."""
    raise typer.Exit(code if isinstance(code, int) else 0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"makimono {__version__}")
        raise typer.Exit


class Commands(TyperGroup):
    """The commands in the order of a day's work, each described in whole sentences (typer cuts them at the margin);
    Ctrl-C is answered with a word (typer makes it an exit code without one)."""

    order = ("solve", "run", "tasks", "show", "request", "stop", "pause", "resume", "retry", "replay", "doctor")

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            write(sys.stderr, "interrupted\n")
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """Those of `order`, then the others."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: self.order.index(name) if name in self.order else len(self.order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Name and help of each."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join((one.help or "").split())) for name, one in listed if one is not None])


app = typer.Typer(
    name="makimono",
    cls=Commands,
    help="A coding agent whose whole mind is on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    result_callback=_exit_with,
)


@app.callback()
def options(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="PATH",
            help="The configuration, before or after the command; without it config.yaml of the current folder, "
            "if there is one.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text; before or after the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Work off issues: poll, queue, one process per task, a branch and a pull request for each."""
    del config, json, version  # `front` took them out of the arguments; here they are for the help


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    from agent.cli import commands  # noqa: F401 - each command registers itself on `app`

    state = State()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no Japanese still gets an answer
    try:
        code = app(front(argv, state), prog_name="main.py", obj=state, standalone_mode=False)
    except TyperException as error:  # an argument that is missing or wrong
        error.show()  # type: ignore[attr-defined]  # each of its classes that is raised here has it
        if state.json:
            state.data(failure("usage", error.format_message(), error.exit_code))
        return int(error.exit_code)
    except MakimonoError as error:
        state.fail(error)
        return error.exit_code
    except OSError as error:  # something of this machine that cannot be read; writes have errors of their own
        state.fail(SurroundingsError(f"{error.filename or 'the system'}: {error.strerror or error}"))
        return SurroundingsError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return code if isinstance(code, int) else 0
