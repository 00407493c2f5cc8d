"""One session with one MCP server, through the SDK. Importing `session.py` imports the SDK for MCP.

From `connect_pipes` or `connect_http` to `close`, the session runs in an asyncio task of the event loop. Every fault of
an MCP server is raised as ServerFailed with a text that says what the server did.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import mcp_types
from mcp.client._probe import negotiate_auto
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from agent import __version__
from agent.error_text import named
from agent.observe import log
from agent.tools.mcp.base import ServerFailed
from agent.tools.mcp.event_loop import WaitStopped
from agent.tools.mcp.http import http_client
from agent.tools.mcp.offered_tools import ListedTool
from agent.tools.mcp.pipes import pipe_transport
from agent.tools.mcp.traffic import LONGEST_MESSAGE, Flooded, McpTraffic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from agent.tools.mcp.event_loop import EventLoop
    from agent.values import Json

MOST_PAGES = 50
MOST_LISTED = 1000
"""Maximum number of pages, and of tools, in one list of tools."""
LONGEST_TOOL_NAME = 256
CLOSE_SECONDS = 5.0
_CALLED: TypeAdapter[Any] = TypeAdapter(mcp_types.CallToolResult | mcp_types.InputRequiredResult)

for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # a server could fill the log through the loggers of the SDK


class Session:
    """A session that `connect_pipes` or `connect_http` opens; `traffic` counts the bytes and messages that the MCP
    server sends."""

    def __init__(self, loop: EventLoop, is_stopping: Callable[[], bool]) -> None:
        self.loop = loop
        self.is_stopping = is_stopping
        self.traffic = McpTraffic()
        self._client: ClientSession | None = None
        self._ready: asyncio.Event | None = None
        self._task: asyncio.Task[Any] | None = None
        self._closing: asyncio.Event | None = None

    def connect_pipes(self, reader: int, writer: int, seconds: float) -> None:
        """Open a session with an MCP server over two non-blocking descriptors; the session does not close the
        descriptors. Raises ServerFailed."""
        self._connect(lambda: pipe_transport(reader, writer, self.traffic), seconds)

    def connect_http(self, url: str, headers: Mapping[str, str], seconds: float, silence: float) -> None:
        """Open a session with an MCP server at an address; `silence` is the maximum seconds between two parts of an
        answer. Raises ServerFailed."""
        self._connect(lambda: _http_transport(url, headers, silence, self.traffic), seconds)

    def list_tools(self, seconds: float) -> list[ListedTool]:
        """The tools that the MCP server lists. Raises ServerFailed, or WaitStopped if the task has to stop."""
        found: list[ListedTool] = self._run(self._list_tools(), seconds, "list its tools")
        return found

    def call(self, tool: str, arguments: Json, seconds: float) -> Json:
        """The result of one call of a tool, in the JSON form of the protocol. `call` raises the same errors as
        `list_tools`."""
        result: Json = self._run(self._send_call(tool, arguments), seconds, "answer")
        return result

    def close(self) -> None:
        """End the session with the MCP server. A second call of `close` does nothing."""
        task, closing = self._task, self._closing
        self._task = None
        if task is None or self.loop.loop.is_closed():
            return

        async def end() -> None:
            assert closing is not None
            closing.set()
            _, late = await asyncio.wait({task}, timeout=CLOSE_SECONDS / 2)
            if late:
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_SECONDS / 2)

        try:
            self.loop.wait(end(), CLOSE_SECONDS + 1, lambda: False)
        except TimeoutError:
            return  # `close` of the event loop cancels the asyncio task of the session

    # --- in the event loop -----------------------------------------------------------------------------------

    def _connect(self, transport: Callable[[], Any], seconds: float) -> None:
        try:
            self._task = self.loop.start_task(self._live(transport))
        except TimeoutError:
            raise ServerFailed("the event loop of this program is busy with another server") from None
        self._run(self._wait_ready(), seconds, "start a session", connecting=True)

    async def _live(self, transport: Callable[[], Any]) -> None:
        """Open every part of the session, wait for its end, and close the parts in the same asyncio task."""
        self._ready, self._closing = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            reader, writer = await stack.enter_async_context(transport())
            info = mcp_types.Implementation(name="makimono", version=__version__)
            client = await stack.enter_async_context(ClientSession(reader, writer, client_info=info))
            await negotiate_auto(client)
            self._client = client
            self._ready.set()
            await self._closing.wait()

    async def _wait_ready(self) -> None:
        while self._ready is None:
            await asyncio.sleep(0)
        await self._ready.wait()

    async def _list_tools(self) -> list[ListedTool]:
        assert self._client is not None
        found: list[ListedTool] = []
        params: mcp_types.PaginatedRequestParams | None = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(params=params)
            for tool in page.tools:
                if len(tool.name) > LONGEST_TOOL_NAME:
                    raise ServerFailed(f"it lists a tool with a name of {len(tool.name):,} characters")
                found.append(ListedTool(tool.name, tool.description or "", tool.input_schema))
            if len(found) > MOST_LISTED:
                raise ServerFailed(f"it lists more than {MOST_LISTED:,} tools")
            if not page.next_cursor:
                return found
            params = mcp_types.PaginatedRequestParams(cursor=page.next_cursor)
        raise ServerFailed(f"its list of tools has more than {MOST_PAGES} pages")

    async def _send_call(self, tool: str, arguments: Json) -> Json:
        """Call a tool, without the SDK's method `call_tool`, which would check each result by the schema that the
        server has sent."""
        assert self._client is not None
        request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments))
        result = await self._client.send_request(request, _CALLED)
        if isinstance(result, mcp_types.InputRequiredResult):
            raise ServerFailed("it asks for the input of a person, which it does not get here", alive=True)
        made: Json = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return made

    def _run(self, coroutine: Coroutine[Any, Any, Any], seconds: float, what: str, *, connecting: bool = False) -> Any:
        if not connecting:
            self.traffic.start_request()
        try:
            return self.loop.wait(self._raced(coroutine), seconds, self.is_stopping)
        except TimeoutError:
            raise ServerFailed(f"it did not {what} within {seconds:g} s{self._noise()}") from None
        except (ServerFailed, WaitStopped):
            raise
        except Exception as error:  # noqa: BLE001 - the SDK and a hostile server may raise any error
            raise self._translated(_innermost(error)) from None

    def _translated(self, error: BaseException) -> ServerFailed:
        if isinstance(error, ServerFailed):
            return error
        if isinstance(error, MCPError):
            return self._failure_of(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"][:6])
            return ServerFailed(f"its answer is not in the form of the protocol: {where}: {first['msg']}"[:300])
        if not self.traffic.why:
            log.mistake("mcp", "session", error)
        return ServerFailed(self.traffic.why or _error_text(error))

    async def _raced(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of the coroutine; if the session ends first, the error of the session is raised."""
        life = self._task
        assert life is not None
        work = asyncio.ensure_future(coroutine)
        try:
            await asyncio.wait({work, life}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if life.cancelled() or (error := life.exception()) is None:
                raise ServerFailed(self.traffic.why or "it ended")
            raise error
        finally:
            work.cancel()

    def _failure_of(self, error: MCPError) -> ServerFailed:
        status = self.traffic.status
        if self.traffic.why:
            return ServerFailed(self.traffic.why)
        if status in (401, 403):
            return ServerFailed(
                f"it answered {status}: it wants a login, or refuses this one; put a token into `headers`"
            )
        said = f"{error.error.message}"[:500]
        if self.traffic.closed:
            return ServerFailed(f"it ended, or closed the connection{self._noise()}")
        if status is not None and status >= 400:
            said = f"it answered {status}: {said}"
        return ServerFailed(f"error {error.error.code}: {said}", alive=self._is_alive(error))

    def _is_alive(self, error: MCPError) -> bool:
        """Whether the session can still be used after the MCP server answered with an error."""
        status = self.traffic.status
        if status is None:
            return True
        return status < 500 and status != 404 and error.error.code != mcp_types.CONNECTION_CLOSED

    def _noise(self) -> str:
        count = self.traffic.unreadable
        return f"; it wrote {count:,} line(s) that are no messages of the protocol" if count else ""


def _http_transport(url: str, headers: Mapping[str, str], silence: float, traffic: McpTraffic) -> Any:
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def opened() -> Any:
        async with (
            http_client(url, headers, silence, traffic) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_MESSAGE) as streams,
        ):
            yield streams

    return opened()


def _innermost(error: BaseException) -> BaseException:
    """The first error in an exception group (also in nested groups); any other error is returned unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _error_text(error: BaseException) -> str:
    if isinstance(error, Flooded | RuntimeError):
        return str(error)[:500]
    return named(error)[:500]
