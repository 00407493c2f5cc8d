"""The contract of a ledger: one row per task, and a process works on a task only after it has claimed the row.

`agent.taskqueue.ledger.Ledger` implements the contract over any database that has the named queries of
`store/sql/ledger.sql`; `tests/contract/test_contract_ledger.py` runs against every entry of `LEDGERS`
(`store/ledgers.py`) and against a plug-in.  `LedgerEntry` is the contract of a function or class that opens a ledger.

**Atomic** means: when any number of processes, on any number of hosts, call at the same time, the result is the same as
if they had called one after the other, and it is durable before the call returns.  If the process is killed during a
call, the call has taken effect either completely or not at all.

**The fence.** Every claim increments `attempt`.  Every write of a holder contains its attempt.  If a newer attempt
exists, or the row is not running any more, nothing is written and `Fenced` is raised: the holder must stop at once.

**The lease.** Each heartbeat extends `lease_until`.  The lease decides whether a holder on another host or of another
base_dir counts as alive.  For a holder of this base_dir the flock on the task's folder decides; the holder takes it
before the claim, and the kernel releases it when the holder dies.

**One open row per key.** A row is open if it is `queued`, `running` or `paused`.  The database itself refuses a second
open row of a key.

Status changes follow `transitions.TRANSITIONS`; any other change raises LedgerError.  Times are UTC, written by
`clock.stamp`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agent.errors import RowUnreadable
from agent.values import Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from agent.store.base import Database
    from agent.store.ledgers import Finding
    from agent.taskqueue.transitions import Request
    from agent.values import Usage


class Notices(Protocol):
    """Notifications of changes from a ledger.  Every method raises an error of the database's driver when the
    connection is cut."""

    def fileno(self) -> int:
        """A file descriptor that becomes readable when a notification has arrived."""
        ...

    def poll(self) -> bool:
        """Whether something changed since the last call; the method never waits."""
        ...

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        ...


ENDING = "ending"
"""The first word of an open row's `outcome` once its end is decided and stored; the words after it are the status and
the end (`agent/worker/final_state.py`)."""


def is_decided(outcome: str | None) -> bool:
    """Whether the `outcome` of an open row is a decided end, of which people may already have been notified."""
    return (outcome or "").startswith(f"{ENDING} ")


_NUMBERS = frozenset(
    (
        *("process_id", "context_length", "llm_call_count", "tool_call_count", "total_tokens", "compression_count"),
        *("attempt", "deaths", "last_seq", "priority", "prompt_tokens", "completion_tokens", "cached_tokens", "cost"),
        *("estimated_tokens", "other_call_count", "memory_requests"),
        "progress_at_claim",
    )
)


def _may_hold(name: str, value: Any) -> bool:
    """Whether a value is valid for a column; SQLite itself accepts any type in any column."""
    if name in _NUMBERS:
        return isinstance(value, Number)
    if not isinstance(value, str):
        return False
    return name != "status" or value in set(Status)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table `tasks`: the columns of docs/design/context.md, 2.2 and those added since."""

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
    remember_at: str | None = None
    pull_state: str | None = None
    memory_requests: int = 0

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Row:
        """Make a row from a database record; columns that only a newer schema has are left out."""
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
        """The number of answers in the conversation: all requests to the model, without those for other purposes such
        as summaries."""
        return self.llm_call_count - self.other_call_count

    @property
    def key(self) -> TaskKey:
        """The task key of the issue or pull request."""
        return TaskKey(self.task_source, self.owner, self.repo, self.task_type, self.task_id, self.instance)

    @property
    def handled_comments(self) -> frozenset[str]:
        """Ids of the comments with commands that were executed."""
        return frozenset((self.obeyed or "").split())

    @property
    def is_decided(self) -> bool:
        """Whether the end is decided, and people may have been notified of it, although the row is still open
        (`ENDING`)."""
        return is_decided(self.outcome)

    @property
    def cursor(self) -> str | None:
        """The position up to which the issue's comments were read."""
        return self.comment_cursor


Uuids = list[str]
PullState = Literal["merged", "closed"]
"""The final state of a pull request; while it is open, the row contains none."""
Rows = list[Row]
Records = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that this process holds.

    `attempt` is the fence; `parent_uuid` is the task that this one continues, None if there is none.
    """

    uuid: str
    attempt: int
    key: TaskKey
    user: str | None = None
    parent_uuid: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class AtOnce:
    """The maximum number of tasks that may run at the same time for one repository, for one person and with one model
    server; None means no maximum."""

    repository: int | None = None
    person: int | None = None
    server: int | None = None

    def __bool__(self) -> bool:
        """Whether any of the maximums is set."""
        return (self.repository, self.person, self.server) != (None, None, None)


FREE = AtOnce()


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """The usage of one request that was sent for long-term memory; `estimated` is the number of tokens that no server
    has reported.
    """

    usage: Usage
    estimated: int = 0
    cost: float = 0.0


class LedgerEntry(Protocol):
    """The contract of the value of `taskqueue.ledger`: a function or a class, `package.module:name`, or an entry of
    `LEDGERS`.

    The entry is called with `(base_dir, address)` and returns an open BaseLedger; a missing database is created.
    `address` is the value of `taskqueue.ledger`; the entry itself interprets the text after `package.module:name://`.
    The entry passes `place=row_holder.place(base_dir)` to `Ledger`, which recognises the holders of this base_dir by
    their place.

    Commands that only read use the attributes below, which the function or the class itself has.  Each attribute is
    optional; the defaults are in `store/ledgers.LedgerKind`.  The entry may raise LedgerError, DiskError or HostError.
    """

    is_local: bool
    """Whether only one host can open the ledger; the default is False.

    With a local ledger a host continues its tasks at once after a change of its name or a reboot; with a shared one it
    waits until the leases end.
    """

    title: str
    """A name of one word; the default is "ledger"."""

    preload: tuple[str, ...]
    """Modules to import once, before workers are forked; the default is the module of the entry."""

    def __call__(self, base_dir: Path, address: str) -> BaseLedger:
        """Open the ledger."""
        ...

    def where(self, base_dir: Path, address: str) -> str:
        """The location of the ledger, for messages; the default is the address without the password."""
        ...

    def exists(self, base_dir: Path, address: str) -> bool:
        """Whether the ledger exists; the default is True.  The method creates nothing."""
        ...

    def look(self, base_dir: Path, address: str) -> Database:
        """The database for reading: the call creates nothing and does not migrate the schema.

        The default is the `db` of an open ledger.
        """
        ...

    def check(self, base_dir: Path, address: str) -> Finding:
        """(whether the ledger is usable, a description, advice) for `doctor`; the default is whether it opens."""
        ...

    def backup(self, base_dir: Path, address: str, target: Path) -> tuple[str, str]:
        """Copy the rows into the folder `target`.

        Returns (name of the file there, a sentence about it, which is "" for a file that a person can restore
        unchanged).  The default is a list in `tasks.jsonl`.
        """
        ...


class BaseLedger(Protocol):
    """The methods of a ledger, each of which is atomic.

    The methods raise LedgerError when the database fails, DiskError when the disk fails.
    """

    db: Database
    """The database of the rows, with the tables of all migrations (`store/migrate.apply`) and the named queries of
    `store/sql`.  The task's own stores and the stored facts about models use it too."""

    def enqueue(
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
        """Queue a task; returns its uuid (`uuid` if given, else a new one of version 4).

        Returns None, and writes nothing, if a task of that key is already open, or if the comment `started_by` (its id
        on the forge) has started a task of this key before, which may have ended since.  Tasks with a higher `priority`
        start first.  Raises UsageError when `uuid` is invalid, LedgerError when another task has it.
        """
        ...

    def restore(self, record: Mapping[str, Any]) -> bool:
        """Insert a row with these columns (`intake/restore_rows.record_of`) that needs no notification; False when a
        row with that uuid exists, or an open row of that key."""
        ...

    def offer(self, uuid: str) -> bool:
        """Make a queued row claimable now, even if its `not_before` is later; False when the row is not queued."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Remove a queued row that is delayed and was never offered or claimed, as if it had never been queued; False
        for any other row."""
        ...

    def now(self) -> datetime:
        """The time of the database, with which `not_before` and leases are compared."""
        ...

    @property
    def has_notices(self) -> bool:
        """Whether this kind of ledger sends notifications of changes, so that the daemon need not poll every second."""
        ...

    def notices(self) -> Notices | None:
        """Open a connection that receives the changes of all users of this ledger; the caller closes it.

        Returns None when the ledger sends no notifications, or cannot be reached at present.
        """
        ...

    def get(self, uuid: str) -> Row | None:
        """The row with this uuid, None if there is none."""
        ...

    def resolve(self, prefix: str) -> str:
        """The uuid that begins with `prefix`.

        Raises UsageError when no uuid or several uuids match; in the second case the message names some of them.
        """
        ...

    def list(self, status: Status | str | None = None, limit: int | None = None) -> Rows:
        """Rows of the ledger, the newest first.  Raises UsageError for an unknown status."""
        ...

    def running_here(self) -> Rows:
        """Running rows of this host, of any base_dir, the newest first.

        The cost of the query does not depend on the number of hosts.
        """
        ...

    def paused_for(self, outcome: str) -> Rows:
        """Paused rows with this outcome, the newest first."""
        ...

    def latest(self, key: TaskKey) -> Row | None:
        """The newest row of the key, open or closed; None if there is none."""
        ...

    def due(self, limit: int, now: datetime | None = None, *, outcome: str | None = None) -> Uuids:
        """Uuids of queued rows with a past `not_before` and without a reservation, optionally only those with this
        `outcome`: highest priority, then oldest first.  The method reserves nothing; `reserve` decides which rows start
        next."""
        ...

    def reserve(
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
        """Reserve the next rows for `owner`, which will start them; returns at most `limit` uuids, in the order in
        which to start them.

        Rows with the highest priority come first.  Rows of one priority come round robin over the pairs (person who
        asked, repository): first the pair that was served longest ago, and for one pair the oldest row.  For `seconds`
        no other owner gets a reserved row.  A reserved row counts as running for the limits `at_once`: no row is
        reserved for a person, a repository or a model server (`server`) that already has that many running tasks, on
        any host.  `without` has the uuids of rows to skip for now.  `outcome` has the same meaning as in `due`.
        """
        ...

    def release_reservation(self, uuid: str, owner: str) -> bool:
        """Cancel the reservation of a row that `owner` will not start; False if there is no such reservation."""
        ...

    def release_reservations(self, owner: str) -> Uuids:
        """Cancel the reservations of earlier processes of the owner's place, which is safe because only one daemon at a
        time works there."""
        ...

    def publish(self, limit: int, again_after: float | None = None) -> Rows:
        """Rows that are due and must be published to a broker, each returned to one caller: those that were not
        published since they were queued, and with `again_after` also those that were published more than this many
        seconds ago and are still queued.  From now on the returned rows count as published.  Rows with the highest
        priority come first, then the oldest rows.  Rows with the outcome `publishing` are never included: their work is
        on one host.
        """
        ...

    def claim(self, uuid: str, owner: str, lease_seconds: float) -> Claim:
        """Claim the row for this process: its status becomes `running`, `attempt` is incremented, and it gets a lease;
        `started_at` is set only at the first claim.

        Raises ClaimLost, and writes nothing, when the row is not queued, not due yet, or missing.  Of several callers
        exactly one gets the row.
        """
        ...

    def heartbeat(self, uuid: str, attempt: int, lease_seconds: float) -> str | None:
        """Renew the lease without writing counters (`context` also writes counters); returns `requested`.

        Raises Fenced.
        """
        ...

    def requested(self, uuid: str) -> str | None:
        """The request that the holder has to execute: "stop", "pause" or None.

        If there is no row, the result is None too.
        """
        ...

    def release(self, uuid: str, attempt: int, not_before: datetime | str | None = None) -> Status:
        """Release a row, which does not count as the death of its holder; returns the new status.

        The new status is `queued`, or `stopped` or `paused` if the holder has not executed a request for it yet; then
        people still have to be notified.  A row with a decided end (outcome `ending …`) is queued in any case.  Raises
        Fenced.
        """
        ...

    def finish(
        self,
        uuid: str,
        attempt: int,
        status: Status | str,
        *,
        outcome: str | None = None,
        error_message: str | None = None,
        error_code: str | None = None,
    ) -> None:
        """Close a row that its own process cannot close, because the task never started or its folder is gone.

        Raises Fenced, or LedgerError for a change that the table does not allow.
        """
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
        """Release the rows of dead holders, as `release` does; returns the uuids of those that are queued now.

        Every other released row is passed to `on_settled` with its new state.

        For a row of this base_dir only `is_alive` decides, even if its lease is old; for any other row only the lease
        decides.  A row without a lease (of a program that uses the library directly) stays unchanged.  With
        `everywhere` `is_alive` decides for all rows that have a lease: this is for a ledger that only one kernel can
        open, so that a start after a reboot or in a new container does not wait for leases.  `is_alive` may kill
        processes that a dead holder left running.

        A death without any model or tool call since the claim increments `deaths`, another death sets it to 0, and a
        death for which the task is not `blamed` does not change it.  After the third death without progress in a row
        the row becomes `failed` with the code `poison`.  Counters of the row are written once a turn, so they may be
        out of date.  So for rows for which `is_alive` decides, `tool_calls` returns the number of tool calls on disk,
        and the row is updated with that number.  `publish` is called, with the code and message, before a row becomes
        `failed` in this way.  If `publish` returns True, one more attempt will publish the work, and the row is queued.
        """
        ...

    def repair_future_times(self) -> Uuids:
        """Correct times that were set while a clock was wrong: queued rows with a last change in the future become due
        soon, and so do notifications with a time that is later than any delay allows.  Returns the uuids of the
        corrected rows."""
        ...

    def is_mine(self, row: Row, owner: str) -> bool:
        """Whether the holder of the row is on the same machine and has the same base_dir as `owner`."""
        ...

    def counts(self) -> dict[Status, int]:
        """The number of rows in each status; 0 for a status without rows."""
        ...

    def count_groups(self) -> Records:
        """Groups of all rows with `status`, `host` ("" if there is none), `count`, and `since`: the time when the
        oldest open row of the group got its status, None for closed rows."""
        ...

    def request(
        self,
        uuid: str,
        word: Request,
        *,
        comment: str | None = None,
        waiting: str | None = None,
        why: str | None = None,
    ) -> Status:
        """Request a stop, pause or resume from outside; returns the new status of the row.

        `comment`: the id of the comment with the command.  The id is stored in the same transaction, and the same
        request with the same id changes nothing.  `waiting`: the row is changed only if it is paused with this outcome.
        `waiting` is for an event that a task waits for: the event must not resume a row that a person has paused in the
        meantime.  `why`: the reason for an immediate stop of which people are notified; it becomes the `error_message`
        of the row.

        Queued and paused rows change at once, and people still have to be notified.  A pause also changes a row that
        waits for something else: its outcome becomes `paused`, unless its work is on one host and waits for publication
        or notification.  A resume makes a row due that was started before and is delayed (`not_before`).  The status of
        a running row does not change, and `requested` has the request until the holder has executed it or releases the
        row.  A resume cancels a pause; nothing cancels a stop.

        Raises UsageError for a closed or missing row, and for an unknown request.
        """
        ...

    def move_instance(self, source: str, old: str, new: str) -> Uuids:
        """Change the `instance` in the rows of a forge that has a new instance; returns their uuids.

        A row stays unchanged if the new instance already has a row of its key.  A second call changes nothing
        more.
        """
        ...

    def open_instances(self) -> dict[tuple[str, str], int]:
        """(source, instance) → number of open rows with them."""
        ...

    def rows_to_watch(self, source: str, instance: str, since: datetime) -> Rows:
        """The rows of one forge for which comments have to be read, newest first: the newest row of each key, unless it
        is running (its worker reads the comments) or ended before `since`."""
        ...

    def mark_answered(self, uuid: str, comment: str) -> None:
        """Store, in a row of any status, the id of a comment with a command that could not be executed and was
        answered."""
        ...

    def due_notifications(self, limit: int | None = None) -> Rows:
        """Rows with a due notification: they ended, were paused or were resumed while no worker held them or the forge
        was not reachable."""
        ...

    def notify_again(self, uuid: str) -> bool:
        """Make the notification about a row's state due once more, since an older attempt may have shown another state
        in the meantime.  Returns False, and changes nothing, while a holder works on the row, because the holder shows
        the state itself."""
        ...

    def begin_notification(self, uuid: str, until: datetime | str) -> bool:
        """Take over the notification of a row; False if people were notified already, or if another process does it.

        The notification is due again at `until`, unless `mark_notified` is called before.
        """
        ...

    def mark_notified(self, uuid: str, until: datetime | str) -> bool:
        """Mark that people were notified of the state of the task.

        `until` must be the value that was passed to `begin_notification`.  Returns False, and changes nothing, when the
        state changed in the meantime; the notification of the new state is due then.
        """
        ...

    def remember_ends(self) -> None:
        """From now on every task that this object ends, and on which a worker has worked, is due for long-term
        memory.

        Called after the ledger was opened, if `memory.enabled` is set.
        """
        ...

    def due_extractions(self, limit: int | None = None, *, host: str | None = None) -> Rows:
        """Closed rows that are due for long-term memory, the one that is due longest first; with `host` only those with
        a last worker on the host of this name, which has the folder."""
        ...

    def begin_extraction(self, uuid: str, until: datetime | str) -> bool:
        """Take over the memory extraction of a row; False if the extraction is done, or if another process does it.

        The extraction is due again at `until`, unless `delay_extraction` or `mark_extracted` is called before.
        """
        ...

    def delay_extraction(self, uuid: str, until: datetime | str, later: datetime | str) -> bool:
        """Move the time at which an extraction that was taken over is due again, from `until` to `later`: to hold it
        longer, or to return it for a later attempt.  Returns False, and changes nothing, when the caller does not hold
        the extraction until `until` any more."""
        ...

    def mark_extracted(self, uuid: str, until: datetime | str) -> bool:
        """Mark that long-term memory has the task, or cannot take it.

        `until` must be the value that was passed last.  Returns False, and changes nothing, when the row became due for
        another reason in the meantime.
        """
        ...

    def extract_again(self, uuid: str) -> bool:
        """Make the memory extraction of a closed row due now; False for a row that is not closed."""
        ...

    def note_pull(self, uuid: str, state: PullState) -> bool:
        """Store the final state of the pull request of a closed row on which a worker has worked, and make its memory
        extraction due.  Returns False, and changes nothing, when the row has that state already."""
        ...

    def count_memory_requests(self, uuid: str, was: int, usages: Sequence[MemoryRequest]) -> bool:
        """Add requests for long-term memory to the counters of a row, which include `was` of them already
        (`memory_requests`).  Returns False, and changes nothing, when the counters include another number of requests.
        """
        ...

    def usage_today(self, *, owner: str, repo: str, instance: str, source: str | None = None) -> tuple[int, float]:
        """(runs, money) that one repository has used since midnight UTC.

        Runs that started today or wait to start count, and the whole cost of every task that worked today, so that a
        limit is reached early rather than late.
        """
        ...

    def closed_before(self, before: datetime | str) -> Records:
        """`uuid`, `status`, `completed_at` of closed rows that ended before this time, the oldest first, without rows
        that an open row continues (`parent_uuid`)."""
        ...

    def host_last_seen(self, host: str) -> str | None:
        """The last time (ISO 8601) at which the host with this name wrote a row as its last holder; None when no row
        names the host."""
        ...

    def delete(self, uuid: str) -> bool:
        """Remove a closed row; False when the row is missing or open, or when an open row continues it."""
        ...

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        ...
