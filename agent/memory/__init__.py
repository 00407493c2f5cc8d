"""Long-term memory across tasks: events of earlier tasks and records made from them, in one file (docs/memory.md).

`MemoryStore` is the entry point.
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
