"""Writes memory records of one task, each with the task, its time and its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.extraction.suspicion import suspicion
from agent.memory import namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.extraction.task_record import TaskRecord
    from agent.memory import MemoryRecord, MemoryStore
    from agent.values import Json

OF_SESSION = ("episodes", "summaries")
"""Strategies of which the records have the issue among their sources."""
HIGHEST = 2
"""Highest trust that a record of a task can have (a verified result). The memory store lowers the trust of a record to
the lowest trust of its sources.
"""


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """Writes memory records of the task `task` into `store`. `title` is the title of the task's issue."""

    store: MemoryStore
    task: TaskRecord
    title: str

    @property
    def actor(self) -> str:
        """The actor for which the memories in the task's briefing were retrieved; the records of the task belong to the
        same actor."""
        return str(self.task.origin["actor"])

    def of_session(self, strategy: str) -> str:
        """The namespace for records of this task only, like episodes."""
        return namespaces.of_session(strategy, self.actor, self.task.uuid)

    def of_actor(self, strategy: str) -> str:
        """The namespace for records of all tasks of the actor, like facts."""
        return namespaces.of_actor(strategy, self.actor)

    def present(self, namespace: str) -> list[MemoryRecord]:
        """The records of a namespace that are active or in quarantine, the oldest 100 of each."""
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
        """Store a memory record; return 1, or 0 if its text was forgotten before.

        The stored record gets the title of the issue, but no title if the issue's author may not ask for work and the
        issue is not among the record's sources, since then the author's low trust would not limit the record's trust.
        """
        title = self.title if strategy in OF_SESSION or self.task.origin.get("author_may_ask") else ""
        metadata: dict[str, Any] = {"task": str(self.task.key), **(more or {})}
        if self.task.origin.get("confidential"):
            metadata["confidential"] = True
        made = self.store.create_memory_record(
            namespace,
            text,
            strategy=strategy,
            title=title,
            timestamp=self.task.ended_at,
            trust=HIGHEST,
            event_ids=event_ids,
            files=files,
            metadata=metadata,
            supersedes=supersedes,
            # The title is checked too, since recall shows a record together with its title.
            quarantine=quarantine or suspicion(title),
            session_id=self.task.uuid,
        )
        return int(made.status != "forgotten")
