"""A server made with the SDK's own: over stdio, or over HTTP on the port in PORT with `--http`."""

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


@server.tool()
def slow(seconds: float) -> str:
    """Wait, then answer."""
    import time

    time.sleep(seconds)
    return "waited"


if "--http" in sys.argv:
    server.run("streamable-http", port=int(os.environ["PORT"]))
else:
    server.run("stdio")
