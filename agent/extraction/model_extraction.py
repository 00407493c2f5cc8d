"""Facts, preferences and reflections of a task, from one answer of a model (`model_request.py`, `proposals.py`).

A reflection holds when the result of its task was verified, or when another task has taught the same lesson.  Until
then it is in quarantine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.context.requests import RequestStore
from agent.errors import UsageError
from agent.extraction import model_request, proposals
from agent.extraction.feedback import PENDING
from agent.extraction.repetition import words
from agent.extraction.suspicion import suspicion
from agent.extraction.task_record import memory_requests
from agent.memory.records import similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.extraction.events import TaskEvent
    from agent.extraction.proposals import Proposal
    from agent.extraction.record_writer import RecordWriter
    from agent.memory import MemoryRecord
    from agent.taskqueue import Row
    from agent.values import Json
    from agent.wiring.wiring import Wiring

FACTS, REFLECTIONS = "facts", "reflections"
KNOWN = 5
"""Records of each strategy that the model is shown."""
KNOWN_RELEVANCE = 0.1
QUERY = 1000
"""Characters of the summary that they are looked for with."""
SIMILAR = 0.5
"""Share of common words from which two reflections are the same lesson."""
MOST_PENDING = 1000


@dataclass(frozen=True, slots=True)
class ModelExtraction:
    """The records that a model makes of one task.  `check` raises when the job is another process's now."""

    wiring: Wiring
    writer: RecordWriter
    row: Row
    check: Callable[[], None]

    def run(self, events: Sequence[TaskEvent], ids: Mapping[str, int]) -> tuple[int, int]:
        """(records made of the answer, proposals dropped).  `events` are those that the model may see.

        A task that leaves nothing to say, or nothing to pay with, is not asked about.  Errors of the client pass
        through."""
        if all(one.source == "outcome" for one in events):
            return 0, 0
        folder = self.writer.task.folder
        found = model_request.recorded_answer(folder)
        if found is None and self._is_spent():
            return 0, 0
        known = self._known() if found is None else self._shown(found)
        try:
            if found is None:
                found = model_request.ask(
                    self.wiring.settings,
                    folder,
                    events,
                    known,
                    verified=self.writer.task.is_verified,
                    announce=self.wiring.events,
                    learnt=self.wiring.learnt,
                )
        finally:
            self._count_requests()
        self.check()
        judged = proposals.judge(found["answer"], events, known)
        made = sum(self._remember(one, ids[one.event.token]) for one in judged.accepted)
        return made, len(judged.dropped)

    def _known(self) -> list[MemoryRecord]:
        """Records that are similar to what the model may say."""
        query = f"{self.writer.title}\n{self.writer.task.summary[:QUERY]}"
        return [
            hit.record
            for strategy in proposals.STRATEGIES
            for hit in self.writer.store.retrieve_memory_records(
                query, self.writer.of_actor(strategy), top_k=KNOWN, relevance_score=KNOWN_RELEVANCE, min_trust=1
            )
        ]

    def _shown(self, found: Json) -> list[MemoryRecord]:
        """The records that were shown for a recorded answer, as far as they still hold."""
        shown: list[MemoryRecord] = []
        for name in found.get("shown") or ():
            try:
                record = self.writer.store.get_memory_record(str(name))
            except UsageError:  # forgotten since
                continue
            shown += [record] if record.status == "active" else []
        return shown

    def _remember(self, one: Proposal, event_id: int) -> int:
        quarantine = suspicion(one.text)
        if one.strategy == REFLECTIONS and not quarantine and not self._is_confirmed(one, event_id):
            quarantine = PENDING
        task, is_fact = self.writer.task, one.strategy == FACTS
        return self.writer.write(
            self.writer.of_actor(one.strategy),
            one.strategy,
            one.text,
            [event_id],
            quarantine=quarantine,
            supersedes=[one.updates] if one.updates and not quarantine else [],
            files=task.files if is_fact else (),
            more={"commit": task.delivery.get("commit")} if is_fact else None,
        )

    def _is_confirmed(self, one: Proposal, event_id: int) -> bool:
        """Whether the task's own result is verified, or another task has taught the same lesson, which is then active
        with both as its sources."""
        task, store = self.writer.task, self.writer.store
        if task.is_verified or self.row.pull_state == "merged":
            return True
        namespace = self.writer.of_actor(REFLECTIONS)
        mine = set(words(one.text))
        for record in store.list_memory_records(namespace, status="quarantined", limit=MOST_PENDING):
            alike = similarity(mine, set(words(record.text)))
            if record.reason == PENDING and record.session_id != task.uuid and alike >= SIMILAR:
                store.promote(record.id, reason=f"task {task.uuid} has shown it too")
                self.writer.write(namespace, REFLECTIONS, record.text, [event_id])
                return True
        return False

    # --- what it costs ---------------------------------------------------------------------------------------

    def _is_spent(self) -> bool:
        """Whether a limit of money or tokens, of the task or of the repository's day, leaves nothing for a request."""
        limits, row = self.wiring.settings.limits, self.row
        if limits.cost is not None and row.cost >= limits.cost:
            return True
        if limits.tokens is not None and row.total_tokens >= limits.tokens:
            return True
        if limits.repository_cost is None:
            return False
        key = row.key
        _, spent = self.wiring.ledger.usage_today(owner=key.owner, repo=key.repo, instance=key.instance)
        return spent >= limits.repository_cost

    def _count_requests(self) -> None:
        """Add the requests that the row does not count yet to its counters."""
        folder = self.writer.task.folder
        RequestStore(folder, redact=self.wiring.redact).close()  # ends those of a process that died
        requests = memory_requests(folder)
        row = self.wiring.ledger.get(self.row.uuid)
        was = row.memory_requests if row is not None else len(requests)
        if new := requests[was:]:
            self.wiring.ledger.count_memory_requests(self.row.uuid, was, new)
