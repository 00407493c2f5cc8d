"""Findings of `doctor` about MCP servers: whether each can be started or reached, the tokens of its tools, and tools
that changed after they were pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.commands.mcp_servers import survey
from agent.worker.mcp_tools import LEAST_LEFT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields each finding as (state, observation, advice); the state is "ok", "warn" or "fail".

    A server that cannot be used is a warning, since tasks continue without it.  Tools that take too much of the window
    are a failure, since no task can begin then.
    """
    tokens = 0
    for report in survey(settings):
        server, trusted = report.server, settings.mcp_servers[report.server].trust_changes
        if report.error:
            yield "warn", f"{server}: {report.error}", "tasks go on without its tools until it can be used"
            continue
        tokens += report.tokens
        offered = sum(one.offered for one in report.tools)
        said = f"{server}: {offered} of {len(report.tools)} tools are offered, {report.tokens:,} tokens"
        if report.refused and not trusted:
            names = ", ".join(report.refused[:5])
            advice = f"`mcp list` shows them, `mcp accept {server}` accepts them"
            yield "warn", f"{said}; new or changed since they were pinned: {names}", advice
        elif wrong := [f"{one.tool}: {one.problem}" for one in report.tools if one.problem]:
            yield "warn", f"{said}; left out: {'; '.join(wrong[:3])}", "correct `tools`, or report it to its makers"
        else:
            yield "ok", said, ""
    window = settings.provider().context_length
    if tokens > window * (1 - LEAST_LEFT):
        found = f"the tools of all servers take {tokens:,} of the {window:,} tokens of the window"
        advice = "name the tools that are needed in `mcp_servers.NAME.tools`; `mcp list` shows what each costs"
        yield "fail", f"{found}, and must leave {LEAST_LEFT:.0%} of it", advice
