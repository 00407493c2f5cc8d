"""`plugins`: commands that show the plug-ins of the configuration, and pin the files of which they consist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app
from agent.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.cli.config_and_output import CliState
    from agent.plugin_guard import PinState

plugins = typer.Typer(
    help="Plug-ins of other packages: show them, pin what they are made of.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(plugins, name="plugins")


@plugins.command("list")
def list_plugins(context: typer.Context) -> int:
    """List the plug-ins of the configuration, and whether they are unchanged since they were pinned; no code of a
    plug-in is run.
    """
    from agent.config.plug_ins import plug_ins_of

    state: CliState = context.obj
    settings = state.settings_to_inspect
    named = plug_ins_of(settings)
    found = settings.plugin_guard.compare_with_pins(list(dict.fromkeys(target for _, target in named)))
    keys = {target: [key for key, one in named if one == target] for _, target in named}
    rows = [{"keys": keys[one.plug_in], "plug_in": one.plug_in, "state": one.state, "file": one.file} for one in found]
    state.print_json({"lock": settings.plugin_guard.path, "plug_ins": rows})
    if not found:
        state.print_line("no plug-in is configured")
        return 0
    _show(state, found)
    return 0 if all(one.state == "pinned" for one in found) else ConfigError.exit_code


@plugins.command()
def pin(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Only these plug-ins, as the configuration names them; else all."),
    ] = None,
) -> int:
    """Write the hashes of each plug-in's present files into plugins.lock beside config.yaml.  Read the plug-in's files
    before you run this command."""
    from agent.config.plug_ins import plug_ins_of

    state: CliState = context.obj
    settings = state.settings_to_inspect
    known = list(dict.fromkeys(target for _, target in plug_ins_of(settings)))
    for path in paths or ():
        if path not in known:
            raise UsageError(f"{path!r} is no plug-in of the configuration; it has {', '.join(known) or 'none'}")
    found = settings.plugin_guard.pin(list(paths or known), others=known)
    state.print_json({"lock": settings.plugin_guard.path, "pinned": [one.plug_in for one in found]})
    if not found:
        state.print_line("no plug-in is configured; plugins.lock has no entry")
        return 0
    _show(state, found)
    state.print_line(f"written: {settings.plugin_guard.path}")
    return 0


def _show(state: CliState, found: Sequence[PinState]) -> None:
    rows = [(one.plug_in, one.state, one.file, one.files) for one in found]
    tables.show(state, ("plug-in", "state", "file", "files"), rows, right=(3,))
    for one in found:
        if one.why:
            state.print_line(one.why)
