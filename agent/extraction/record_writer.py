"""Writes the records of one task: all of them name the task, its time and its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.extraction.task_record import TaskRecord
    from agent.memory import MemoryRecord, MemoryStore
    from agent.values import Json

HIGHEST = 2
"""The most that a record of a task is trusted; the store takes the least of this and of its sources."""


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """The records of `task` in `store`; `title` is that of its issue."""

    store: MemoryStore
    task: TaskRecord
    title: str

    @property
    def actor(self) -> str:
        """The actor that the task had."""
        return str(self.task.origin["actor"])

    def of_session(self, strategy: str) -> str:
        """The namespace of the records of this session."""
        return f"/{strategy}/{self.actor}/{self.task.uuid}/"

    def of_actor(self, strategy: str) -> str:
        """The namespace of the records of all sessions."""
        return f"/{strategy}/{self.actor}/"

    def present(self, namespace: str) -> list[MemoryRecord]:
        """The records of a namespace that hold: those that are recalled, and those in quarantine."""
        return [
            one
            for status in ("active", "quarantined")
            for one in self.store.list_memory_records(namespace, status=status)
        ]

    def write(
        self,
        namespace: str,
        strategy: str,
        text: str,
        event_ids: Sequence[int],
        *,
        quarantine: str = "",
        supersedes: Sequence[str] = (),
        files: Sequence[str] = (),
        more: Json | None = None,
    ) -> int:
        """Store a record; returns 1, or 0 for one that was forgotten before."""
        metadata: dict[str, Any] = {"task": str(self.task.key), **(more or {})}
        if self.task.origin.get("confidential"):
            metadata["confidential"] = True
        made = self.store.create_memory_record(
            namespace,
            text,
            strategy=strategy,
            title=self.title,
            timestamp=self.task.ended_at,
            trust=HIGHEST,
            event_ids=event_ids,
            files=files,
            metadata=metadata,
            supersedes=supersedes,
            quarantine=quarantine,
        )
        return int(made.status != "forgotten")
