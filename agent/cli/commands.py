"""Every command module; importing one registers its commands on `app`."""

from agent.cli import running

__all__ = ["running"]
