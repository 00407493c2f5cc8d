"""The transport over the stdin and stdout of an MCP server that runs in a sandbox: one JSON-RPC message per line.

The SDK's own transport would start the server itself; with this transport the sandbox starts the server, and the length
of a line is bounded.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from agent.tools.mcp.traffic import LONGEST_MESSAGE, Flooded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent.tools.mcp.traffic import McpTraffic

CHUNK = 1 << 16


@asynccontextmanager
async def pipe_transport(reader: int, writer: int, traffic: McpTraffic) -> AsyncIterator[Any]:
    """The streams of an MCP session over two non-blocking descriptors, which the caller closes afterwards."""
    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        async with to_session:
            try:
                await _read_lines(reader, to_session, traffic)
                traffic.closed = True
            except OSError:
                traffic.closed = True
            except (Flooded, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session finds the end of the stream; `traffic` has the reason for the end

    async def write() -> None:
        async with from_session:
            try:
                async for item in from_session:
                    data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await _write(writer, data.encode() + b"\n")
            except OSError:
                await to_session.aclose()  # the server has ended, so the requests of the session get no answer any more

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()
            for stream in (from_server, to_server):
                stream.close()


async def _read_lines(reader: int, to_session: Any, traffic: McpTraffic) -> None:
    pending = bytearray()
    while True:
        await anyio.wait_readable(reader)
        try:
            chunk = os.read(reader, CHUNK)
        except BlockingIOError:
            continue
        if not chunk:
            return
        traffic.add(len(chunk))
        pending += chunk
        if b"\n" not in chunk:
            if len(pending) > LONGEST_MESSAGE:
                traffic.flood(f"it sent a line of more than {LONGEST_MESSAGE >> 20} MiB")
            continue
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if not line.strip():
                continue
            traffic.add(0, message=True)
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                traffic.unreadable += 1  # the line is no message, but for example a log line that the server printed
                continue
            await to_session.send(SessionMessage(message))


async def _write(writer: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        await anyio.wait_writable(writer)
        try:
            rest = rest[os.write(writer, rest[:CHUNK]) :]
        except BlockingIOError:
            continue
