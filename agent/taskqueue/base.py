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
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import RowUnreadable
from agent.registry import Registry
from agent.values import Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
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


class Notices(Protocol):
    """What a ledger tells of changes.  Every method raises an error of its own kind when the connection is cut."""

    def fileno(self) -> int:
        """A descriptor that can be read when there is something to take."""
        ...

    def take(self) -> bool:
        """Whether something changed since the last call; never waits."""
        ...

    def close(self) -> None:
        """End it; a second time does nothing."""
        ...


ENDING = "ending"
"""First word of an open row's `outcome` once its end is kept; status and end follow (`agent/run/ending.py`)."""


def is_decided(outcome: str | None) -> bool:
    """Whether an open row's `outcome` is an end that is decided, and perhaps told."""
    return (outcome or "").startswith(f"{ENDING} ")


_NUMBERS = frozenset(
    (
        *("process_id", "context_length", "llm_call_count", "tool_call_count", "total_tokens", "compression_count"),
        *("attempt", "deaths", "last_seq", "priority", "prompt_tokens", "completion_tokens", "cached_tokens", "cost"),
        *("estimated_tokens", "other_call_count"),
        "progress_at_claim",
    )
)


def _may_hold(name: str, value: Any) -> bool:
    """Whether a value can stand in a column: SQLite takes anything anywhere."""
    if name in _NUMBERS:
        return isinstance(value, Number)
    if not isinstance(value, str):
        return False
    return name != "status" or value in set(Status)


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
    estimated_tokens: int = 0
    other_call_count: int = 0
    cost: float = 0.0
    progress_at_claim: int = 0
    started_by: str | None = None
    obeyed: str | None = None
    tell_at: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Row:
        """From a database row; columns of a newer schema are left out."""
        values = {field.name: record[field.name] for field in fields(cls) if record.get(field.name) is not None}
        for name, value in values.items():
            if not _may_hold(name, value):
                raise RowUnreadable(
                    f"task {record.get('uuid')} in the ledger: column {name} holds {value!r}, which cannot be there; "
                    f"mend it, or delete the row"
                )
        return cls(**values | {"status": Status(record["status"])})

    @property
    def turns(self) -> int:
        """Answers of the conversation: requests without the others."""
        return self.llm_call_count - self.other_call_count

    @property
    def key(self) -> TaskKey:
        """What the task is about."""
        return TaskKey(self.task_source, self.owner, self.repo, self.task_type, self.task_id, self.instance)

    @property
    def orders(self) -> frozenset[str]:
        """Ids of the comments that were obeyed."""
        return frozenset((self.obeyed or "").split())

    @property
    def is_decided(self) -> bool:
        """Whether the end is decided, and perhaps told, although the row is open (`ENDING`)."""
        return is_decided(self.outcome)

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


@dataclass(frozen=True, slots=True)
class AtOnce:
    """How many tasks may run at the same time of one repository, of one person and with one model's server; None: any
    number."""

    repository: int | None = None
    person: int | None = None
    server: int | None = None

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return (self.repository, self.person, self.server) != (None, None, None)


FREE = AtOnce()


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
        started_by: str | None = None,
    ) -> str | None:
        """Queue a task; returns its uuid (`uuid`, else a new version 4).

        None: a task of that key is open already, or the comment `started_by` (its id on the forge) has started one of
        this key before, whatever became of it; nothing was written.  Higher `priority` goes first.  UsageError
        when `uuid` is not one, LedgerError when another task has it.
        """
        ...

    def restore(self, record: Mapping[str, Any]) -> bool:
        """Insert a row with these columns (`run/restore.record_of`), which has attempt 1 and was told; False when there
        is one of that uuid, or an open one of that key."""
        ...

    def offer(self, uuid: str) -> bool:
        """Let a queued row be claimed now, whatever its `not_before`; False when it is not queued."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Remove a queued row that is held back and that nobody has ever offered or claimed, as if it had never been
        put; False when it is not so."""
        ...

    def now(self) -> datetime:
        """The time of the database, by which `not_before` and leases are judged."""
        ...

    @property
    def has_notices(self) -> bool:
        """Whether this kind of ledger tells of changes, so that it need not be asked every second."""
        ...

    def notices(self) -> Notices | None:
        """Hear of changes by all who use this ledger, in a connection that the caller closes; None when it tells of
        none, or cannot be reached just now."""
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

    def running_here(self) -> Rows:
        """Rows that run on this host, whatever their base_dir, the newest first; as many as it has, not as the fleet
        has."""
        ...

    def paused_for(self, outcome: str) -> Rows:
        """Paused rows with this outcome, the newest first."""
        ...

    def latest(self, key: TaskKey) -> Row | None:
        """The newest row of the key, open or closed; None when there was none."""
        ...

    def due(self, limit: int, now: datetime | None = None, *, outcome: str | None = None) -> Uuids:
        """Uuids of queued rows whose `not_before` has passed and that nobody has reserved, those with this `outcome`
        where one is named: highest priority, then oldest first.  A look only; `take` says what is next."""
        ...

    def take(
        self,
        limit: int,
        owner: str,
        *,
        seconds: float,
        server: str = "",
        at_once: AtOnce = FREE,
        without: Iterable[str] = (),
        outcome: str | None = None,
    ) -> Uuids:
        """Reserve the next rows for `owner`, which starts them; returns at most `limit` uuids, in the order of start.

        Highest priority first.  Within a priority it goes round robin over the pairs (who asked, repository), that
        pair first which was last served longest ago; of one pair the oldest row goes first.  A reserved row is no
        other's for `seconds`, and counts as running for `at_once`: with those limits no row is taken of a person, a
        repository or a model's server (`server`) that has as many tasks running already, on whatever host.
        `without`: rows that are not to be taken now.  `outcome`: as in `due`."""
        ...

    def give_up(self, uuid: str, owner: str) -> bool:
        """Let others take a row that `owner` has reserved and does not start; False when it is not so."""
        ...

    def give_up_all(self, owner: str) -> Uuids:
        """Let everybody take what earlier processes of the owner's place have reserved: one daemon at a time works
        there."""
        ...

    def publish(self, limit: int, again_after: float | None = None) -> Rows:
        """Rows that are due and to be given to a broker, each to one caller: those that were not published since they
        were queued, and with `again_after` those that were published more than so many seconds ago and are queued
        still.  They count as published from now on.  Highest priority, then oldest first.  Rows whose outcome is
        `publishing` are never among them: their work lies on one host."""
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

    def release(self, uuid: str, attempt: int, not_before: datetime | str | None = None) -> Status:
        """Give a row back: a drain, no death; the status it has now.  That is `queued`, or what was requested of the
        holder and not obeyed yet: `stopped` or `paused`, which are untold then.  A row whose end is decided (outcome
        `ending …`) goes back to the queue in any case.  Fenced."""
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
        on_settled: Callable[[Row], None] | None = None,
        everywhere: bool = False,
        tool_calls: Callable[[Row], int] = lambda row: row.tool_call_count,
        publish: Callable[[Row, str, str], bool] = lambda _row, _code, _message: False,
        blamed: Callable[[Row], bool] = lambda _row: True,
    ) -> Uuids:
        """Put the rows of dead holders back into the queue, as `release` does; returns the uuids of those that are
        queued.  Every other one is handed to `on_settled` as it is now.

        A row of this base_dir is judged by `is_alive` alone, however old its lease; any other by its lease alone; a row
        that nobody leased (a program that uses the library by itself) is left alone.  With `everywhere` all leased rows
        are judged by `is_alive`: for a ledger that one kernel alone can open, so that a start after a reboot or in a
        new container need not wait for leases.  `is_alive` may end what a dead holder left running.  A death after
        which there were no more model and tool calls than at the claim counts in `deaths`, any other sets it to 0, and
        one for which the task is not `blamed` changes nothing; at the third in a row the row becomes `failed` with code
        `poison`.  Counters are written once a turn; so `tool_calls` counts, for a row that `is_alive` judges, what its
        holder has on disk, and the row catches up with it.  `publish` is called before a row becomes `failed` in this
        way, with code and message: where it leaves what was done to one more attempt and returns True, the row is
        queued.
        """
        ...

    def after_the_clock(self) -> Uuids:
        """Make due soon what waits for a time that a clock, wrong then and put right since, has set: queued rows that
        were touched in the future, and tellings later than any is put off.  Returns their uuids."""
        ...

    def is_mine(self, row: Row, owner: str) -> bool:
        """Whether the row's holder is of the same machine and base_dir as `owner`."""
        ...

    def counts(self) -> dict[Status, int]:
        """How many rows there are in each status; a status without rows is 0."""
        ...

    def groups(self) -> Records:
        """`status`, `host` ("" for none), `count` of all rows, and `since`: when the oldest open one of the group came
        into its status, None for closed ones."""
        ...

    def request(
        self, uuid: str, word: Word, *, comment: str | None = None, waiting: str | None = None, why: str | None = None
    ) -> Status:
        """Stop, pause or resume from outside; returns the status the row has now.

        `comment`: the id of the comment that says so.  It is remembered in the same transaction, and a second time it
        changes nothing.  `waiting`: only a paused row with this outcome is changed; it is for what a task waited for,
        which a person who paused it meanwhile does not want to wake it.  `why`: what people are told of a stop that is
        done at once; it becomes the `error_message` of the row.

        Queued and paused rows change at once, and are untold then.  A pause also holds what waits for something else:
        its outcome becomes `paused`, unless its work lies on one host to be published or told.  A resume makes a row
        that was begun and put off (`not_before`) due.  A running row keeps its status, and the word stands in
        `requested` until its holder has obeyed, or lets go of it; resume takes a pause back, nothing takes a stop back.
        UsageError for a closed row, for none, and for another word.
        """
        ...

    def follow(self, source: str, old: str, new: str) -> Uuids:
        """A place where tasks come from has another `instance` now: its rows follow, their uuids are returned.  A row
        whose key has one at the new place stays.  Doing it again changes nothing."""
        ...

    def open_instances(self) -> dict[tuple[str, str], int]:
        """(source, instance) → number of its open rows."""
        ...

    def watched(self, source: str, instance: str, since: datetime) -> Rows:
        """What people may still say something to at one place, the newest first: the newest row of each key, unless it
        runs (its worker listens by itself) or ended before `since`."""
        ...

    def answered(self, uuid: str, comment: str) -> None:
        """Remember, in a row of any status, a comment whose order could not be followed and that was answered."""
        ...

    def untold(self, limit: int | None = None) -> Rows:
        """Rows that were changed by nobody who works on them, or while the forge was away, and whose telling is due:
        ended, paused, or resumed."""
        ...

    def tell_again(self, uuid: str) -> bool:
        """Make what became of a row due to be told once more, since an older attempt may have shown something else
        meanwhile; False, and nothing changed, while somebody works on it: he shows it himself."""
        ...

    def telling(self, uuid: str, until: datetime | str) -> bool:
        """Take over the telling of a row; False: it is told, or somebody else is at it.  It is due again at `until`,
        unless `told` is called before."""
        ...

    def told(self, uuid: str, until: datetime | str) -> bool:
        """The person knows what became of the task.  `until`: as given to `telling`; False, and nothing changed, when
        something else became of it meanwhile, which is told next."""
        ...

    def today(self, *, owner: str, repo: str, instance: str, source: str | None = None) -> tuple[int, float]:
        """(runs, money) of one repository since midnight UTC.  Counted are runs that started today or wait to start,
        and the whole cost of every task that worked today: a limit is met early rather than late."""
        ...

    def closed_before(self, before: datetime | str) -> Records:
        """`uuid`, `status`, `completed_at` of closed rows that ended earlier, the oldest first; without those that an
        open one goes on from (`parent_uuid`)."""
        ...

    def delete(self, uuid: str) -> bool:
        """Remove a closed row; False when there is none, it is open, or an open one goes on from it."""
        ...

    def close(self) -> None:
        """Close the database; a second time does nothing."""
        ...
