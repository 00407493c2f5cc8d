"""The limits with which the daemon reserves queued tasks: the setting `limits.at_once`, and the model server to which
the setting applies.

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
