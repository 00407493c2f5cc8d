"""Imports every command module; the import of a module registers its commands on `app`."""

from agent.cli import (
    daemon,
    dashboard,
    deliberate,
    health,
    mcp,
    memory,
    plugins,
    prompts,
    show,
    solve,
    tasks_request_config,
)

__all__ = [
    "daemon",
    "dashboard",
    "deliberate",
    "health",
    "mcp",
    "memory",
    "plugins",
    "prompts",
    "show",
    "solve",
    "tasks_request_config",
]
