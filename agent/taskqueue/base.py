"""The contract of a ledger: one row per task, and nobody works on a task whose row he did not claim.

`agent.taskqueue.ledger.Ledger` fulfils it over any database that has the named queries of `store/sql/ledger.sql`;
`tests/contract/test_contract_ledger.py` runs against every entry of `LEDGERS`.

**Atomic** means here: of any number of processes, on any number of hosts, that call at the same instant, the outcome is
as if they had called one after the other, and it is durable before the call returns.  Killed in the middle, a call has
happened wholly or not at all.

**The fence.**  Every claim counts `attempt` up.  Whatever a holder writes names the attempt it holds; when a newer one
exists, or the row is not running any more, nothing is written and `Fenced` is raised: the holder stops at once.

**The lease.**  `lease_until` is pushed forward by each beat.  It judges holders that cannot be seen from here; a holder
of this base_dir is judged by the flock on its folder, taken before the claim and freed by the kernel at its death.

**One open row per key.**  `queued`, `running` and `paused` are open.  The database itself refuses a second one.

Status changes follow `moves.MOVES`; anything else is a LedgerError.  Times are UTC, written by `clock.stamp`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from agent.registry import Registry
from agent.values import Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime

    from agent.taskqueue.moves import Word

LEDGERS = Registry(
    "ledger",
    {"sqlite": "agent.taskqueue.ledger:open_sqlite", "postgresql": "agent.taskqueue.ledger:open_postgresql"},
)
"""Scheme of `taskqueue.ledger` → function `(base_dir, address) -> BaseLedger`; `sqlite` is `base_dir/tasks.db`."""


class Database(Protocol):
    """What a ledger needs of a database (`store.base.Database`)."""

    def run(self, name: str, /, **params: Any) -> list[dict[str, Any]]:
        """Execute a named query."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """All or nothing; sees no change of others between its first statement and its end, or they are refused."""
        ...

    def now(self) -> datetime:
        """The time by which leases are judged."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `tasks`: the seed's columns (seed 002, 2.2) and ours."""

    uuid: str
    task_source: str
    owner: str
    repo: str
    task_type: str
    task_id: str
    status: Status
    created_at: str
    instance: str = ""
    started_at: str | None = None
    completed_at: str | None = None
    process_id: int | None = None
    hostname: str | None = None
    llm_provider: str | None = None
    model: str | None = None
    context_length: int | None = None
    llm_call_count: int = 0
    tool_call_count: int = 0
    total_tokens: int = 0
    compression_count: int = 0
    error_message: str | None = None
    user: str | None = None
    attempt: int = 0
    lease_owner: str | None = None
    lease_until: str | None = None
    heartbeat_at: str | None = None
    deaths: int = 0
    last_seq: int = 0
    requested: str | None = None
    priority: int = 0
    not_before: str | None = None
    outcome: str | None = None
    error_code: str | None = None
    title: str | None = None
    branch: str | None = None
    url: str | None = None
    parent_uuid: str | None = None
    comment_cursor: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    progress_at_claim: int = 0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Row:
        """From a database row; columns of a newer schema are left out."""
        values = {field.name: record[field.name] for field in fields(cls) if record.get(field.name) is not None}
        return cls(**values | {"status": Status(record["status"])})

    @property
    def key(self) -> TaskKey:
        """What the task is about."""
        return TaskKey(self.task_source, self.owner, self.repo, self.task_type, self.task_id, self.instance)

    @property
    def cursor(self) -> str | None:
        """How far the issue's comments were read."""
        return self.comment_cursor


Uuids = list[str]
Rows = list[Row]
Records = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that is ours.  `attempt` is the fence; `parent_uuid` the task that this one follows, None for none."""

    uuid: str
    attempt: int
    key: TaskKey
    user: str | None = None
    parent_uuid: str | None = None
    title: str | None = None


class BaseLedger(Protocol):
    """Every method is atomic.  LedgerError when the database refuses, DiskError when the disk does."""

    def put(
        self,
        key: TaskKey | Mapping[str, Any],
        *,
        uuid: str | None = None,
        user: str | None = None,
        title: str | None = None,
        priority: int = 0,
        not_before: datetime | str | None = None,
        parent_uuid: str | None = None,
        provider: str | None = None,
        model: str | None = None,
    ) -> str | None:
        """Queue a task; returns its uuid (`uuid`, else a new version 4).

        None: a task of that key is open already, and nothing was written.  Higher `priority` goes first.  UsageError
        when `uuid` is not one, LedgerError when another task has it.
        """
        ...

    def offer(self, uuid: str) -> bool:
        """Let a queued row be claimed now, whatever its `not_before`; False when it is not queued."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Remove a queued row that nobody has ever claimed, as if it had never been put; False when it is not so."""
        ...

    def get(self, uuid: str) -> Row | None:
        """The row, None when there is none."""
        ...

    def resolve(self, prefix: str) -> str:
        """The uuid that begins with `prefix`.  UsageError when none or several do; it names some of the several."""
        ...

    def list(self, status: Status | str | None = None, limit: int | None = None) -> Rows:
        """Rows, the newest first.  UsageError for an unknown status."""
        ...

    def latest(self, key: TaskKey) -> Row | None:
        """The newest row of the key, open or closed; None when there was none."""
        ...

    def due(self, limit: int, now: datetime | None = None) -> Uuids:
        """Uuids of queued rows whose `not_before` has passed: highest priority, then oldest first.  An offer only."""
        ...

    def publish(self, limit: int, again_after: float | None = None) -> Rows:
        """Rows that are due and to be given to a broker, each to one caller: those that were not published since they
        were queued, and with `again_after` those that were published more than so many seconds ago and are queued
        still.  They count as published from now on.  Highest priority, then oldest first."""
        ...

    def claim(self, uuid: str, owner: str, lease_seconds: float) -> Claim:
        """Make the row ours: `running`, attempt + 1, with a lease; `started_at` at the first time only.

        ClaimLost, and nothing written, when it is not queued (any more), not due yet, or not there.  Of several callers
        exactly one gets it.
        """
        ...

    def beat(self, uuid: str, attempt: int, lease_seconds: float) -> str | None:
        """Renew the lease without counters (`context` beats with them); returns `requested`.  Fenced."""
        ...

    def requested(self, uuid: str) -> str | None:
        """What was asked of the holder: "stop", "pause" or None.  None too when there is no row."""
        ...

    def release(self, uuid: str, attempt: int, not_before: datetime | str | None = None) -> None:
        """Give a row back to the queue: a drain, no death.  What was requested stays for the next holder.  Fenced."""
        ...

    def end(
        self,
        uuid: str,
        attempt: int,
        status: Status | str,
        *,
        outcome: str | None = None,
        error_message: str | None = None,
        error_code: str | None = None,
    ) -> None:
        """Close a row whose folder cannot do it itself: never started, or gone.  Fenced; LedgerError by the table."""
        ...

    def requeue_dead(
        self,
        is_alive: Callable[[Row], bool],
        now: datetime | None = None,
        *,
        on_poison: Callable[[Row], None] | None = None,
    ) -> Uuids:
        """Put the rows of dead holders back into the queue; returns their uuids.

        A row of this base_dir is judged by `is_alive` alone, however old its lease; any other by its lease alone; a row
        that nobody leased (a program that uses the library by itself) is left alone.  `is_alive` may end what a dead
        holder left running.  A death after which there were no more model and tool calls than at the claim counts in
        `deaths`, any other sets it to 0; at the third in a row the row becomes `failed` with code `poison`, is not in
        the list, and is handed to `on_poison`.
        """
        ...

    def is_mine(self, row: Row, owner: str) -> bool:
        """Whether the row's holder is of the same machine and base_dir as `owner`."""
        ...

    def count_running(self, owner_prefix: str = "") -> int:
        """Running rows whose holder begins with the prefix (`identity.place`)."""
        ...

    def counts(self) -> dict[Status, int]:
        """How many rows there are in each status; a status without rows is 0."""
        ...

    def request(self, uuid: str, word: Word) -> Status:
        """Stop, pause or resume from outside; returns the status the row has now.

        Queued and paused rows change at once.  A running row keeps its status, and the word stands in `requested` until
        its holder has obeyed; resume takes a pause back, nothing takes a stop back.  UsageError for a closed row, for
        none, and for another word.
        """
        ...

    def today(self, *, owner: str, repo: str, instance: str, source: str | None = None) -> tuple[int, float]:
        """(runs, money) of one repository since midnight UTC.  Counted are runs that started today or wait to start,
        and the whole cost of every task that worked today: a limit is met early rather than late."""
        ...

    def closed_before(self, before: datetime | str) -> Records:
        """`uuid`, `status`, `completed_at` of closed rows that ended earlier, the oldest first."""
        ...

    def delete(self, uuid: str) -> bool:
        """Remove a closed row; False when there is none or it is open."""
        ...

    def close(self) -> None:
        """Close the database; a second time does nothing."""
        ...
