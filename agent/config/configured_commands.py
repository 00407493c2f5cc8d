"""Lists the keys of config.yaml that name commands, and refuses a command if other users may write the file that names
it.

`workspace.setup.command` and `verify.command`, also in an entry of `projects`, are shell lines;
`mcp_servers.NAME.command` is a program with arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.config.base import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config.settings import Settings

SETUP, VERIFY = "workspace.setup.command", "verify.command"


def server_command(name: str) -> str:
    """The configuration key for the command of an MCP server."""
    return f"mcp_servers.{name}.command"


def commands_of(settings: Settings) -> Iterator[str]:
    """The configuration keys that set a command in this configuration."""
    if settings.workspace.setup is not None:
        yield SETUP
    if settings.verify.command is not None:
        yield VERIFY
    for name in SOURCES:
        hosts = getattr(settings, name)
        many = hosts if isinstance(hosts, tuple) else ()
        for number, one in enumerate(many):
            if any(entry.commands() for entry in one.projects):
                yield f"{name}.{number}.projects" if len(many) > 1 else f"{name}.projects"
    yield from (server_command(name) for name, one in settings.mcp_servers.items() if one.command is not None)


def check_commands(settings: Settings) -> None:
    """Raise CommandRefused for the first configured command that must not be run."""
    for key in commands_of(settings):
        check(settings, key)


def check(settings: Settings, key: str) -> None:
    """Raise CommandRefused if the command that the key `key` names must not be run (`PluginGuard.check_command` has the
    rule)."""
    settings.plugin_guard.check_command(key, settings.origin(key))
