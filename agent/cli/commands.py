"""Every command module; importing one registers its commands on `app`."""

from agent.cli import daemon, health, inspect, memory, solve

__all__ = ["daemon", "health", "inspect", "memory", "solve"]
