"""The values of long-term memory, and the contract of its log.

The names are those of Amazon Bedrock AgentCore Memory: event, actor, session, strategy, namespace, memory record,
`top_k`, `relevance_score`.  The errors of the room are `MemoryUnavailable` (memory.db cannot be read or written) and
`UsageError` (an argument of the caller is wrong).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

STRATEGIES = ("facts", "preferences", "summaries", "episodes", "reflections")
STATUSES = ("active", "quarantined", "superseded", "invalid", "forgotten")
TRUST = {0: "outside text", 1: "inference of a model", 2: "verified result", 3: "operator"}
"""Classes of trust.  The trust of a record is the least of its sources."""


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """How the records of one namespace are retrieved: at most `top_k`, of a relevance of at least `relevance_score`
    (0: every hit, 1: only full matches), with a trust of at least `min_trust`."""

    top_k: int = 10
    relevance_score: float = 0.2
    min_trust: int = 0


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be stored; the fields are those of `MemoryStore.create_event`."""

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
    """One memory record.

    `id` is `mem-…`.  `status` is one of STATUSES; a record with the status `forgotten` is not stored: its text was
    forgotten before, and does not come back.  `timestamp` is the time of the source, `created_at` that of storing.
    `event_ids` and `record_ids` are its sources.  `helped` and `hurt` count the outcomes of tasks that it was given to.
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
    """A file that changes like the query have touched.  `score` is 0 to 1, `commits` are the hashes of the most similar
    ones that touched it."""

    path: str
    score: float
    commits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """What to forget: everything that fits one of the fields that are given.

    `ids` are ids of records, or numbers of events as text.  `session`, `actor` and `match` (a text that occurs in it,
    upper and lower case being equal) select events and records, `namespace` (a prefix that ends in `/`) records.
    """

    ids: tuple[str, ...] = ()
    session: str | None = None
    actor: str | None = None
    namespace: str | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten, or would be with `dry_run`.

    `remains` names files of this memory in which text was still found afterwards, each with a reason; empty is what
    is wanted.  `elsewhere` names places that memory does not reach.
    """

    events: tuple[int, ...] = ()
    records: tuple[str, ...] = ()
    dry_run: bool = True
    remains: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log.  `payload` is None when its text was forgotten."""

    number: int
    at: str
    operation: str
    subject: str
    who: str
    reason: str
    payload: Mapping[str, Any] | None


class Log(Protocol):
    """The append-only log.  Numbers grow; an event's number is its id."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Writers run one after the other; rolled back when the block raises."""
        ...

    def append(self, operation: str, subject: str, payload: Mapping[str, Any], *, who: str, reason: str = "") -> Entry:
        """Append an entry inside a transaction."""
        ...

    def entries(self, after: int = 0, limit: int = 1000) -> Sequence[Entry]:
        """At most `limit` entries with a higher number than `after`, in order."""
        ...

    def blank(self, numbers: Iterable[int]) -> None:
        """Remove the payload of entries, inside a transaction."""
        ...
