"""Defines values and a protocol that the modules of the package `mcp` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agent.errors import MakimonoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.config.host_allowlist import AllowedHost
    from agent.sandbox.base import Streams
    from agent.values import Finished


class ServerFailed(MakimonoError):
    """The error that an MCP server could not be started or did not fulfil a request; the message says what the server
    did instead.

    `alive` is True if the session with the server can still be used.
    """

    code = "mcp_server"

    def __init__(self, message: str, *, alive: bool = False) -> None:
        super().__init__(message)
        self.alive = alive


class RunServer(Protocol):
    """Runs the command of an MCP server to its end in the sandbox of the task.

    Raises SandboxUnavailable or ToolError when the command cannot be started.
    """

    def __call__(
        self,
        command: str,
        streams: Streams,
        *,
        network: Sequence[AllowedHost],
        env: Mapping[str, str],
        stop: Callable[[], bool],
    ) -> Finished: ...
