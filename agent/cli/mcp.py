"""`mcp`: commands that show the tools of MCP servers, and accept changes of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import tables
from agent.cli.app import app

if TYPE_CHECKING:
    from agent.cli.config_and_output import CliState

mcp = typer.Typer(help="MCP servers: their tools, and changes of them.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(mcp, name="mcp")

SHOWN = 12
"""The number of digits of a tool's hash that the list of tools shows."""


@mcp.command("list")
def list_servers(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these servers; without one, all of them.")
    ] = None,
) -> int:
    """Start the configured servers, and show their tools: tokens, hash, and whether mcp.lock has them."""
    from agent.commands.mcp_servers import survey

    state: CliState = context.obj
    reports = survey(state.settings, names or ())
    state.print_json([{**asdict(one), "tokens": one.tokens, "refused": list(one.refused)} for one in reports])
    if not reports:
        state.print_line("no MCP server is configured (`mcp_servers` is empty)")
    for report in reports:
        head = f"{report.server} ({report.transport})"
        if report.error:
            state.print_line(f"{head}: cannot be used: {report.error}")
            continue
        state.print_line(f"{head}: {len(report.tools)} tools, {report.tokens:,} tokens of the model")
        rows = [
            (
                one.tool,
                one.tokens if one.offered else "-",
                one.sha256[:SHOWN],
                one.state,
                one.problem or one.description,
            )
            for one in report.tools
        ]
        tables.show(state, ("tool", "tokens", "sha256", "mcp.lock", "description"), rows, right=(1,), cut=(4,))
        if report.gone:
            state.print_line(f"pinned, and not listed any more: {', '.join(report.gone)}")
        if report.refused:
            state.print_line(f"`mcp accept {report.server}` accepts what is new or changed")
    return 0 if not any(one.error for one in reports) else 1


@mcp.command()
def accept(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The server, as in mcp_servers.")]
) -> int:
    """Accept the present tools of an MCP server: later tasks get the tools that are new or have changed."""
    from agent.commands.mcp_servers import accept as accept_tools

    state: CliState = context.obj
    changes, count = accept_tools(state.settings, name)
    state.print_json({"server": name, "tools": count, **asdict(changes)})
    state.print_line(f"{name}: {count} tools are accepted")
    for word, tools in (("new", changes.new), ("changed", changes.changed), ("gone", changes.gone)):
        if tools:
            state.print_line(f"{word}: {', '.join(tools)}")
    return 0
