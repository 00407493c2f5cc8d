"""Counts the traffic of an MCP server, so that a server that sends too much is ended.

From one request of this program to the next, an MCP server may send at most MOST_BYTES bytes and MOST_MESSAGES
messages, its answers included. The transport of an MCP session calls `add` for the bytes and messages that it receives.
"""

from __future__ import annotations

LONGEST_MESSAGE = 8 << 20
"""Maximum size in bytes of one message of an MCP server, which may be a line or a body."""
MOST_BYTES = 32 << 20
MOST_MESSAGES = 5000


class Flooded(Exception):
    """The error that an MCP server sent too much; its message is the reason."""


class McpTraffic:
    """The traffic of one MCP server: its bytes and messages since this program's newest request. `why` says which
    data of the server ended the session, "" if none did; `unreadable` counts lines that are no messages."""

    def __init__(self) -> None:
        self.bytes = self.messages = 0
        self.unreadable = 0
        self.why = ""
        self.closed = False
        """Whether the MCP server has closed its stdout."""
        self.status: int | None = None
        """The HTTP status of the newest response to a POST; None before the first response, and for a server with
        pipes."""

    def start_request(self) -> None:
        """Set the counters of bytes, messages and unreadable lines to zero."""
        self.bytes = self.messages = self.unreadable = 0

    def add(self, size: int, *, message: bool = False) -> None:
        """Count `size` bytes that the MCP server sent, and with `message` also one message. Raises Flooded if the MCP
        server has sent more than MOST_BYTES or MOST_MESSAGES since the newest request."""
        self.bytes += size
        self.messages += message
        if self.bytes > MOST_BYTES:
            self.flood(f"it sent more than {MOST_BYTES >> 20} MiB without an answer")
        if self.messages > MOST_MESSAGES:
            self.flood(f"it sent more than {MOST_MESSAGES:,} messages without an answer")

    def flood(self, why: str) -> None:
        """Record the reason why the MCP server sent too much, and raise Flooded."""
        self.why = why
        raise Flooded(why)
