"""The value classes of long-term memory, and the interface of the memory log.

The terms of long-term memory are those of Amazon Bedrock AgentCore Memory: event, actor, session, strategy, namespace,
memory record, `top_k`, `relevance_score`. The errors of `agent/memory/` are `MemoryUnavailable` (memory.db or the
shared log cannot be read or written) and `UsageError` (an argument of the caller is wrong).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent.store.base import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

PURGE_SECONDS = 60.0
"""The host that forgets a text rewrites the table of the shared log, so that no bytes of the text remain; if it has not
done so after PURGE_SECONDS, any other host rewrites the table."""
STRATEGIES = ("facts", "preferences", "summaries", "episodes", "reflections")
STATUSES = ("active", "quarantined", "superseded", "invalid", "forgotten")
TRUST = {0: "outside text", 1: "inference of a model", 2: "verified result", 3: "operator"}
"""Classes of trust of a memory record or event: number → meaning.  The trust of a record is the lowest trust among its
sources."""


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """Limits of a retrieval from one namespace: at most `top_k` records, with a relevance of at least `relevance_score`
    (0: every hit, 1: only full matches) and a trust of at least `min_trust`."""

    top_k: int = 10
    relevance_score: float = 0.2
    min_trust: int = 0


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to store; the fields are the arguments of `MemoryStore.create_event`."""

    actor_id: str
    session_id: str
    text: str
    role: str = "user"
    timestamp: str | None = None
    source: str = ""
    trust: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory record, a text that later tasks may get.

    `id` has the form `mem-…`.  `status` is one of STATUSES; `forgotten` means that the record was not stored, because
    the same text was forgotten before (`memory forget`).  `timestamp` is the time of the record's source, `created_at`
    the time when the record was stored.  `event_ids` and `record_ids` are the events and records from which this record
    was made.  `helped` and `hurt` count the good and bad outcomes of the tasks that got the record.
    """

    id: str
    namespace: str
    strategy: str
    text: str
    title: str = ""
    timestamp: str = ""
    created_at: str = ""
    status: str = "active"
    reason: str = ""
    trust: int = 1
    session_id: str = ""
    pinned: bool = False
    uses: int = 0
    last_used_at: str | None = None
    helped: int = 0
    hurt: int = 0
    valid_to: str | None = None
    superseded_by: str | None = None
    expires_at: str | None = None
    event_ids: tuple[int, ...] = ()
    record_ids: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory record and its relevance to the query, from 0 to 1."""

    record: MemoryRecord
    score: float


@dataclass(frozen=True, slots=True)
class EventHit:
    """An event of long-term memory and its relevance to the query, from 0 to 1."""

    event_id: int
    text: str
    score: float
    session_id: str
    timestamp: str
    role: str = ""
    source: str = ""
    trust: int = 0


@dataclass(frozen=True, slots=True)
class FileHit:
    """A file that was touched by changes similar to the query.  `score` is the relevance of the file, from 0 to 1.
    `commits` are the hashes of the most similar commits that touched the file, `sessions` are the most similar tasks
    that touched the file."""

    path: str
    score: float
    commits: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects the events and records of long-term memory to forget: those that match at least one of the given fields.

    `ids` are ids of records, or numbers of events as text. `session`, `actor` and `match` select events and records;
    `match` is a substring, regardless of case, of the text, title, source, speaker, metadata or file names.
    `namespace`, a prefix that ends in `/`, selects records only.
    """

    ids: tuple[str, ...] = ()
    session: str | None = None
    actor: str | None = None
    namespace: str | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `MemoryStore.forget`: the events and records that were forgotten, or, with `dry_run`, that would be
    forgotten.

    `commits` is the number of indexed commits that were forgotten with the events and records. `jobs` are the
    extraction jobs with an error message that was removed, since it may quote a forgotten text. `remains` names the
    files of the memory that still contain a forgotten text, each with the reason; normally `remains` is empty.
    `elsewhere` names places outside of the memory that may still contain the forgotten texts.
    """

    events: tuple[int, ...] = ()
    records: tuple[str, ...] = ()
    dry_run: bool = True
    commits: int = 0
    jobs: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the memory log.  `payload` is the content of the entry, None after `forget` has removed it."""

    number: int
    at: str
    operation: str
    subject: str
    who: str
    reason: str
    payload: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of `Log.follow`: `entries` is the number of new entries from other hosts, `imported` the number of
    this host's entries that were added to the shared log; `remains` names the files that still contain a forgotten
    text."""

    entries: int = 0
    imported: int = 0
    remains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """The place of the shared memory log: its address `where`, for messages, and a function that opens its database."""

    where: str
    open: Callable[[], LogDatabase]


class LogDatabase(Database, Protocol):
    """A database with the tables of the shared log (`store.migrate.SHARED_LOG`)."""

    def rewrite(self, table: str) -> int | None:
        """Let the database server rewrite the file of a table, so that it no longer contains updated or deleted rows.

        Returns the number of old row versions that remain because an open transaction may read them; None if the server
        did not rewrite the file.
        """
        ...


class Appending(Protocol):
    """The part of a memory log that a write transaction uses."""

    def append(
        self,
        operation: str,
        subject: str,
        payload: Mapping[str, Any],
        *,
        who: str,
        reason: str = "",
        at: str | None = None,
    ) -> Entry:
        """Append an entry to the memory log; `at` defaults to the present time."""
        ...

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the texts of the log entries with the numbers `numbers`, but not the entries."""
        ...


class Log(Appending, Protocol):
    """The append-only log of memory operations.  The numbers of the log's entries only increase; the id of an event is
    the number of its entry.

    `LocalLog` is a table of memory.db, `SharedLog` a table of PostgreSQL that several hosts share.  memory.db has a
    copy of the log's entries from which its other tables were made.  Every method of a log may raise MemoryUnavailable.
    """

    def transaction(self) -> AbstractContextManager[Any]:
        """A write transaction of the log, as a context manager: one at a time on all hosts, and rolled back after an
        error.  Inside the transaction the tables of memory.db contain the effect of every entry of the log."""
        ...

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` log entries in memory.db with a higher number than `after`, in the order of their numbers."""
        ...

    def follow(self) -> Followed:
        """Apply the entries of the log, up to the newest one, to the tables of memory.db."""
        ...

    def rebuilding(self) -> AbstractContextManager[Any]:
        """A transaction in which the tables of memory.db are rebuilt from `entries`."""
        ...

    def purge(self, *, left_by_others: bool = False) -> str:
        """Remove the bytes of forgotten texts from the shared log; returns the reason if some bytes may remain, else
        "". With `left_by_others` the bytes are removed only if the host that forgot the texts has not removed them in
        time."""
        ...

    def status(self) -> Mapping[str, Any]:
        """The state of the log: `where` is the place of the log, `last` the number of its newest entry, `applied` the
        number up to which memory.db contains its entries; if the log cannot be reached, `last` is None and there is an
        `error`. `own` is True if memory.db has log entries that the shared log does not have."""
        ...

    def close(self) -> None:
        """Close the connections of the memory log."""
        ...
