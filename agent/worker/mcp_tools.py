"""The tools of MCP servers in one task.

The tools of all MCP servers are listed once, before the first message of the task, and recorded in mcp.jsonl. Every
later process of the task offers the model these recorded MCP tools. A replay starts no MCP server: the calls of tools
return the recorded results. docs/mcp.md has the rules.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigError, ToolError
from agent.security.sanitise import output
from agent.tools.base import TOOLS
from agent.tools.mcp.base import ServerFailed
from agent.tools.mcp.event_loop import WaitStopped
from agent.tools.mcp.offered_tools import MOST_TOOLS, OfferedTool, offer
from agent.tools.mcp.pinned_tools import McpLock
from agent.tools.mcp.programs import ServerPrograms
from agent.tools.mcp.results import raw_result
from agent.tools.mcp.servers import McpServers
from agent.tools.mcp.tool import McpTool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.context.mcp import McpStore
    from agent.tools import Toolbox
    from agent.tools.base import RawResult
    from agent.tools.mcp.offered_tools import ListedTool
    from agent.values import Json
    from agent.worker.command_runner import CommandRunner
    from agent.worker.task_run import TaskRun

LEAST_LEFT = 0.6
"""The share of the window that all tools of a task together must leave free."""
OWN_TOOLS = (*TOOLS.entries, "recall")
NAMED = 12
"""Maximum number of tools that a text for people names."""


class TaskMcpTools:
    """The MCP tools and servers of one task.

    `tools` are the MCP tools for the toolbox; `servers` is None in a replay. Raises ConfigError if mcp.lock cannot be
    read or the servers have too many tools.
    """

    def __init__(self, run: TaskRun, commands: CommandRunner) -> None:
        self.run = run
        self.commands = commands
        self.settings = run.settings.mcp_servers
        self.store = run.context.get_mcp_store()
        self.servers: McpServers | None = None
        self._recorded: dict[str, deque[Json]] | None = None
        self._notices: list[str] = []
        if run.publishing:
            self.servers = McpServers(
                self.settings,
                commands.run_server,
                self._is_stopping,
                ServerPrograms(run.settings, commands.sandbox).argv,
            )
            run.held.callback(self.servers.close)
            if not run.is_briefed():
                self._take_lists(self.servers)
        else:
            self._recorded = recorded_calls(self.store)
        run.reports.extend(self.store.notices())
        self.tools = [McpTool(OfferedTool.from_dict(one), self._answer) for one in self.store.tools() or ()]

    def check_window(self, tools: Toolbox, count: Callable[[str], int], window: int) -> None:
        """Raise ConfigError if the MCP tools leave too little of the window to the task; this is checked only when a
        task begins."""
        if not self.tools or self.run.is_briefed():
            return
        all_tools = sum(count(_text(schema)) for schema in tools.schemas())
        if all_tools <= window * (1 - LEAST_LEFT):
            return
        costs = sorted(((count(tool_text(tool.offered)), tool.offered) for tool in self.tools), key=lambda one: -one[0])
        large = ", ".join(f"{one.server}: {one.tool} {tokens:,}" for tokens, one in costs[:NAMED])
        raise ConfigError(
            f"mcp_servers: the tools of this task take {all_tools:,} of the {window:,} tokens of the window, and must "
            f"leave {LEAST_LEFT:.0%} of it. Name the tools that are needed in `mcp_servers.NAME.tools`, without the "
            f"large ones ({large}), or use a model with a larger window; `mcp list` shows what each costs"
        )

    # --- the lists -------------------------------------------------------------------------------------------

    def _take_lists(self, servers: McpServers) -> None:
        """List the tools of all MCP servers, and record the tools that the model will get."""
        lock = McpLock(self.run.settings.base_dir)
        found: list[OfferedTool] = []
        self.commands.check_stop()
        try:
            lists = servers.list_all(self.settings)
        except WaitStopped:
            self.commands.check_stop()
            raise
        for name, listed in lists.items():
            if isinstance(listed, str):
                self._report_failure(name, listed)
                continue
            found += self._offered(lock, name, listed, found)
        room = MOST_TOOLS - len(OWN_TOOLS)
        if len(found) > room:
            raise ConfigError(
                f"mcp_servers: the servers have {len(found):,} tools together, and model servers take at most "
                f"{room} beside those of this program. Name the tools that are needed in `mcp_servers.NAME.tools`; "
                "`mcp list` shows all"
            )
        self.store.add_tools([one.to_dict() for one in found], self._notices)
        self.store.sync(force=True)

    def _offered(
        self, lock: McpLock, name: str, listed: Sequence[ListedTool], before: Sequence[OfferedTool]
    ) -> list[OfferedTool]:
        """The tools of one MCP server for the model. `_offered` pins the first list of a server in mcp.lock; tools that
        changed later are left out and reported or, with `trust_changes`, pinned anew."""
        run, server = self.run, self.settings[name]
        changes = lock.pin_first(name, listed)
        refused: set[str] = set()
        if changes.first:
            run.events.emit("mcp_pinned", server=name, tools=len(listed))
        elif changes.refused and server.trust_changes:
            lock.accept(name, listed)
            run.events.emit("mcp_accepted", server=name, tools=_join_names(changes.refused))
        elif wanted := [tool for tool in changes.refused if not server.tools or tool in server.tools]:
            refused = set(wanted)
            run.events.emit("mcp_changed", server=name, tools=_join_names(wanted))
            self._notices.append(
                f"The MCP server `{name}` has changed or added tools since they were accepted, and the model did not "
                f"get them: {_join_names(wanted)}. `mcp list` shows them, `mcp accept {name}` accepts them."
            )
        taken = {*OWN_TOOLS, *(one.name for one in before)}
        kept = [one for one in listed if one.tool not in refused]
        tools, left_out = offer(name, kept, server.tools, self._clean, taken)
        left_out = {tool: why for tool, why in left_out.items() if tool not in refused}
        run.events.emit("mcp_listed", server=name, tools=len(tools), left_out=_join_names(map(_pair, left_out.items())))
        if left_out:
            told = _join_names(map(_pair, left_out.items()))
            self._notices.append(f"Tools of the MCP server `{name}` were left out: {self._clean(told)}.")
        return tools

    def _clean(self, text: str) -> str:
        return self.run.redact(output(text))

    def _report_failure(self, name: str, why: str, tool: str = "") -> None:
        said = self._clean(why)
        self.run.events.emit("mcp_failed", server=name, tool=tool, error=said)
        if not tool:
            self._notices.append(f"The MCP server `{name}` could not be used, and the model had no tools of it: {said}")

    # --- calls -----------------------------------------------------------------------------------------------

    def _is_stopping(self) -> bool:
        return self.run.control.poll() is not None

    def _answer(self, tool: OfferedTool, arguments: Json) -> RawResult:
        """Call an MCP tool, record its result and return it; in a replay, return the recorded result. Raises ToolError
        if the call fails, and in a replay if it was not recorded."""
        if self._recorded is not None:
            return self._replayed(tool, arguments)
        try:
            result = raw_result(self._call_tool(tool, arguments))
        except ToolError as error:
            self.store.add_call(tool.name, arguments, {"error": str(error)})
            raise
        finally:
            if self.settings.get(tool.server) is not None and self.settings[tool.server].command is not None:
                self.commands.flush_files()
        self.store.add_call(tool.name, arguments, {"text": result.text, "head": result.head, "status": result.status})
        return result

    def _call_tool(self, tool: OfferedTool, arguments: Json) -> Json:
        assert self.servers is not None
        server = self.settings.get(tool.server)
        if server is None:
            raise ToolError(f"the MCP server {tool.server} is not configured any more; work without its tools")
        try:
            listed = {one.tool: one for one in reversed(self.servers.connected(tool.server).tools)}
            now = listed.get(tool.tool)
            if now is None:
                raise ToolError(f"the MCP server {tool.server} does not offer {tool.tool} any more; work without it")
            if now.digest(tool.server) != tool.digest and not server.trust_changes:
                self.run.events.emit("mcp_changed", server=tool.server, tools=tool.tool)
                raise ToolError(
                    f"the MCP server {tool.server} has changed {tool.tool} since this task began, so it is not called; "
                    "work without it"
                )
            return self.servers.call(tool.server, tool.tool, tool.arguments(arguments))
        except ServerFailed as error:
            if not error.alive:
                self._report_failure(tool.server, str(error), tool.tool)
            raise ToolError(
                f"the MCP server {tool.server} failed: {error}. The call may have had an effect: look before you "
                "repeat it, or work without this tool"
            ) from None
        except WaitStopped:
            raise ToolError("the call was ended, since the task was told to end; it may have had an effect") from None

    def _replayed(self, tool: OfferedTool, arguments: Json) -> RawResult:
        from agent.context.secret_masking import masked
        from agent.tools.base import RawResult

        assert self._recorded is not None
        waiting = self._recorded.get(_key(tool.name, masked(arguments, self.run.redact)))
        if not waiting:
            raise ToolError("this call is not in the recorded task, and a replay starts no server")
        record = waiting.popleft() if len(waiting) > 1 else waiting[0]
        if (error := record.get("error")) is not None:
            raise ToolError(str(error))
        return RawResult(str(record.get("text")), status=str(record.get("status")), head=str(record.get("head")))


def recorded_calls(store: McpStore) -> dict[str, deque[Json]]:
    """The recorded calls of MCP tools, by tool and arguments; calls with the same arguments stay in their order."""
    found: dict[str, deque[Json]] = defaultdict(deque)
    for record in store.calls():
        found[_key(str(record.get("name")), record.get("args"))].append(record)
    return dict(found)


def tool_text(tool: OfferedTool) -> str:
    """The schema of an MCP tool as it is sent to the model, for counting its tokens."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return _text({"type": "function", "function": function})


def _text(schema: Json) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _key(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True, ensure_ascii=False, default=str)


def _pair(item: tuple[str, str]) -> str:
    return f"{item[0]} ({item[1]})"


def _join_names(names: Any) -> str:
    """Join names into one text, at most NAMED of them."""
    every = [str(name)[:200] for name in names]
    more = f" and {len(every) - NAMED:,} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more
