"""Every command module; importing one registers its commands on `app`."""

from agent.cli import health, looking, running, solving

__all__ = ["health", "looking", "running", "solving"]
