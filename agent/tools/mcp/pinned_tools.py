"""Reads and writes mcp.lock in base_dir: hashes of the descriptions of MCP tools, as the server first sent them or as a
person accepted them later.

A server may change the description of a tool after a person has read it, and descriptions reach the model. To detect a
changed description, mcp.lock has a hash of each tool of each MCP server (`offered_tools.ListedTool.digest`). The first
list of tools that a server sends is pinned without a question to a person. A tool that is not pinned, or has changed
since it was pinned, is refused until a person runs `mcp accept`, which pins the present list; with `trust_changes` of
the server it is pinned without a person. All workers of a base_dir share mcp.lock; each change is made under a lock,
and the file is replaced as a whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import clock, durable_files
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.tools.mcp.offered_tools import ListedTool

NAME = "mcp.lock"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between the tools that an MCP server lists and the pinned tools, as names of tools.

    `first`: no list of tools of this server was pinned before. `gone` are the pinned tools that the server does not
    list any more.
    """

    first: bool
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """The tools that the model gets only after they were accepted (`accept`)."""
        return () if self.first else (*self.new, *self.changed)


class McpLock:
    """The file mcp.lock in `base_dir`.  All methods raise ConfigError for a file that cannot be read, or DiskError."""

    def __init__(self, base_dir: Path) -> None:
        self.path = base_dir / NAME
        self._guard = base_dir / f".{NAME}"

    def compare(self, server: str, listed: Sequence[ListedTool]) -> Changes:
        """The differences between the list of tools of an MCP server and the pinned list; mcp.lock is not changed."""
        return _changes(self._read().get(server), server, listed)

    def pin_first(self, server: str, listed: Sequence[ListedTool]) -> Changes:
        """Like `compare`, but the list of tools is pinned if no list of this server was pinned before."""
        with durable_files.locked(self._guard):
            pinned = self._read()
            changes = _changes(pinned.get(server), server, listed)
            if changes.first:
                self._write({**pinned, server: _pins(server, listed)})
        return changes

    def accept(self, server: str, listed: Sequence[ListedTool]) -> Changes:
        """Pin the list of tools in place of the old list; return the differences."""
        durable_files.make_dir(self.path.parent, durable_files.passable())
        with durable_files.locked(self._guard):
            pinned = self._read()
            changes = _changes(pinned.get(server), server, listed)
            self._write({**pinned, server: _pins(server, listed)})
        return changes

    def pinned(self) -> dict[str, dict[str, str]]:
        """The pinned hashes: server → tool → digest."""
        return {
            server: {tool: str(pin["sha256"]) for tool, pin in tools.items()} for server, tools in self._read().items()
        }

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(str(error)) from error
        servers = data.get("servers") if isinstance(data, dict) else None
        if not isinstance(servers, dict) or data.get("version") != VERSION:
            raise self._damaged(f'it is no JSON object with "version": {VERSION} and "servers"')
        for tools in servers.values():
            if not isinstance(tools, dict) or not all(
                isinstance(pin, dict) and isinstance(pin.get("sha256"), str) for pin in tools.values()
            ):
                raise self._damaged('"servers" must have for each server its tools with their "sha256"')
        return servers

    def _damaged(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self.path} cannot be used: {why}. Restore it from a backup, or move it away: then the next list of each "
            "server is pinned anew, so look at the tools first (`mcp list`)"
        )

    def _write(self, servers: dict[str, dict[str, Any]]) -> None:
        text = json.dumps({"version": VERSION, "servers": servers}, indent=1, sort_keys=True)
        durable_files.write_file(self.path, text.encode() + b"\n")


def _pins(server: str, listed: Sequence[ListedTool]) -> dict[str, Any]:
    now = clock.stamp()
    return {one.tool: {"sha256": one.digest(server), "pinned_at": now} for one in reversed(listed)}


def _changes(pinned: dict[str, Any] | None, server: str, listed: Sequence[ListedTool]) -> Changes:
    if pinned is None:
        return Changes(first=True, new=tuple(dict.fromkeys(one.tool for one in listed)))
    # of two tools with the same name only the first is pinned
    found = {one.tool: one.digest(server) for one in reversed(listed)}
    return Changes(
        first=False,
        new=tuple(tool for tool in found if tool not in pinned),
        changed=tuple(tool for tool, digest in found.items() if tool in pinned and pinned[tool]["sha256"] != digest),
        gone=tuple(tool for tool in pinned if tool not in found),
    )
