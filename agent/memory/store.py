"""The entrance of long-term memory: `MemoryStore`, over the modules that do the work."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import UsageError
from agent.memory import forget, purge, record_changes, upkeep
from agent.memory.base import (
    STATUSES,
    Entry,
    EventHit,
    FileHit,
    Forgotten,
    MemoryHit,
    MemoryRecord,
    NewEvent,
    RetrievalConfig,
    Selector,
)
from agent.memory.context_search import as_json
from agent.memory.database import BUSY_SECONDS, FILE
from agent.memory.events import LONGEST_QUERY, add_event, hit_of
from agent.memory.log import entry_of
from agent.memory.namespaces import expand, span
from agent.memory.parts import Parts
from agent.memory.records import NewRecord
from agent.memory.writing import Writing, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from agent.config.long_term_memory import LongTermMemory, Retrieval
    from agent.memory.jobs import ExtractionJobs


def _unmasked(text: str) -> str:
    return text


class MemoryStore:
    """Long-term memory in `base_dir/memory.db`, opened at first use.

    `mask` removes secrets from every text before it is written (the masker of the process).  `count` gives the tokens
    of a text, for `budget_tokens`.  `who` stands in the log beside each change.  `busy_timeout` is how many seconds a
    writer waits for another one, three times.

    One connection; calls from several threads run one after the other.  Opened in the process that uses it, never
    before a fork.  Every method raises MemoryUnavailable when memory.db cannot be used, and UsageError for a wrong
    argument.
    """

    def __init__(
        self,
        base_dir: Path,
        config: LongTermMemory,
        *,
        mask: Callable[[str], str] = _unmasked,
        count: Callable[[str], int] | None = None,
        who: str = "",
        busy_timeout: float = BUSY_SECONDS,
    ) -> None:
        self.base_dir = base_dir
        self.config = config
        self.mask = mask
        self.count = count or (lambda text: len(text) // 3)
        self.who = who
        self.busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._parts: Parts | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self.base_dir / FILE

    @property
    def _open(self) -> Parts:
        with self._lock:
            if self._parts is None:
                self._parts = Parts(self.path, self.config, self.mask, self.busy_timeout)
            return self._parts

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            if self._parts is not None:
                self._parts.close()
                self._parts = None

    def writing(self) -> AbstractContextManager[Writing]:
        """A transaction in which entries are appended to the log."""
        return writing(self._open.log, self._open.views, self.who)

    # --- events ----------------------------------------------------------------------------------------------

    def create_event(
        self,
        actor_id: str,
        session_id: str,
        text: str,
        *,
        role: str = "user",
        timestamp: Any = None,
        source: str = "",
        trust: int = 1,
        metadata: Mapping[str, Any] | None = None,
        client_token: str | None = None,
    ) -> int:
        """Store what was said or done; its number.

        The same `client_token` gives the same event.  `timestamp` is ISO 8601 or a datetime, now by default.  A long
        text keeps its two ends.  An event that was forgotten is not stored again: the number is that of the entry
        that forgot it.
        """
        event = NewEvent(actor_id, session_id, text, role, timestamp, source, trust, metadata or {}, client_token)
        return self.create_events([event])[0]

    def create_events(self, events: Iterable[NewEvent]) -> list[int]:
        """Store many events in one transaction, all or none; their numbers."""
        with self._lock, self.writing() as write:
            return [add_event(write, event, self.mask) for event in events]

    def known_events(self, numbers: Sequence[int]) -> list[int]:
        """Those of the numbers that are events: an event that was forgotten has left none."""
        with self._lock:
            rows = self._open.database.run("event_rows", ids=orjson.dumps(list(numbers)).decode())
            known = {int(row["id"]) for row in rows}
            return [number for number in dict.fromkeys(numbers) if number in known]

    def judge(self, event: NewEvent, record_ids: Sequence[str], *, helped: bool | None) -> bool:
        """Store an event about the outcome of a task, and count it for the records that the task was given: as `helped`
        or as `hurt`, for None as neither.  False, and nothing changed, when the event is known already by its
        `client_token`."""
        with self._lock, self.writing() as write:
            if write.run("event_of_token", client_token=event.client_token):
                return False
            add_event(write, event, self.mask)
            if helped is not None:
                record_changes.mark_outcome(write, record_ids, helped=helped, reason=self.mask(event.text))
            return True

    def search_events(
        self,
        query: str,
        actor_id: str,
        *,
        top_k: int = 10,
        session_id: str | None = None,
        before: Any = None,
    ) -> list[EventHit]:
        """What was said, in all sessions of the actor or in one, best first; `before` is a time."""
        with self._lock:
            return self._open.search(query, actor_id, top_k=_top(top_k), session_id=session_id, before=before)

    def get_events(self, event_ids: Iterable[int]) -> list[EventHit]:
        """The events with these numbers, in order, with a score of 1; a forgotten one is left out."""
        with self._lock:
            rows = self._open.database.run("event_rows", ids=as_json(set(event_ids)))
            return [hit_of(row, 1.0) for row in sorted(rows, key=lambda row: int(row["id"]))]

    # --- records ---------------------------------------------------------------------------------------------

    def create_memory_record(
        self,
        namespace: str,
        text: str,
        *,
        strategy: str,
        title: str = "",
        timestamp: Any = None,
        trust: int = 1,
        event_ids: Sequence[int] = (),
        record_ids: Sequence[str] = (),
        files: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expires_at: Any = None,
        supersedes: Sequence[str] = (),
        quarantine: str = "",
    ) -> MemoryRecord:
        """Store a record after consolidation; the record that now says it.

        `record_ids` are records that it was made of.  Its trust is the least of `trust` and of its sources.
        `supersedes` are records of the namespace that it replaces.  `quarantine` is the reason why it must not be
        recalled before a person promotes it.
        """
        new = NewRecord(
            namespace,
            text,
            strategy,
            title,
            timestamp,
            trust,
            tuple(event_ids),
            tuple(record_ids),
            tuple(files),
            metadata or {},
            expires_at,
            tuple(supersedes),
            quarantine,
        )
        with self._lock, self.writing() as write:
            return self._open.records.create(write, new)

    def retrieve_memory_records(
        self, query: str, namespace: str, *, top_k: int = 10, relevance_score: float = 0.2, min_trust: int = 0
    ) -> list[MemoryHit]:
        """The records below `namespace`, a prefix that ends in `/`, best first; [] for a namespace without records.

        `relevance_score` 0 lets every hit pass, 1 only full matches.
        """
        with self._lock:
            return self._open.retrieval(query, namespace, RetrievalConfig(_top(top_k), relevance_score, min_trust))

    def retrieve(
        self,
        query: str,
        actor_id: str,
        *,
        retrieval_config: Mapping[str, RetrievalConfig] | None = None,
        budget_tokens: int | None = None,
    ) -> list[MemoryHit]:
        """The records of all configured namespaces, best first, whole ones only, within the budget.

        `retrieval_config` maps templates like `/facts/{actorId}/` to their configuration.
        """
        chosen = self.retrieval_config if retrieval_config is None else retrieval_config
        found: list[MemoryHit] = []
        with self._lock:
            for template, config in chosen.items():
                found += self._open.retrieval(query, expand(template, actor_id), config)
            ranks = {hit.record.id: self._open.retrieval.rank(hit) for hit in found}
        found.sort(key=lambda hit: (not hit.record.pinned, -ranks[hit.record.id]))
        return self._within(found, self.config.max_tokens if budget_tokens is None else budget_tokens)

    def _within(self, found: list[MemoryHit], room: int) -> list[MemoryHit]:
        """Whole records in this order, each text once, until the budget is used up; smaller ones may still fit."""
        kept, texts = [], set()
        for hit in found:
            cost = self.count(f"{hit.record.title}\n{hit.record.text}")
            if hit.record.text not in texts and cost <= room:
                kept.append(hit)
                texts.add(hit.record.text)
                room -= cost
        return kept

    @property
    def retrieval_config(self) -> dict[str, RetrievalConfig]:
        """`memory.namespaces` of the configuration."""
        return {template: retrieval_of(values) for template, values in self.config.namespaces.items()}

    def list_memory_records(
        self,
        namespace: str,
        *,
        strategy: str | None = None,
        status: str | None = "active",
        limit: int = 100,
        after: str | None = None,
    ) -> list[MemoryRecord]:
        """Records below `namespace`, oldest first; `after` is the id of the last one of the page before, `status` None
        all of them."""
        if status is not None and status not in STATUSES:
            raise UsageError(f"there is no status {status!r}; allowed are {', '.join(STATUSES)}")
        first, end = span(namespace)
        with self._lock:
            parts = self._open
            key = 0
            if after is not None:
                key = next((row["key"] for row in parts.database.run("record_row", id=after)), 0)
            rows = parts.database.run(
                "record_list", first=first, end=end, after=key, strategy=strategy, status=status, limit=limit
            )
            return parts.records.of_rows(rows)

    def get_memory_record(self, record_id: str) -> MemoryRecord:
        """One record, whatever its status.  UsageError when there is none."""
        with self._lock:
            return self._open.records.get(record_id)

    def promote(self, record_id: str, *, trust: int | None = None, reason: str = "") -> None:
        """Make a quarantined or ended record active; `trust` None keeps its trust."""
        with self._lock, self.writing() as write:
            record_changes.promote(write, record_id, trust=trust, reason=reason)

    def pin(self, record_id: str, *, pinned: bool = True) -> None:
        """A pinned record does not age, is not ended by a cap, and is recalled first."""
        with self._lock, self.writing() as write:
            record_changes.pin(write, record_id, pinned=pinned)

    def invalidate(self, record_id: str, reason: str) -> None:
        """End a record that no longer holds; it is kept and not recalled."""
        with self._lock, self.writing() as write:
            record_changes.invalidate(write, record_id, self.mask(reason))

    def mark_used(self, record_ids: Iterable[str]) -> None:
        """The records were given to a task: they count as new again.  Ids that do not exist are passed over."""
        with self._lock, self.writing() as write:
            record_changes.mark_used(write, record_ids)

    def mark_outcome(self, record_ids: Iterable[str], *, helped: bool, reason: str = "") -> None:
        """The task that the records were given to ended well, or badly.  Ids that do not exist are passed over."""
        with self._lock, self.writing() as write:
            record_changes.mark_outcome(write, record_ids, helped=helped, reason=self.mask(reason))

    def end_expired(self) -> int:
        """End the records whose `expires_at` is over, which are not recalled any more; their number."""
        with self._lock, self.writing() as write:
            return record_changes.end_expired(write)

    def history_of(self, record_id: str) -> list[Entry]:
        """What happened to a record, oldest first."""
        with self._lock:
            return [entry_of(row) for row in self._open.database.run("log_of_subject", subject=record_id)]

    # --- the whole memory ------------------------------------------------------------------------------------

    def forget(self, selector: Selector, *, dry_run: bool = True) -> Forgotten:
        """Forget what the selector names and what was made of it alone, for good; `dry_run` only says what that is.

        The texts are removed from the log, the tables, their indexes, the write-ahead log and the exports in
        `base_dir/memory/`, and looked for afterwards.  Hashes keep them from coming back.
        """
        with self._lock:
            parts = self._open
            if dry_run:
                found = forget.select(parts.database, selector)
                return Forgotten(tuple(sorted(found.events)), tuple(sorted(found.records)), elsewhere=purge.ELSEWHERE)
            with self.writing() as write:
                found = forget.select(parts.database, selector)
                forget.forget(write, found, "forgotten on demand")
                parts.history.forget(selector)
            ids = {*found.records, *map(str, found.events)}
            parts.history.optimize()
            remains = purge.purge(parts.database, parts.views, self.exports, found.texts, ids)
            return Forgotten(
                tuple(sorted(found.events)),
                tuple(sorted(found.records)),
                dry_run=False,
                remains=tuple(remains),
                elsewhere=purge.ELSEWHERE,
            )

    @property
    def exports(self) -> Path:
        """The folder of the exports that `forget` keeps clean."""
        return self.base_dir / "memory"

    def rebuild(self) -> int:
        """Make the tables that are searched again from the log; the number of its entries."""
        with self._lock:
            return upkeep.rebuild(self._open.log, self._open.views)

    def export(self, path: Path | None = None) -> Path:
        """Write every event and record as a line of JSON, to `base_dir/memory/` by default; the file."""
        path = path or self.exports / f"export-{clock.stamp()[:19].replace(':', '')}.jsonl"
        with self._lock:
            upkeep.export(self._open.database, path)
        return path

    def figures(self) -> dict[str, Any]:
        """Events, records by strategy and status, jobs by status, bytes of the file."""
        with self._lock:
            return upkeep.figures(self._open.database)

    # --- history of commits, jobs ----------------------------------------------------------------------------

    def index_commits(self, repository: Path, actor_id: str, *, branch: str, limit: int = 20_000) -> int:
        """Index the newest commits of a branch that are not indexed yet, and the files at its tip.

        Returns the number of commits.  `repository` is a git directory, or a folder with `.git`.  Raises GitError when
        git fails.
        """
        with self._lock:
            return self._open.history.index(repository, actor_id, branch, limit)

    def likely_files(self, query: str, actor_id: str, *, top_k: int = 10) -> list[FileHit]:
        """Files that changes like the query have touched, best first; only files that are still there."""
        with self._lock:
            return self._open.files(query[:LONGEST_QUERY], actor_id, _top(top_k))

    def list_memory_extraction_jobs(self, status: str | None = None) -> list[dict[str, Any]]:
        """Extraction jobs, oldest first: rows of `memory_jobs`."""
        with self._lock:
            return self._open.jobs.list(status)

    def start_memory_extraction_job(self, job_id: str) -> None:
        """Queue a failed job again.  UsageError when there is no such failed job."""
        with self._lock:
            if not self._open.jobs.restart(job_id):
                raise UsageError(f"there is no failed extraction job {job_id}")

    @property
    def jobs(self) -> ExtractionJobs:
        """The extraction jobs, for the process that works on one."""
        with self._lock:
            return self._open.jobs


def retrieval_of(values: Retrieval) -> RetrievalConfig:
    """One value of `memory.namespaces`."""
    return RetrievalConfig(values.get("top_k", 10), values.get("relevance_score", 0.2), values.get("min_trust", 0))


def _top(top_k: int) -> int:
    if not 1 <= top_k <= 1000:
        raise UsageError(f"top_k {top_k} is not allowed; allowed are 1 to 1000")
    return top_k
