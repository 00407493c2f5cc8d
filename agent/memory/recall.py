"""Recall for one task: the memories for its briefing, and the results of the model's `recall` tool.

A TaskRecall opens memory.db at its first call and does not add or change memories. A caller that no longer waits for a
call in another thread calls `abandon`. A TaskRecall never creates a missing memory.db. A task gets no quarantined
records, no events from which quarantined records were made, and no events of trust 0. A person ends the quarantine of a
record by `memory promote`; that of a reflection also ends when the result of its task is verified or merged, or when
another task gives a similar reflection.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.memory import standing_preferences
from agent.memory.base import TRUST
from agent.memory.namespaces import expand, session_of
from agent.security.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.memory.base import EventHit, FileHit, MemoryHit
    from agent.memory.store import MemoryStore

FILES = 8
"""Maximum number of files in a briefing (`likely_files.py`)."""
FOUND = 8
"""Maximum number of items of each kind (records, events, files) in one result of the `recall` tool."""
RELEVANCE = 0.2
"""Minimum relevance of an event in a result of the `recall` tool.  The default minimum relevance of a record
(`memory.namespaces`) is higher, since records are also put into a briefing, for which the model did not ask.
"""
SHORT = 8
"""Number of characters of the id of a task or commit that a memory shows as its source."""
LONGEST_PATH = 300
MOST_QUARANTINED = 1000
_BETWEEN = re.compile(r"[\W_]+")


class TaskRecall:
    """Finds memories for one task.

    `actors` are the actors with memories that the task may read: the first is the actor of the task itself; the last is
    the actor with the history of commits.  `session_id` is the uuid of the task; memories that were made from this task
    are left out.  `said_elsewhere` are the uuids of earlier tasks; their summaries are in the briefing already and are
    left out.
    """

    def __init__(
        self,
        make: Callable[[], MemoryStore],
        actors: Sequence[str],
        session_id: str,
        said_elsewhere: Iterable[str] = (),
    ) -> None:
        self.make = make
        self.store = make()
        self.actors = tuple(actors)
        self.session_id = session_id
        self.said_elsewhere = frozenset(said_elsewhere)

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of all records of one retrieval (`memory.max_tokens`)."""
        return self.store.config.max_tokens

    def abandon(self) -> None:
        """Interrupt the call of a TaskRecall that another thread makes.  Calls after `abandon` open memory.db again."""
        store, self.store = self.store, self.make()
        store.stop()

    def close(self) -> None:
        """Interrupt a call of another thread, and close memory.db."""
        self.store.stop()

    def indexed_tips(self) -> frozenset[str]:
        """The commits up to which the histories of the task's repositories are indexed.  Raises MemoryUnavailable."""
        store = self.store
        return store.indexed_tips(self.actors[-1]) if store.path.exists() else frozenset()

    def recall(self, query: str) -> list[Mapping[str, Any]]:
        """The memories for a briefing: pinned records, then the other records, best first, then standing preferences
        that are not pinned, then files.

        Each memory is a mapping with `id`, `kind`, `content`, `source`, `relevance`, and for a record `pinned`.  Raises
        MemoryUnavailable.
        """
        store = self.store
        if not store.path.exists():
            return []
        *others, last = self.actors
        found, files = store.retrieve_with_files(query, last, top_k_files=FILES)
        always = [hit for actor in self.actors for hit in store.standing_preferences(actor)]
        hits = self._allowed_hits([*(hit for actor in others for hit in store.retrieve(query, actor)), *found, *always])
        return [*map(_of_record, hits), *map(_of_file, _plausible(files))]

    def search(self, query: str) -> list[Mapping[str, Any]]:
        """The result of the `recall` tool: records, then events of earlier tasks, then files with their commits.

        Each item of the result is a mapping with the same keys as in the result of `recall`.  Raises MemoryUnavailable.
        """
        store = self.store
        if not store.path.exists():
            return []
        *others, last = self.actors
        found, likely = store.retrieve_with_files(query, last, top_k_files=FOUND)
        records = self._allowed_hits([*(hit for actor in others for hit in store.retrieve(query, actor)), *found])[
            :FOUND
        ]
        known = {number for hit in records for number in hit.record.event_ids} | self._quarantined(store)
        events = [
            hit
            for actor in self.actors
            for hit in store.search_events(query, actor, top_k=3 * FOUND)
            if hit.trust > 0
            and hit.score >= RELEVANCE
            and hit.session_id != self.session_id
            and hit.event_id not in known
        ]
        # of events with the same text only the best is used: each task of an issue has an event with the text
        each = {hit.text: hit for hit in sorted(events, key=lambda hit: hit.score)}
        events = sorted(each.values(), key=lambda hit: -hit.score)[:FOUND]
        return [*map(_of_record, records), *map(_of_event, events), *map(_of_file, _plausible(likely))]

    def _allowed_hits(self, hits: Iterable[MemoryHit]) -> list[MemoryHit]:
        """The active records that were not made from this task, without the summaries of sessions in `said_elsewhere`,
        each text once; pinned records first, then the most relevant ones."""
        found: dict[str, MemoryHit] = {}
        for hit in hits:
            session = hit.record.session_id or session_of(hit.record.namespace)
            told = session in self.said_elsewhere and hit.record.strategy == "summaries"
            if session != self.session_id and not told and hit.record.status == "active":
                found.setdefault(hit.record.text, hit)
        return sorted(found.values(), key=lambda hit: (not hit.record.pinned, -hit.score))

    def _quarantined(self, store: MemoryStore) -> set[int]:
        """Numbers of the events from which quarantined records were made."""
        return {
            number
            for actor in self.actors
            for template in store.retrieval_config
            for record in store.list_memory_records(
                expand(template, actor), status="quarantined", limit=MOST_QUARANTINED
            )
            for number in record.event_ids
        }


def _plausible(files: Sequence[FileHit]) -> list[FileHit]:
    """The files, or none if no commit or task is similar to the query; files with a very long path, or with a path that
    looks like prompt injection, are left out."""
    if not any(hit.commits or hit.sessions for hit in files):
        return []
    return [hit for hit in files if len(hit.path) <= LONGEST_PATH and not _is_phrase(hit.path)]


def _is_phrase(path: str) -> bool:
    """Whether the text of a path, read as a sentence, matches a pattern of prompt injection."""
    return bool(clean(_BETWEEN.sub(" ", path)).findings)


def _of_record(hit: MemoryHit) -> Mapping[str, Any]:
    record = hit.record
    session = record.session_id or session_of(record.namespace)
    strategy = record.strategy if hit.score > standing_preferences.RELEVANCE else f"{record.strategy}, for every task"
    origin = [strategy, *([f"task {session[:SHORT]}"] if session else []), record.timestamp[:10]]
    title = record.title.strip()
    return {
        "id": record.id,
        "kind": "record",
        "content": record.text if not title or title in record.text else f"{title}: {record.text}",
        "source": ", ".join([*origin, TRUST.get(record.trust, "")]),
        "relevance": hit.score,
        "pinned": record.pinned,
    }


def _of_event(hit: EventHit) -> Mapping[str, Any]:
    origin = [hit.source or hit.role, f"task {hit.session_id[:SHORT]}", hit.timestamp[:10], TRUST.get(hit.trust, "")]
    return {
        "id": str(hit.event_id),
        "kind": "event",
        "content": hit.text,
        "source": ", ".join(part for part in origin if part),
        "relevance": hit.score,
    }


def _of_file(hit: FileHit) -> Mapping[str, Any]:
    tasks = [f"task {session[:SHORT]}" for session in hit.sessions]
    commits = [f"commits {', '.join(commit[:SHORT] for commit in hit.commits)}"] if hit.commits else []
    return {
        "id": hit.path,
        "kind": "file",
        "content": hit.path,
        "source": ", ".join([*tasks, *commits]) or "words of the file",
        "relevance": hit.score,
    }
