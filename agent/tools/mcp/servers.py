"""The MCP servers of one task: each server is started at its first use, started again after a failure, and ended with
the task.

Only the worker's own thread calls the public methods of `McpServers`. An MCP server with a `command` has a thread of
its own, which waits for the command; sessions live in the thread of `event_loop.py`.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import clock, deadline, process_tree
from agent.config.host_allowlist import parse_all
from agent.error_text import named
from agent.errors import CommandRefused, MakimonoError
from agent.observe import log
from agent.sandbox.base import Streams
from agent.tools.mcp.base import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.config.mcp_servers import McpServer
    from agent.tools.mcp.base import RunServer
    from agent.tools.mcp.event_loop import EventLoop
    from agent.tools.mcp.offered_tools import ListedTool
    from agent.tools.mcp.session import Session
    from agent.values import Json

MOST_STARTS = 5
"""Maximum number of starts of one MCP server, or of connections to one with a `url`, in one attempt of a task."""
GRACE = 1.0
"""Seconds that an MCP server gets to end after its stdin was closed; then its processes are killed."""
KILL_SECONDS = 10.0
LONGEST_STDERR = 600
SAFE = {"PYTHONSAFEPATH": "1"}
"""Environment variables that each MCP server gets: because of PYTHONSAFEPATH, `python -m` does not import modules from
its current folder, which may be the work tree."""
Argv = Callable[[str, "McpServer"], "Sequence[str]"]
"""A function that returns the program and the arguments of an MCP server (`programs.ServerPrograms.argv`)."""


class ServerProcess:
    """The running command of an MCP server."""

    def __init__(self, name: str, server: McpServer, argv: Sequence[str], run: RunServer) -> None:
        self.name = name
        self.failure = ""
        self.stderr = ""
        self._stop = threading.Event()
        inside, self.writer = os.pipe()
        self.reader, outside = os.pipe()
        os.set_blocking(self.writer, False)
        os.set_blocking(self.reader, False)
        self._closed = False
        self._ends = [inside, outside]
        self.pid = 0
        # a daemon thread does not prevent the end of this process; the sandbox of the server is killed when its thread
        # ends
        self.thread = threading.Thread(
            target=self._serve, args=(server, argv, run, inside, outside), name=f"mcp {name}", daemon=True
        )
        self.thread.start()

    def _serve(self, server: McpServer, argv: Sequence[str], run: RunServer, inside: int, outside: int) -> None:
        try:
            env = SAFE | {name: value.get_secret_value() for name, value in server.env.items()}
            streams, network = Streams(inside, outside, self._started), parse_all(server.network)
            done = run(command_line(argv, server.cwd), streams, network=network, env=env, stop=self._stop.is_set)
            self.stderr = done.output.decode("utf-8", "replace").strip()
            if done.why:
                self.failure = f"its process was ended: {done.why}"
            elif not self._stop.is_set() and (done.returncode or not self._closed):
                # a server that ended because its stdin was closed has not failed
                self.failure = f"its process ended with exit code {done.returncode}"
        except MakimonoError as error:
            self.failure = str(error)
        except Exception as error:  # noqa: BLE001 - an error that is raised in the thread of a server would otherwise be lost
            log.mistake("mcp", self.thread.name, error)
            self.failure = named(error)
        finally:
            self._close_ends()

    def _started(self, pid: int) -> None:
        self.pid = pid
        self._close_ends()  # the server has copies of these two pipe ends, and this process needs them no longer

    def _close_ends(self) -> None:
        for descriptor in self._ends:
            os.close(descriptor)
        self._ends = []

    def freeze(self) -> bool:
        """Suspend all processes of the MCP server until `thaw` or the next call; returns False if that is not possible.

        A server that is not suspended could change files while this program commits them.
        """
        return not self.pid or not self.thread.is_alive() or process_tree.freeze(self.pid)

    def thaw(self) -> None:
        """Let the suspended processes of the MCP server continue."""
        if self.pid and self.thread.is_alive():
            process_tree.thaw(self.pid)

    def close_input(self) -> None:
        """Close the stdin of the MCP server, which tells it to end."""
        if not self._closed:
            self._closed = True
            os.close(self.writer)

    def close(self) -> None:
        """End the MCP server and all its processes."""
        self.close_input()
        self.thaw()
        self.thread.join(GRACE)
        self._stop.set()
        self.thread.join(KILL_SECONDS)
        with suppress(OSError):
            if self.reader >= 0:
                os.close(self.reader)
                self.reader = -1

    def failure_reason(self) -> str:
        """The reason why the MCP server failed, with the last part of its stderr; "" if it runs or ended without an
        error."""
        self.thread.join(0.5)
        if not self.failure:
            return ""
        said = self.stderr[-LONGEST_STDERR:]
        return f"{self.failure}; stderr: {said}" if said else self.failure


def command_line(argv: Sequence[str], cwd: str | None) -> str:
    """The command line that runs an MCP server, as the contract of a sandbox demands: each argument is quoted."""
    line = f"exec {shlex.join(argv)}"
    return line if cwd is None else f"cd -- {shlex.quote(cwd)} && {line}"


class ConnectedServer:
    """One MCP server with an open session."""

    def __init__(self, session: Session, process: ServerProcess | None, tools: list[ListedTool]) -> None:
        self.session = session
        self.process = process
        self.tools = tools

    def close(self) -> None:
        """Close the session with the MCP server, then end its process: the session uses the pipes of the process."""
        self.session.close()
        if self.process is not None:
            self.process.close()


class McpServers:
    """The MCP servers of one task.

    `run` runs a command in the sandbox; `is_stopping` returns whether the task shall stop; `argv` gives program and
    arguments of a server, or raises CommandRefused.
    """

    def __init__(
        self, servers: Mapping[str, McpServer], run: RunServer, is_stopping: Callable[[], bool], argv: Argv
    ) -> None:
        self.servers = servers
        self.argv = argv
        self.run = run
        self.is_stopping = is_stopping
        self._loop: EventLoop | None = None
        self._open: dict[str, ConnectedServer] = {}
        self._starts: dict[str, int] = {}

    def list_all(self, names: Iterable[str]) -> dict[str, list[ListedTool] | str]:
        """name → the tools of the MCP server, or the reason why it cannot be used; the servers start at the same time,
        and the result has the order of `names`.
        """
        names = list(names)
        if not names:
            return {}
        self._event_loop()
        longest = max(self.servers[name].timeout for name in names)
        begun = {name: self._begin(name) for name in names}
        with ThreadPoolExecutor(len(names), thread_name_prefix="mcp-start") as pool:
            waiting = {name: pool.submit(self._finish, name, begun[name]) for name in names}
            with deadline.within("MCP servers", longest + KILL_SECONDS):
                wait(waiting.values())
        found: dict[str, list[ListedTool] | str] = {}
        for name, future in waiting.items():
            try:
                found[name] = future.result().tools
            except ServerFailed as error:
                found[name] = str(error)
        return found

    def connected(self, name: str) -> ConnectedServer:
        """The connection to the MCP server `name`, which is started if it does not run. Raises ServerFailed."""
        known = self._open.get(name)
        if known is not None:
            if known.process is None or known.process.thread.is_alive():
                return known
            self.drop(name)
        return self._finish(name, self._begin(name))

    def call(self, name: str, tool: str, arguments: Json) -> Json:
        """The result of one call of an MCP tool, in the JSON form of the protocol.

        Raises ServerFailed; if the session cannot be used any more, the server is started again at the next call.
        """
        server = self.connected(name)
        try:
            if server.process is not None:
                server.process.thaw()
            result = server.session.call(tool, arguments, self.servers[name].timeout)
        except ServerFailed as error:
            if error.alive and self._freeze(name):
                raise
            raise self._dropped(name, error) from None
        except BaseException:
            # The connection is dropped, since a late answer to a stopped call must not reach the next call.
            self.drop(name)
            raise
        if not self._freeze(name):
            self.drop(name)
        return result

    def _freeze(self, name: str) -> bool:
        process = self._open[name].process
        return process is None or process.freeze()

    def drop(self, name: str) -> str:
        """End an MCP server; return the reason why its process failed, "" if it did not fail."""
        known = self._open.pop(name, None)
        if known is None:
            return ""
        why = ""
        if known.process is not None and not known.process.thread.is_alive():
            why = known.process.failure_reason()
        known.close()
        return why or (known.process.failure_reason() if known.process is not None else "")

    def close(self) -> None:
        """End all MCP servers of the task and the thread of the event loop."""
        for name in list(self._open):
            with suppress(MakimonoError):
                self.drop(name)
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    # --- starting ----------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> ServerProcess | ServerFailed | None:
        """Start the process of an MCP server, if its configuration has a command; returns None for one with a `url`,
        and the error if the server may not be started."""
        starts = self._starts.get(name, 0)
        if starts >= MOST_STARTS:
            return ServerFailed(f"it was started {starts} times in this task and is not started again")
        self._starts[name] = starts + 1
        server = self.servers[name]
        if server.command is None:
            return None
        try:
            return ServerProcess(name, server, self.argv(name, server), self.run)
        except CommandRefused as error:
            return ServerFailed(str(error))

    def _finish(self, name: str, begun: ServerProcess | ServerFailed | None) -> ConnectedServer:
        """Open the session with an MCP server, and list its tools; a server with a command is then suspended until its
        next call. Raises ServerFailed."""
        if isinstance(begun, ServerFailed):
            raise begun
        from agent.tools.mcp.session import Session

        server = self.servers[name]
        session = Session(self._event_loop(), self.is_stopping)
        until = clock.monotonic() + server.timeout
        try:
            if begun is not None:
                session.connect_pipes(begun.reader, begun.writer, server.timeout)
            else:
                headers = {key: value.get_secret_value() for key, value in server.headers.items()}
                session.connect_http(str(server.url), headers, server.timeout, server.timeout)
            tools = session.list_tools(max(1.0, until - clock.monotonic()))
        except BaseException as error:
            ConnectedServer(session, begun, []).close()
            if isinstance(error, ServerFailed):
                raise _explained(error, begun) from None
            raise
        made = self._open[name] = ConnectedServer(session, begun, tools)
        if begun is not None and not begun.freeze():
            raise self._dropped(name, ServerFailed("its processes could not be stopped after its start"))
        return made

    def _dropped(self, name: str, error: ServerFailed) -> ServerFailed:
        process = self._open[name].process
        self.drop(name)
        return _explained(error, process)

    def _event_loop(self) -> EventLoop:
        if self._loop is None:
            from agent.tools.mcp.event_loop import EventLoop

            self._loop = EventLoop()
        return self._loop


def _explained(error: ServerFailed, process: ServerProcess | None) -> ServerFailed:
    """The error of a call, with the reason why the process of the MCP server ended, if it ended by itself."""
    why = process.failure_reason() if process is not None else ""
    return ServerFailed(f"{error}; {why}") if why else error
