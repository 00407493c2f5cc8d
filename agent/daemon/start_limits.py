"""The limits within which the daemon reserves queued tasks (`limits.at_once`, for each repository, person and model
server), and the name of the model server for which tasks are counted.

The module `supervisor.py` reserves tasks within these limits, and `task_reasons.py` says which limit a waiting task has
reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.taskqueue import AtOnce

if TYPE_CHECKING:
    from agent.config import Settings


def server_of(settings: Settings) -> str:
    """The model server of the configuration, as rows of the ledger name it: `provider address`."""
    provider = settings.provider()
    return f"{provider.name} {provider.base_url or ''}".strip()


def at_once_of(settings: Settings) -> AtOnce:
    """How many tasks may run at the same time for one repository, for one person and at one model server."""
    limits = settings.limits.at_once
    return AtOnce(limits.repository, limits.person, limits.server)
