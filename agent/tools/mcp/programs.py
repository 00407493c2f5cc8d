"""Finds the program of an MCP server once, before its first start, and checks that neither commands of the model nor
another user can change the program.

The program of a server and its arguments are a list, which no shell interprets.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import configured_commands
from agent.errors import CommandRefused
from agent.sandbox import environment
from agent.sandbox.base import GIT, HOME, WORK, traits_of

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.config.mcp_servers import McpServer
    from agent.sandbox.base import Sandbox

SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".py", ".pyz", ".sh", ".rb", ".pl", ".php", ".jar", ".lua")


class ServerPrograms:
    """Finds the programs of the configured MCP servers, in one sandbox."""

    def __init__(self, settings: Settings, sandbox: Sandbox) -> None:
        self.settings = settings
        self.sandbox = sandbox
        inside = traits_of(sandbox).isolates
        self.tree = Path(WORK) if inside else settings.base_dir / "running"
        self.writable = (self.tree, Path(HOME), Path(GIT), settings.base_dir) if inside else (settings.base_dir,)
        self._found: dict[str, tuple[str, ...]] = {}

    def argv(self, name: str, server: McpServer) -> tuple[str, ...]:
        """The program of an MCP server, by its absolute path, and its arguments.

        A program that is not found is returned by its name, and then the start of the server fails. Raises
        CommandRefused for a program in a place that commands of the model can write, or that another user may write,
        and if another user may write the configuration file that sets the server's command.
        """
        if name not in self._found:
            configured_commands.check(self.settings, configured_commands.server_command(name))
            # programs that a plug-in's sandbox has of its own are not checked
            checks = traits_of(self.sandbox).has_host_programs
            self._found[name] = self._checked(name, server) if checks else _command_line(server)
        return self._found[name]

    def _checked(self, name: str, server: McpServer) -> tuple[str, ...]:
        key = configured_commands.server_command(name)
        program, *args = _command_line(server)
        path = self._path(program, server)
        if path is not None:
            self._refuse_writable(key, program, path)
            if path.is_file():
                self.settings.plugin_guard.check_program(key, path)
        for number, argument in enumerate(args):
            self._check_script(f"mcp_servers.{name}.args", argument, server, first=not number)
        return (str(path) if path is not None else program, *args)

    def _path(self, program: str, server: McpServer) -> Path | None:
        """The absolute path of a program inside the sandbox; None for a name that no folder of PATH contains."""
        if "/" in program:
            return Path(os.path.normpath(Path(self.tree, server.cwd or "", program)))
        interpreter = getattr(self.sandbox, "interpreter", None)
        found = shutil.which(program, path=environment.search_path(str(interpreter) if interpreter else None))
        return Path(found) if found is not None else None

    def _check_script(self, key: str, argument: str, server: McpServer, *, first: bool) -> None:
        """Check one argument of an MCP server: an absolute path to a program or script; and if the server has the
        setting `env`, also the first argument if its name ends like a script's. Raises CommandRefused."""
        is_script = argument.endswith(SCRIPTS)
        if first and is_script and server.env and not argument.startswith("-"):
            self._refuse_writable(key, argument, Path(os.path.normpath(Path(self.tree, server.cwd or "", argument))))
        path = Path(argument)
        if path.is_absolute() and path.is_file() and (is_script or os.access(path, os.X_OK)):
            self.settings.plugin_guard.check_program(key, path)

    def _refuse_writable(self, key: str, written: str, path: Path) -> None:
        if any(path.is_relative_to(place) for place in self.writable):
            raise CommandRefused(
                f"{key}: {written} is in a folder that commands of the model can write, so they could replace it; "
                "install it elsewhere (sandbox.read_only shows a folder), and name it by its absolute path"
            )


def _command_line(server: McpServer) -> tuple[str, ...]:
    assert server.command is not None
    return (server.command, *server.args)
