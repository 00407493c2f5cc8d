"""The typer application, on which each command module registers its commands.  `agent/cli/main.py` runs this
application."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agent import __version__
from agent.cli.config_and_output import write

INTERRUPTED = 130


def _exit_with(code: object, **_: object) -> None:
    """Use the return value of a command as the exit code of the program."""
    raise typer.Exit(code if isinstance(code, int) else 0)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"makimono {__version__}")
        raise typer.Exit


class CommandGroup(TyperGroup):
    """A typer group that lists the commands in the order of a day's work, each with its whole help text (typer would
    cut a help text at the right margin), and prints a message on Ctrl-C (typer alone would only set an exit code)."""

    order = (
        "solve",
        "run",
        "poke",
        "tasks",
        "show",
        "request",
        "dashboard",
        "stop",
        "pause",
        "resume",
        "retry",
        "replay",
        "deliberate",
        "memory",
        "mcp",
        "doctor",
    )

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; on Ctrl-C print a message first."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            write(sys.stderr, "interrupted\n")
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands that `order` names, then those of all other commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: self.order.index(name) if name in self.order else len(self.order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and help text of each command into the help page."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join((one.help or "").split())) for name, one in listed if one is not None])


app = typer.Typer(
    name="makimono",
    cls=CommandGroup,
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
    """Work off issues: poll the forges, queue tasks, run one process per task, make a branch and a pull request for
    each."""
    # `config_and_output.take_global_options` removed --config and --json from the arguments; they are declared here for
    # the help text
    del config, json, version
