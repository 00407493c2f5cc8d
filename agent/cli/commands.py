"""Imports every command module; the import of a module registers its commands on `app`."""

from agent.cli import daemon, deliberate, health, inspect, mcp, memory, plugins, prompts, solve

__all__ = ["daemon", "deliberate", "health", "inspect", "mcp", "memory", "plugins", "prompts", "solve"]
