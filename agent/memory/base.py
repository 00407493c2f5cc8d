"""The value classes of long-term memory, and the interface of its log.

The terms are those of Amazon Bedrock AgentCore Memory: event, actor, session, strategy, namespace, memory record,
`top_k`, `relevance_score`.  The errors of `agent/memory/` are `MemoryUnavailable` (memory.db cannot be read or written)
and `UsageError` (an argument of the caller is wrong).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent.store.base import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

PURGE_SECONDS = 60.0
"""The host that forgot a text rewrites the table of the shared log; any other host does so if this has not happened
after so many seconds."""
STRATEGIES = ("facts", "preferences", "summaries", "episodes", "reflections")
STATUSES = ("active", "quarantined", "superseded", "invalid", "forgotten")
TRUST = {0: "outside text", 1: "inference of a model", 2: "verified result", 3: "operator"}
"""Classes of trust: number → meaning.  The trust of a record is the lowest trust among its sources."""


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
    the same text was forgotten before (`memory forget`).  `timestamp` is the time of the source, `created_at` the time
    when the record was stored.  `event_ids` and `record_ids` are the sources of the record.  `helped` and `hurt` count
    the good and bad outcomes of the tasks that got the record.
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
    """A record and its relevance to the query, 0 to 1."""

    record: MemoryRecord
    score: float


@dataclass(frozen=True, slots=True)
class EventHit:
    """An event and its relevance to the query, 0 to 1."""

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
    """A file that was touched by changes similar to the query.  `score`, the relevance, is 0 to 1.  `commits` are the
    hashes of the most similar commits that touched the file, `sessions` the most similar tasks that touched it."""

    path: str
    score: float
    commits: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects events and records to forget: those that match at least one of the given fields.

    `ids` are ids of records, or numbers of events as text.  `session`, `actor` and `match` select events and records;
    `match` is a substring of the text, regardless of case.  `namespace`, a prefix that ends in `/`, selects records
    only.
    """

    ids: tuple[str, ...] = ()
    session: str | None = None
    actor: str | None = None
    namespace: str | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `MemoryStore.forget`: events and records that were forgotten, or would be (`dry_run`).

    `jobs` are the extraction jobs with an error message that was removed, since it may quote a forgotten text.
    `remains` names the files of the memory that still contain a forgotten text, each with the reason; normally it is
    empty.  `elsewhere` names places outside of the memory that may still contain the forgotten texts.
    """

    events: tuple[int, ...] = ()
    records: tuple[str, ...] = ()
    dry_run: bool = True
    jobs: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the memory log.  `payload` is None once `forget` has removed it."""

    number: int
    at: str
    operation: str
    subject: str
    who: str
    reason: str
    payload: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of `follow`: `entries` is the number of new entries from other hosts, `imported` the number of this
    host's entries that were added to the shared log; `remains` names the files that still contain a forgotten text."""

    entries: int = 0
    imported: int = 0
    remains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """The shared log: its address `where`, for messages, and a function that opens its database."""

    where: str
    open: Callable[[], LogDatabase]


class LogDatabase(Database, Protocol):
    """A database with the tables of the shared log (`store.migrate.SHARED_LOG`)."""

    def rewrite(self, table: str) -> int | None:
        """Rewrite the file of a table; returns the number of old row versions that remain, None if the file was not
        rewritten.
        """
        ...


class Appending(Protocol):
    """The part of a log that a write transaction uses."""

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
        """Append an entry; `at` defaults to the present time."""
        ...

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the texts of the entries with these numbers."""
        ...


class Log(Appending, Protocol):
    """The append-only log of memory operations.  The numbers of the entries only increase; the id of an event is the
    number of its entry.

    `LocalLog` is a table of memory.db, `SharedLog` a table of PostgreSQL that several hosts share.  memory.db always
    has a copy of the entries from which its other tables were made.  Every method may raise MemoryUnavailable.
    """

    def transaction(self) -> AbstractContextManager[Any]:
        """A write transaction: one at a time on all hosts, and rolled back if the block raises.  Inside the block, the
        tables of memory.db reflect every entry."""
        ...

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` entries of memory.db with a higher number than `after`, in order."""
        ...

    def follow(self) -> Followed:
        """Apply all entries up to the newest one to memory.db."""
        ...

    def rebuilding(self) -> AbstractContextManager[Any]:
        """A transaction in which the tables are rebuilt from `entries`."""
        ...

    def purge(self, *, left_by_others: bool = False) -> str:
        """Remove the bytes of forgotten texts from the shared log; returns the reason if some may remain, else "".
        `left_by_others`: do this only if the host that forgot the texts has not done it in time."""
        ...

    def status(self) -> Mapping[str, Any]:
        """`where` is the place of the log, `last` the number of its newest entry, `applied` the number up to which
        memory.db contains it; if the log cannot be reached, `last` is None and there is an `error`.  `own`: whether
        memory.db has entries that the shared log does not have."""
        ...

    def close(self) -> None:
        """Close the connections of the log."""
        ...
