"""Makes facts, preferences and reflections of a task from one answer of a model.

`model_request.py` sends the request, `proposals.py` checks the answer. A reflection (a lesson for later tasks) is in
quarantine until the result of its task is verified or merged, or another task gives a similar reflection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.context.requests import RequestStore
from agent.errors import UsageError
from agent.extraction import model_request, proposals
from agent.extraction.echoed_sentences import words
from agent.extraction.fact_check import BLOBS
from agent.extraction.feedback import PENDING
from agent.extraction.suspicion import suspicion
from agent.extraction.task_record import memory_requests
from agent.memory.records import similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.extraction.proposals import Proposal
    from agent.extraction.record_writer import RecordWriter
    from agent.extraction.session_events import SessionEvent
    from agent.memory import MemoryRecord
    from agent.taskqueue import Row
    from agent.values import Json
    from agent.wiring.wiring import Wiring

FACTS, REFLECTIONS = "facts", "reflections"
KNOWN = 5
"""Maximum number of existing records of each strategy in the request to the model. A proposal of the model may replace
one of the existing records that the request contains."""
KNOWN_RELEVANCE = 0.1
QUERY = 1000
"""Maximum number of characters of the task's summary in the query for existing records."""
SIMILAR = 0.5
"""Minimum similarity (Jaccard, of words) at which two reflections count as the same lesson."""
MOST_PENDING = 1000


@dataclass(frozen=True, slots=True)
class ModelExtraction:
    """Makes the memory records of one task from the answer of a model.  `check` raises Fenced if another process has
    the job."""

    wiring: Wiring
    writer: RecordWriter
    row: Row
    check: Callable[[], None]

    def run(self, events: Sequence[SessionEvent], ids: Mapping[str, int]) -> tuple[int, int]:
        """Ask the model and store the accepted proposals; return (number of records, number of dropped proposals).

        `events` are those that the model may see. If an earlier try has recorded an answer, that answer is used. No
        request is sent if all events are outcomes of the task, or if the limit of money or tokens of the task, or the
        limit of money of the repository for today, is used up. `run` raises the errors of the model client to the
        caller.
        """
        if all(one.source == "outcome" for one in events):
            return 0, 0
        folder = self.writer.task.folder
        found = model_request.recorded_answer(folder)
        if found is None and self._is_spent():
            return 0, 0
        known = self._replaceable_records() if found is None else self._records_in_request(found)
        try:
            if found is None:
                found = model_request.ask_model(
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
        judged = proposals.check_proposals(found["answer"], events, known)
        made = sum(self._remember(one, ids[one.event.token]) for one in judged.accepted)
        return made, len(judged.dropped)

    def _replaceable_records(self) -> list[MemoryRecord]:
        """Existing records about the subject of the task, which the model may replace."""
        query = f"{self.writer.title}\n{self.writer.task.summary[:QUERY]}"
        return [
            hit.record
            for strategy in proposals.STRATEGIES
            for hit in self.writer.store.retrieve_memory_records(
                query, self.writer.of_actor(strategy), top_k=KNOWN, relevance_score=KNOWN_RELEVANCE, min_trust=1
            )
        ]

    def _records_in_request(self, found: Json) -> list[MemoryRecord]:
        """The records that the request of a recorded answer contained, without those that are no longer active."""
        shown: list[MemoryRecord] = []
        for name in found.get("shown") or ():
            try:
                record = self.writer.store.get_memory_record(str(name))
            except UsageError:  # the record was forgotten since the request, and is left out
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
            more={"commit": task.delivery.get("commit"), BLOBS: task.delivery.get("blobs") or {}} if is_fact else None,
        )

    def _is_confirmed(self, one: Proposal, event_id: int) -> bool:
        """Whether the result of this task is verified or merged, or another task has given a similar reflection; the
        other task's reflection then becomes active, with this task's event as a second source."""
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
        """Whether a limit is used up: the money or tokens of the task, or the money that all tasks of the repository
        may cost today."""
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
        """Add the requests of the extraction that the row does not count yet to the counters of the row."""
        folder = self.writer.task.folder
        # opening the store records the end of requests of a process that died
        RequestStore(folder, redact=self.wiring.redact).close()
        requests = memory_requests(folder)
        row = self.wiring.ledger.get(self.row.uuid)
        was = row.memory_requests if row is not None else len(requests)
        if new := requests[was:]:
            self.wiring.ledger.count_memory_requests(self.row.uuid, was, new)
