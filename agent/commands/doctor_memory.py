"""Findings of `doctor` about long-term memory: whether memory.db can be used, and who shares it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent.errors import MemoryUnavailable
from agent.memory.database import refuse_network
from agent.wiring.memory import open_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.memory import MemoryStore


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields each finding as (state, observation, advice); the state is "ok" or "warn", since tasks continue without
    memory.
    """
    actor = settings.memory.actor
    if "{repo}" not in actor or "{owner}" not in actor:
        found = (
            f"memory.actor is {actor!r}: repositories share one memory, private ones too, and what one taught reaches "
            f"tasks in the others"
        )
        yield "warn", found, "memory.actor: '{instance}/{owner}/{repo}' gives each repository its own"
    with closing(open_memory(settings, "doctor")) as store:
        if store.shared is not None and settings.memory.enabled:
            yield _of_shared_log(store)
        if not store.path.exists():
            yield "ok", f"{store.path} is not there yet; it is made at the first use", ""
            return
        try:
            figures = store.figures()
        except MemoryUnavailable as error:
            yield "warn", str(error), "tasks go on without memory until then"
            return
    records = sum(number for states in figures["records"].values() for number in states.values())
    waiting = sum(states.get("quarantined", 0) for states in figures["records"].values())
    failed = figures["jobs"].get("failed", 0)
    said = f"{records:,} records, {waiting:,} of them in quarantine; {figures['events']:,} events"
    if failed:
        yield "warn", f"{said}; {failed} jobs failed", "`memory jobs --status failed` lists them"
    else:
        yield "ok", said, ""


def _of_shared_log(store: MemoryStore) -> tuple[str, str, str]:
    """The finding of `doctor` about the memory log that hosts share. The log is compared with memory.db of this host
    only if memory.db exists; the first use of memory creates that file."""
    try:
        refuse_network(store.path)
    except MemoryUnavailable as error:
        return "warn", str(error), "tasks go on without memory until then"
    if not store.path.exists():
        return "ok", f"this host has not followed the log of {store.shared.where if store.shared else ''} yet", ""
    try:
        status = store.log_status()
    except MemoryUnavailable as error:
        return "warn", str(error), "tasks go on without memory until then"
    if status["last"] is None:
        advice = "tasks recall from memory.db of this host until then; jobs wait"
        return "warn", str(status["error"]), advice
    if status["own"]:
        found = f"memory.db has entries that the log of {status['where']} has not; the next use brings them in"
        return "ok", found, ""
    behind = status["last"] - status["applied"]
    return "ok", f"the log of {status['where']} has {status['last']:,} entries; this host is {behind:,} behind", ""
