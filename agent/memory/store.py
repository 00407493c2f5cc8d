"""`MemoryStore`, the public interface of long-term memory. The other modules of `agent/memory/` do the work of the
methods of `MemoryStore`."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock
from agent.errors import MemoryUnavailable, UsageError
from agent.memory import forget, maintenance, purge, record_changes, standing_preferences
from agent.memory.base import (
    STATUSES,
    STRATEGIES,
    Entry,
    EventHit,
    FileHit,
    Followed,
    Forgotten,
    MemoryHit,
    MemoryRecord,
    NewEvent,
    RetrievalConfig,
    Selector,
)
from agent.memory.database import BUSY_SECONDS, FILE
from agent.memory.database_objects import DatabaseObjects
from agent.memory.events import LONGEST_QUERY, add_event, hit_of
from agent.memory.full_text_search import as_json
from agent.memory.jobs import JOB_STATUSES
from agent.memory.log import entry_of
from agent.memory.log_projection import UNPURGED
from agent.memory.namespaces import expand, span
from agent.memory.records import NewRecord
from agent.memory.write_transaction import Writing, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from agent.config.long_term_memory import LongTermMemory, Retrieval
    from agent.memory.base import SharedPlace
    from agent.memory.jobs import ExtractionJobs
    from agent.registry import Guard


def _unmasked(text: str) -> str:
    return text


class MemoryStore:
    """Long-term memory in `base_dir/memory.db`, which is opened at the first use.

    `mask` removes secrets from every text before it is written.  `count` gives the tokens of a text, for
    `budget_tokens`.  `who` is recorded in the log with each change.  `busy_timeout`: the number of seconds that a
    writer waits for another writer, in each of three attempts.  `shared` is the log that several hosts share, None if
    this host has a log of its own; with a shared log, `follow` copies its entries to memory.db, and a write needs the
    server of the log.  `guard` checks and imports the plug-in that `memory.embeddings` names.

    A MemoryStore has one connection to memory.db, so calls from several threads run one at a time.  A process that
    forks must open the store after the fork.  Every method raises MemoryUnavailable if memory.db cannot be used, and
    UsageError for a wrong argument.
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
        shared: SharedPlace | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.base_dir = base_dir
        self.config = config
        self.mask = mask
        self.count = count or (lambda text: len(text) // 3)
        self.who = who
        self.busy_timeout = busy_timeout
        self.shared = shared
        self.guard = guard
        self._lock = threading.RLock()
        self._parts: DatabaseObjects | None = None
        self._stopped = False

    @property
    def path(self) -> Path:
        """The path of memory.db."""
        return self.base_dir / FILE

    @property
    def _open(self) -> DatabaseObjects:
        with self._lock:
            if self._stopped:
                raise MemoryUnavailable(f"{self.path} was closed while it was asked")
            if self._parts is None:
                self._parts = DatabaseObjects(
                    self.path, self.config, self.mask, self.busy_timeout, self.shared, self.guard
                )
            return self._parts

    def close(self) -> None:
        """Close the connection to memory.db; the next call of another method opens the connection again."""
        with self._lock:
            if self._parts is not None:
                self._parts.close()
                self._parts = None

    def stop(self) -> None:
        """Close the store for good, even while another thread uses the store: the call in that thread soon raises
        MemoryUnavailable.  Never waits.
        """
        self._stopped = True
        if self._lock.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._lock.release()
        elif (parts := self._parts) is not None:
            parts.database.stop()

    @contextmanager
    def _reading(self) -> Iterator[DatabaseObjects]:
        """A context manager in which all queries see one state of memory.db, though other processes may forget texts or
        rebuild tables meanwhile."""
        with self._lock:
            parts = self._open
            with parts.database.reading():
                yield parts

    def writing(self) -> AbstractContextManager[Writing]:
        """A context manager for a transaction in which entries are appended to the log."""
        return writing(self._open.log, self._open.projection, self.who)

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
        """Store an event of a session; return its number.

        A second event with the same `client_token` is not stored; the number of the first is returned. `timestamp` is
        ISO 8601 or a datetime, by default now. Only the beginning and the end of an event's text are stored if the text
        is long. An event that was forgotten is not stored again; the number of the log entry that forgot it is
        returned.
        """
        event = NewEvent(actor_id, session_id, text, role, timestamp, source, trust, metadata or {}, client_token)
        return self.create_events([event])[0]

    def create_events(self, events: Iterable[NewEvent]) -> list[int]:
        """Store all events in one transaction, or none; return their numbers."""
        with self._lock, self.writing() as write:
            return [add_event(write, event, self.mask) for event in events]

    def known_events(self, numbers: Sequence[int]) -> list[int]:
        """Those of the given numbers that are numbers of existing events, each once; those of forgotten events are left
        out."""
        with self._lock:
            rows = self._open.database.run("event_rows", ids=orjson.dumps(list(numbers)).decode())
            known = {int(row["id"]) for row in rows}
            return [number for number in dict.fromkeys(numbers) if number in known]

    def add_outcome(self, event: NewEvent, record_ids: Sequence[str], *, helped: bool | None) -> bool:
        """Store an event about the outcome of a task, and count the outcome for the records that the task got: as
        `helped` or as `hurt`, or not at all if `helped` is None.  If an event with the same `client_token` exists,
        nothing changes and the result is False."""
        with self._lock, self.writing() as write:
            if write.run("event_of_token", client_token=event.client_token):
                return False
            number = add_event(write, event, self.mask)
            if helped is not None:
                record_changes.mark_outcome(write, record_ids, helped=helped, reason=f"event {number}")
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
        """Events of the actor, in all sessions or in one, best first.  Events at the time `before` or later are left
        out."""
        with self._reading() as parts:
            return parts.search(query, actor_id, top_k=_top(top_k), session_id=session_id, before=before)

    def get_events(self, event_ids: Iterable[int]) -> list[EventHit]:
        """The events with these numbers, in the order of their numbers, with a score of 1.  Forgotten events are left
        out."""
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
        session_id: str = "",
    ) -> MemoryRecord:
        """Store a record after consolidation; return the new record, the existing one that it was merged into, or a
        record without id and text, with the status `forgotten`, if the text was forgotten before.

        `event_ids` and `record_ids` are the sources of the record.  The record's trust is the lowest of `trust` and the
        trust of its sources.  The record's session is that of its namespace, else `session_id`, else that of its first
        event.  `supersedes` are records of the same namespace that the new record replaces.  With a `quarantine` reason
        the record is not recalled until a person or the program (`extraction/feedback.py`) promotes it.
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
            session_id,
        )
        with self._lock, self.writing() as write:
            return self._open.records.create(write, new)

    def retrieve_memory_records(
        self, query: str, namespace: str, *, top_k: int = 10, relevance_score: float = 0.2, min_trust: int = 0
    ) -> list[MemoryHit]:
        """The records below `namespace`, a prefix that ends in `/`, best first; [] for a namespace without records.

        A `relevance_score` of 0 accepts every hit, 1 accepts full matches only.
        """
        with self._reading() as parts:
            return parts.retrieval(query, namespace, RetrievalConfig(_top(top_k), relevance_score, min_trust))

    def retrieve(
        self,
        query: str,
        actor_id: str,
        *,
        retrieval_config: Mapping[str, RetrievalConfig] | None = None,
        budget_tokens: int | None = None,
    ) -> list[MemoryHit]:
        """The records of all configured namespaces that match the query, pinned records first, then best first, within
        the budget of tokens.

        `retrieval_config` maps namespace templates like `/facts/{actorId}/` to the limits for each; the default is
        `memory.namespaces`.  A record that does not fit into the rest of the budget is left out and never shortened.
        """
        chosen = self.retrieval_config if retrieval_config is None else retrieval_config
        wanted = [(expand(template, actor_id), config) for template, config in chosen.items()]
        with self._reading() as parts:
            found = self._ranked(parts.retrieval.of_each(query, wanted))
        return self._select_within(found, self.config.max_tokens if budget_tokens is None else budget_tokens)

    def retrieve_with_files(
        self, query: str, actor_id: str, *, top_k_files: int, budget_tokens: int | None = None
    ) -> tuple[list[MemoryHit], list[FileHit]]:
        """The results of `retrieve` and `likely_files`, from one common search of the records."""
        templates = self.retrieval_config
        wanted = [(expand(template, actor_id), config) for template, config in templates.items()]
        with self._reading() as parts:
            *hits, episodes = parts.retrieval.of_each(query, [*wanted, parts.files.episodes_of(actor_id)])
            found = self._ranked(hits)
            files = parts.files(query[:LONGEST_QUERY], actor_id, _top(top_k_files), episodes)
        return self._select_within(found, self.config.max_tokens if budget_tokens is None else budget_tokens), files

    def standing_preferences(self, actor_id: str) -> list[MemoryHit]:
        """The preferences of an actor that every task gets, with a relevance of 0 (`standing_preferences.py`), in at
        most `standing_preferences.TOKENS` tokens."""
        # Only namespaces of preferences have standing records: a namespace of facts may have thousands.
        templates = self.retrieval_config.items()
        wanted = [(expand(one, actor_id), config) for one, config in templates if one.startswith("/preferences/")]
        with self._reading() as parts:
            found = [standing_preferences.standing_preferences(parts.database, parts.records, *one) for one in wanted]
        return self._select_within([hit for hits in found for hit in hits], standing_preferences.TOKENS)

    def _ranked(self, hits: Iterable[Iterable[MemoryHit]]) -> list[MemoryHit]:
        """The hits of several namespaces, pinned records first, then by relevance, age and outcomes
        (`RecordSearch.rank`)."""
        rank = self._open.retrieval.rank
        return sorted((hit for some in hits for hit in some), key=lambda hit: (not hit.record.pinned, -rank(hit)))

    def _select_within(self, found: list[MemoryHit], room: int) -> list[MemoryHit]:
        """The records of `found` that together fit into `room` tokens, in the order of `found`, each text once.  A
        record that is too large is skipped, and a smaller record after it may still fit."""
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
        """`memory.namespaces` of the configuration: template → limits."""
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
        """Records below `namespace`, oldest first.  `status` None means every status.  `after` is the id of the last
        record of the previous page; with an unknown id the list begins at its start.  Raises UsageError for an unknown
        strategy or status."""
        if strategy is not None and strategy not in STRATEGIES:
            raise UsageError(f"there is no strategy {strategy!r}; allowed are {', '.join(STRATEGIES)}")
        if status is not None and status not in STATUSES:
            raise UsageError(f"there is no status {status!r}; allowed are {', '.join(STATUSES)}")
        first, end = span(namespace)
        with self._reading() as parts:
            key = 0
            if after is not None:
                key = next((row["key"] for row in parts.database.run("record_row", id=after)), 0)
            rows = parts.database.run(
                "record_list", first=first, end=end, after=key, strategy=strategy, status=status, limit=limit
            )
            return parts.records.of_rows(rows)

    def get_memory_record(self, record_id: str) -> MemoryRecord:
        """The record with this id, with any status.  Raises UsageError if there is no record with this id."""
        with self._reading() as parts:
            return parts.records.get(record_id)

    def promote(self, record_id: str, *, trust: int | None = None, reason: str = "") -> None:
        """Make a record active that is quarantined, invalid or superseded, with the trust `trust`; None leaves its
        trust as it is.  Raises UsageError if the record is active and `trust` is None."""
        with self._lock, self.writing() as write:
            record_changes.promote(write, record_id, trust=trust, reason=reason)

    def pin(self, record_id: str, *, pinned: bool = True) -> None:
        """Pin or unpin a record.  A pinned record does not lose rank with age, is not made invalid because of
        `memory.cap`, and is recalled first."""
        with self._lock, self.writing() as write:
            record_changes.pin(write, record_id, pinned=pinned)

    def invalidate(self, record_id: str, reason: str) -> None:
        """Mark an active or quarantined record as invalid because its text is no longer true. An invalid record stays
        in memory.db, but is not recalled."""
        with self._lock, self.writing() as write:
            record_changes.invalidate(write, record_id, self.mask(reason))

    def mark_used(self, record_ids: Iterable[str], session_id: str = "") -> None:
        """Log that a task got the records, so that the ranking counts the age of these records from now. A record that
        the log already names for the session `session_id` is not logged again. Ids of records that do not exist are
        ignored."""
        with self._lock, self.writing() as write:
            record_changes.mark_used(write, record_ids, session_id)

    def mark_outcome(self, record_ids: Iterable[str], *, helped: bool, reason: str = "") -> None:
        """Count the outcome of a task for each record that the task got, as `helped` or as `hurt`. Ids of records that
        do not exist are ignored."""
        with self._lock, self.writing() as write:
            record_changes.mark_outcome(write, record_ids, helped=helped, reason=self.mask(reason))

    def end_expired(self) -> int:
        """Make the records with a past `expires_at` invalid; return their number."""
        with self._lock, self.writing() as write:
            return record_changes.end_expired(write)

    def history_of(self, record_id: str) -> list[Entry]:
        """The log entries that have the record as their subject, oldest first; entries about uses and outcomes name
        several records in their payload, and are not among them."""
        with self._lock:
            return [entry_of(row) for row in self._open.database.run("log_of_subject", subject=record_id)]

    # --- the whole memory ------------------------------------------------------------------------------------

    def sessions_and_actors(self) -> tuple[set[str], set[str]]:
        """The sessions and the actors of all events and records, records of every status included, and the actors with
        an indexed history of commits."""
        with self._reading() as parts:
            return forget.named_sessions_and_actors(parts.database)

    def forget(self, selector: Selector, *, dry_run: bool = True) -> Forgotten:
        """Remove permanently the events and records that match the selector, and the records of which all sources are
        removed.

        With `dry_run` nothing is removed, and the result lists what a real call would remove. The texts are removed
        from the log, the tables, their indexes, the write-ahead log and the exports in `base_dir/memory/`; then
        memory.db, its write-ahead log and the exports are searched for remains of the texts. Hashes of the forgotten
        texts remain, so that the same texts are not stored again.
        """
        with self._lock:
            parts = self._open
            if dry_run:
                found = forget.select(parts.database, selector)
                jobs: tuple[str, ...] = ()
                # no jobs are listed if they are in the database of a shared log that does not answer
                with suppress(MemoryUnavailable):
                    jobs = parts.jobs.with_errors(found.sessions, selector)
                return Forgotten(
                    tuple(sorted(found.events)),
                    tuple(sorted(found.records)),
                    commits=parts.history.count(selector),
                    jobs=jobs,
                    elsewhere=purge.ELSEWHERE,
                )
            with self.writing() as write:
                found = forget.select(parts.database, selector)
                count, shas = parts.history.forget(selector)
                forget.forget(write, found, "forgotten on demand", commits=shas, actor=selector.actor)
                jobs = parts.jobs.with_errors(found.sessions, selector)
                parts.jobs.clear_errors(jobs)
            remains = self._purge(purge.pieces_of(found.texts))
            if why := parts.log.purge():
                remains.append(why)
            return Forgotten(
                tuple(sorted(found.events)),
                tuple(sorted(found.records)),
                dry_run=False,
                commits=count,
                jobs=jobs,
                remains=tuple(remains),
                elsewhere=purge.ELSEWHERE,
            )

    def follow(self, *, purges: bool = True) -> Followed:
        """Apply the new entries of the log to memory.db.

        With `purges`, also remove the bytes of texts that another host forgot, and of texts that were forgotten by a
        process that was killed before it removed the bytes.
        """
        with self._lock:
            parts = self._open
            found = parts.log.follow()
            if not purges:
                return found
            why = parts.log.purge(left_by_others=True)
            remains = [why] if why else []
            if parts.database.run("state_get", name=UNPURGED):
                remains += self._purge(parts.shared.follower.take_pieces() if parts.shared is not None else [])
            return replace(found, remains=tuple(remains))

    def _purge(self, pieces: Sequence[bytes]) -> list[str]:
        """Remove the bytes of forgotten texts; return the files that still contain pieces of them, each with a
        reason."""
        parts = self._open
        try:
            parts.history.optimize()
            return purge.purge(parts.database, parts.projection, self.exports, pieces)
        except MemoryUnavailable as error:
            return [f"{self.path}: {error}"]

    def log_status(self) -> Mapping[str, Any]:
        """The state of the log, as `Log.status` describes it."""
        with self._lock:
            return self._open.log.status()

    @property
    def exports(self) -> Path:
        """The folder of the exports of long-term memory; `forget` also removes lines from the files in it."""
        return self.base_dir / "memory"

    def rebuild(self) -> int:
        """Make the tables that searches use again, from the log; return the number of entries in the log."""
        with self._lock:
            found = maintenance.rebuild(self._open.log, self._open.projection)
            self._purge(())
            return found

    def export(self, path: Path | None = None) -> Path:
        """Write every event and record as a line of JSON; return the file, by default in `base_dir/memory/`."""
        path = path or self.exports / f"export-{clock.stamp()[:19].replace(':', '')}.jsonl"
        # during a write transaction no other process can forget a text, which would then remain in the export
        with self._lock, self._open.database.transaction():
            maintenance.export(self._open.database, path)
        return path

    def figures(self) -> dict[str, Any]:
        """The numbers of events, of records by strategy and status, of jobs by status, and of bytes of the file; no
        jobs if they are in the database of the shared log, and it cannot be reached."""
        with self._lock:
            return maintenance.figures(self._open.database, self._open.jobs)

    # --- history of commits, jobs ----------------------------------------------------------------------------

    def index_commits(self, repository: Path, actor_id: str, *, branch: str, limit: int = 20_000) -> int:
        """Index the newest commits of the branch that are not indexed yet, at most `limit`, and the files at its tip
        that have changed.

        Returns the number of commits that were indexed.  `repository` is a git directory, or a folder with `.git`.
        Raises GitError when git fails.
        """
        with self._lock:
            return self._open.history.index(repository, actor_id, branch, limit)

    def fill_vectors(self) -> int:
        """Make the vectors that active records lack (`memory.embeddings`); return the number of new vectors."""
        with self._lock:
            return self._open.vectors.fill()

    def indexed_tips(self, actor_id: str) -> frozenset[str]:
        """The commits up to which the histories of an actor's repositories are indexed."""
        with self._lock:
            return frozenset(row["tip"] for row in self._open.database.run("history_tips", actor_id=actor_id))

    def likely_files(self, query: str, actor_id: str, *, top_k: int = 10) -> list[FileHit]:
        """Files that changes similar to the query have touched, best first; deleted files are left out."""
        with self._reading() as parts:
            namespace, config = parts.files.episodes_of(actor_id)
            episodes = parts.retrieval(query, namespace, config)
            return parts.files(query[:LONGEST_QUERY], actor_id, _top(top_k), episodes)

    def list_memory_extraction_jobs(self, status: str | None = None) -> list[dict[str, Any]]:
        """Extraction jobs (rows of `memory_jobs`), oldest first.  Raises UsageError for an unknown status."""
        if status is not None and status not in JOB_STATUSES:
            raise UsageError(f"there is no status {status!r} of a job; allowed are {', '.join(JOB_STATUSES)}")
        with self._lock:
            return self._open.jobs.list(status)

    def start_memory_extraction_job(self, job_id: str) -> None:
        """Queue a failed job again.  Raises UsageError if there is no failed job with this id."""
        with self._lock:
            if not self._open.jobs.restart(job_id):
                raise UsageError(f"there is no failed extraction job {job_id}")

    @property
    def jobs(self) -> ExtractionJobs:
        """The table of extraction jobs, for the process of a job."""
        with self._lock:
            return self._open.jobs


def retrieval_of(values: Retrieval) -> RetrievalConfig:
    """The limits for a namespace from a value of `memory.namespaces`, with the defaults filled in."""
    return RetrievalConfig(values.get("top_k", 10), values.get("relevance_score", 0.2), values.get("min_trust", 0))


def _top(top_k: int) -> int:
    if not 1 <= top_k <= 1000:
        raise UsageError(f"top_k {top_k} is not allowed; allowed are 1 to 1000")
    return top_k
