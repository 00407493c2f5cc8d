"""Long-term memory across tasks: events of earlier tasks and records made from them, in one file (docs/memory.md).

`MemoryStore` is the entry point.
"""

from agent.memory.base import (
    EventHit,
    FileHit,
    Forgotten,
    MemoryHit,
    MemoryRecord,
    NewEvent,
    RetrievalConfig,
    Selector,
)
from agent.memory.store import MemoryStore

__all__ = [
    "EventHit",
    "FileHit",
    "Forgotten",
    "MemoryHit",
    "MemoryRecord",
    "MemoryStore",
    "NewEvent",
    "RetrievalConfig",
    "Selector",
]
