"""Findings of `doctor` about services that several hosts share in addition to the ledger: the broker and the storage of
replicas.

Each finding is (whether the service can be used, observation, advice); `doctor.py` makes a Check of it. The check of
the broker creates the broker's queue if it is missing, as every daemon does; the check of the storage writes one small
file and removes it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from agent.errors import ReplicaAway

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.store.configured_ledger import Finding


def broker(settings: Settings, address: str) -> Finding:
    """A finding whether the broker answers."""
    from agent.errors import BrokerAway
    from agent.taskqueue.broker import make_broker

    made = make_broker(address, settings.plugin_guard)
    try:
        made.connect()
        waiting = made.depth()
    except BrokerAway as error:
        return False, str(error), "start the broker, or mend taskqueue.broker; until then the ledger is polled"
    finally:
        made.close()
    return True, f"{made.where} answers, {waiting} message(s) wait", ""


def replica(address: str) -> Finding:
    """A finding whether a file can be written, read, listed and removed in the storage of replicas."""
    from agent.store.remote_storage import RemoteFolder

    place = RemoteFolder(address)
    name, data = f".doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    advice = "mend context_storage.replica, or the rights there: files are written, read, listed and removed"
    try:
        place.put(name, data)
        found, listed = place.get(name), place.names(".doctor")
        place.remove([name])
    except ReplicaAway as error:
        return False, str(error), advice
    if found != data or name not in listed:
        return False, f"{place.where} takes a file, and does not give it back as it was", advice
    return True, f"{place.where} takes files and gives them back", ""
