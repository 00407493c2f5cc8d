"""Long-term memory across tasks: one file with events of earlier tasks, and with records that are made from these
events (docs/memory.md).

`MemoryStore` is the entry point of the package `memory`.
"""

from agent.memory.base import (
    EventHit,
    FileHit,
    Followed,
    Forgotten,
    MemoryHit,
    MemoryRecord,
    NewEvent,
    RetrievalConfig,
    Selector,
    SharedPlace,
)
from agent.memory.store import MemoryStore

__all__ = [
    "EventHit",
    "FileHit",
    "Followed",
    "Forgotten",
    "MemoryHit",
    "MemoryRecord",
    "MemoryStore",
    "NewEvent",
    "RetrievalConfig",
    "Selector",
    "SharedPlace",
]
