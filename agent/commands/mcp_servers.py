"""Starts the configured MCP servers outside a task, and reports their tools: for `mcp list`, `mcp accept` and `doctor`.

A server with a `command` runs in the sandbox as in a task, with an empty work tree.
"""

from __future__ import annotations

import math
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.errors import ConfigError, UsageError
from agent.sandbox import make_sandbox
from agent.sandbox.base import Mounts
from agent.sandbox.probe import TRIAL, trial_folder
from agent.security.redact import masker_of
from agent.security.sanitise import output
from agent.tokens import count_tools, counter_for
from agent.tools.mcp.offered_tools import OfferedTool, offer
from agent.tools.mcp.pinned_tools import Changes, McpLock
from agent.tools.mcp.programs import ServerPrograms
from agent.tools.mcp.servers import McpServers
from agent.worker.mcp_tools import OWN_TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.config import Settings
    from agent.config.host_allowlist import AllowedHost
    from agent.config.mcp_servers import McpServer
    from agent.sandbox.base import Sandbox, Streams
    from agent.tools.mcp.offered_tools import ListedTool
    from agent.values import Finished

PINNED, NEW, CHANGED, UNPINNED = "pinned", "new", "changed", "not pinned yet"


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One tool of a server.

    `state` is the result of comparing the tool with mcp.lock, or "missing" for a tool in the key `tools` of the
    configuration that the server does not list; `problem` is the reason why the model could not get the tool even after
    `mcp accept`, "" if there is none; `offered` is True if the model gets the tool; `tokens` is the tool's size for the
    configured model. `wanted` is False for a tool that the key `tools` of the configuration leaves out.
    """

    tool: str
    name: str
    description: str
    tokens: int
    sha256: str
    state: str
    wanted: bool
    offered: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The report about one MCP server; `error` is the reason why its tools could not be listed, "" if they were. `gone`
    are pinned tools that the MCP server does not list any more."""

    server: str
    transport: str
    error: str
    tools: tuple[ToolReport, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of those tools of the MCP server that the model gets."""
        return sum(one.tokens for one in self.tools if one.offered)

    @property
    def refused(self) -> tuple[str, ...]:
        """The wanted tools that are new, or have changed since they were pinned; unless the server has `trust_changes`,
        the model gets them only after `mcp accept`."""
        return tuple(one.tool for one in self.tools if one.wanted and one.state in (NEW, CHANGED))


def survey(settings: Settings, names: Sequence[str] = ()) -> list[ServerReport]:
    """The reports about the MCP servers with these names, by default all servers; they are started at the same time.

    Raises UsageError for a name that is not configured, ConfigError for a mcp.lock that cannot be read.
    """
    wanted = _checked(settings, names)
    lock = McpLock(settings.base_dir)
    with _listed(settings, wanted) as lists:
        reports = []
        taken = set(OWN_TOOLS)
        for name, listed in lists.items():
            transport = "http" if wanted[name].url is not None else "stdio"
            if isinstance(listed, str):
                reports.append(ServerReport(name, transport, masker_of(settings)(output(listed))))
                continue
            report = _report(settings, name, transport, listed, lock.compare(name, listed), taken)
            taken.update(one.name for one in report.tools if one.offered)
            reports.append(report)
    return reports


def accept(settings: Settings, name: str) -> tuple[Changes, int]:
    """Pin the present tools of an MCP server; returns the differences to the tools that were pinned before, and the
    number of tools.

    Raises UsageError for a name that is not configured, or ConfigError when the MCP server does not list its tools.
    """
    wanted = _checked(settings, [name])
    with _listed(settings, wanted) as lists:
        listed = lists[name]
        if isinstance(listed, str):
            said = masker_of(settings)(output(listed))
            raise ConfigError(f"mcp_servers.{name}: its tools cannot be listed, so nothing was accepted: {said}")
        return McpLock(settings.base_dir).accept(name, listed), len({one.tool for one in listed})


def _checked(settings: Settings, names: Sequence[str]) -> Mapping[str, McpServer]:
    servers = settings.mcp_servers
    for name in names:
        if name not in servers:
            known = ", ".join(servers) or "none"
            raise UsageError(f"no MCP server {name!r} is configured; mcp_servers has {known}")
    return {name: servers[name] for name in names} if names else servers


def _report(
    settings: Settings, name: str, transport: str, listed: Sequence[ListedTool], changes: Changes, taken: set[str]
) -> ServerReport:
    redact, server = masker_of(settings), settings.mcp_servers[name]

    def clean(text: str) -> str:
        return redact(output(text))

    offered, problems = offer(name, listed, server.tools, clean, taken)
    by_tool = {one.tool: one for one in offered}
    count = _counter(settings)
    found: dict[str, ToolReport] = {}
    for one in listed:
        made = by_tool.get(one.tool)
        state = UNPINNED if changes.first else PINNED
        state = NEW if one.tool in changes.new and not changes.first else state
        state = CHANGED if one.tool in changes.changed else state
        found.setdefault(
            one.tool,
            ToolReport(
                clean(one.tool),
                made.name if made is not None else "",
                made.description if made is not None else clean(one.description)[:200],
                count(made) if made is not None else 0,
                one.digest(name),
                state,
                not server.tools or one.tool in server.tools,
                made is not None and (state in (PINNED, UNPINNED) or server.trust_changes),
                clean(problems.get(one.tool, "")),
            ),
        )
    missing = {tool: why for tool, why in problems.items() if tool not in found}
    tools = [
        *found.values(),
        *(ToolReport(tool, "", "", 0, "", "missing", True, False, why) for tool, why in missing.items()),
    ]
    return ServerReport(name, transport, "", tuple(tools), tuple(map(clean, changes.gone)))


def _counter(settings: Settings) -> Callable[[OfferedTool], int]:
    """A function that counts the tokens of an MCP tool for the configured model."""
    counter = counter_for(settings.provider().model)

    def count(tool: OfferedTool) -> int:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return count_tools(counter, [{"type": "function", "function": function}])

    return count


@contextmanager
def _listed(settings: Settings, wanted: Mapping[str, McpServer]) -> Iterator[dict[str, list[ListedTool] | str]]:
    sandbox = make_sandbox(settings, uuid=TRIAL, base_dir=settings.base_dir)
    with (
        trial_folder(sandbox.uid) as work,
        closing(
            McpServers(wanted, _Runner(sandbox, work), lambda: False, ServerPrograms(settings, sandbox).argv)
        ) as servers,
    ):
        yield servers.list_all(wanted)


class _Runner:
    """Runs MCP servers in an empty work tree, with the interface `tools.mcp.base.RunServer`."""

    def __init__(self, sandbox: Sandbox, work: Path) -> None:
        self.sandbox = sandbox
        self.work = work

    def __call__(
        self,
        command: str,
        streams: Streams,
        *,
        network: Sequence[AllowedHost],
        env: Mapping[str, str],
        stop: Callable[[], bool],
    ) -> Finished:
        return self.sandbox.run(
            command,
            Mounts(self.work),
            timeout=math.inf,
            network=network,
            env=env,
            cap=1 << 16,
            stop=stop,
            streams=streams,
        )
