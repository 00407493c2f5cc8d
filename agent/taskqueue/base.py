"""The contract of a ledger, a database with one row per task: a process works on a task only after it has claimed the
row.

`agent.taskqueue.ledger.Ledger` implements the contract over any database that has the named queries of
`store/sql/ledger.sql`; `tests/contract/test_contract_ledger.py` runs against every entry of `LEDGERS`
(`store/configured_ledger.py`) and against a plug-in.  `LedgerEntry` is the contract of the function or class that opens
a ledger.

**Atomic** means: when any number of processes, on any number of hosts, call at the same time, the result is the same as
if they had called one after the other, and the result is stored durably before the call returns.  If the process is
killed during a call, the call has taken effect either completely or not at all.

**The fence.** Every claim increments the column `attempt` of the row.  Every write of a holder (the process that has
claimed the row) contains the attempt number of its claim.  If the row has a newer attempt, or is not running any more,
nothing is written and `Fenced` is raised: the process must stop at once.

**The lease.** Each heartbeat of a holder extends the lease of its row (`lease_until`).  Whether a holder on another
host or with another base_dir counts as alive is decided by the lease.  For a holder with the same base_dir the flock on
the task's folder decides; the holder takes it before the claim, and the kernel releases it when the holder dies.

**One open row per key.** A row is open if it is `queued`, `running` or `paused`.  The database itself refuses a second
open row with the same task key.

Status changes follow `transitions.TRANSITIONS`; any other change raises LedgerError.  Times are texts in UTC in the
format of `clock.stamp`.
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
    from agent.store.configured_ledger import Finding
    from agent.taskqueue.transitions import Request
    from agent.values import Usage


class Notices(Protocol):
    """A connection that receives notifications when any process has changed the ledger. Every method raises an error of
    the database's driver when the connection is cut."""

    def fileno(self) -> int:
        """A file descriptor that becomes readable when a notification has arrived."""
        ...

    def poll(self) -> bool:
        """Whether a notification has arrived since the last call; the method never waits."""
        ...

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        ...


ENDING = "ending"
"""The first word of the `outcome` of an open row if the end of the task is decided and stored but not yet published;
the words after it are the status, the end and the code of a review (`agent/worker/final_state.py`)."""


PUBLISHING = "publishing"
"""The `outcome` of an open row if the work of the task is finished and only its publication is left
(`agent/worker/unpublished_work.py`)."""


def is_decided(outcome: str | None) -> bool:
    """Whether the column `outcome` of an open row says that the end of the task is decided (`ENDING`), so that people
    may already have been notified of it."""
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
    """Whether a value is valid for a column of the table `tasks`; this is checked because SQLite accepts any type in
    any column."""
    if name in _NUMBERS:
        return isinstance(value, Number)
    if not isinstance(value, str):
        return False
    return name != "status" or value in set(Status)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table `tasks`: the columns that docs/design/context.md, 2.2, describes, and columns that were
    added later."""

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
    head_commit: str | None = None
    base_commit: str | None = None
    requested_by: str | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Row:
        """Make a row from a database record; columns that this version does not know are left out. Raises RowUnreadable
        for a value that its column cannot have."""
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
        """The number of requests to the model for the conversation of the task, without the requests for other
        purposes, such as summaries."""
        return self.llm_call_count - self.other_call_count

    @property
    def key(self) -> TaskKey:
        """The task key of the issue or pull request on which the task works."""
        return TaskKey(self.task_source, self.owner, self.repo, self.task_type, self.task_id, self.instance)

    @property
    def handled_comments(self) -> frozenset[str]:
        """The ids of the comments with commands that were executed or answered."""
        return frozenset((self.obeyed or "").split())

    @property
    def is_decided(self) -> bool:
        """Whether the end of the task is decided although the row is still open (`ENDING`), so that people may already
        have been notified of it."""
        return is_decided(self.outcome)

    @property
    def cursor(self) -> str | None:
        """The comment cursor: the position up to which the issue's comments were read, None if they were never read."""
        return self.comment_cursor


Uuids = list[str]
PullState = Literal["merged", "closed"]
"""The state in which a pull request was closed; the column `pull_state` is empty until the pull request has been seen
merged or closed."""
Rows = list[Row]
Records = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of this process on a row.

    `attempt` is the number that every write of the process must contain; `parent_uuid` is the task that the claimed
    task continues, None if there is none.
    """

    uuid: str
    attempt: int
    key: TaskKey
    user: str | None = None
    parent_uuid: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class AtOnce:
    """How many tasks may run at the same time for one repository, for one person, and with one model server; None means
    no maximum."""

    repository: int | None = None
    person: int | None = None
    server: int | None = None

    def __bool__(self) -> bool:
        """Whether any of the maximum numbers is set."""
        return (self.repository, self.person, self.server) != (None, None, None)


FREE = AtOnce()


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """The token counts and the cost of one request to a model for long-term memory; `estimated` is how many of the
    tokens are estimated.
    """

    usage: Usage
    estimated: int = 0
    cost: float = 0.0


class LedgerEntry(Protocol):
    """The contract of the function or class that the setting `taskqueue.ledger` names: an entry of `LEDGERS`, or a
    plug-in `package.module:name`.

    The entry is called with `(base_dir, address)` and returns an open BaseLedger; if the database does not exist, the
    entry creates it. `address` is the value of `taskqueue.ledger`; a plug-in interprets the text after
    `package.module:name://` itself. The entry has to pass `place=row_holder.place(base_dir)` to `Ledger`, which
    recognises by this place the holders with the same base_dir.

    The program uses the attributes and methods of LedgerEntry before it opens a ledger, so they are attributes of the
    named function or class itself. Each attribute is optional; `store/configured_ledger.LedgerKind` has the defaults.
    The entry of a ledger may raise LedgerError, DiskError or HostError.
    """

    is_local: bool
    """Whether only one host can use the ledger; the default is False.

    After a reboot or a change of its name, a host continues the tasks of a local ledger at once; with a shared ledger
    the host waits until the leases of its tasks end.
    """

    title: str
    """A name of the ledger for messages, in one word; the default is "ledger"."""

    preload: tuple[str, ...]
    """Modules that are imported once, before workers are forked; the default is the module of the entry."""

    def __call__(self, base_dir: Path, address: str) -> BaseLedger:
        """Open the ledger at `address`."""
        ...

    def where(self, base_dir: Path, address: str) -> str:
        """The location of the ledger, for messages; the default is the address without the password."""
        ...

    def exists(self, base_dir: Path, address: str) -> bool:
        """Whether the ledger at the address exists; the default is True. The method `exists` creates nothing."""
        ...

    def look(self, base_dir: Path, address: str) -> Database:
        """Open the database for reading: the call creates nothing and does not migrate the schema.

        The default is to open the ledger and return its attribute `db`.
        """
        ...

    def check(self, base_dir: Path, address: str) -> Finding:
        """Check the ledger for `doctor`: (whether it is usable, a description, advice); the default is to open the
        ledger."""
        ...

    def backup(self, base_dir: Path, address: str, target: Path) -> tuple[str, str]:
        """Copy the rows of the ledger into the folder `target`.

        Returns (name of the new file, a sentence about it, "" if the file can be used unchanged to restore the ledger).
        The default implementation writes each row as a line of `tasks.jsonl`.
        """
        ...


class BaseLedger(Protocol):
    """The methods of a ledger. Each method is atomic; `requeue_dead` and `repair_future_times` are atomic for each
    single row.

    The methods raise LedgerError when the database fails, DiskError when the disk fails.
    """

    db: Database
    """The database of the rows, with the tables of all migrations (`store/migrate.apply`) and the named queries of
    `store/sql`.  The stores of a running task and the stored facts about models use the same database."""

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

        Returns None, and writes nothing, if a task with that key is already open, or if the comment with the id
        `started_by` has already started a task with this key, even if that task has ended. Tasks with a higher
        `priority` start first. Raises UsageError when `uuid` is invalid, LedgerError when `uuid` is the uuid of a task
        with another key.
        """
        ...

    def restore(self, record: Mapping[str, Any]) -> bool:
        """Insert a row with the columns in `record` (`intake/restore_rows.record_of`), about which people need not be
        notified; returns False when a row with that uuid exists, or an open row with that key."""
        ...

    def offer(self, uuid: str) -> bool:
        """Make a queued row due now, even if its `not_before` is later; returns False when the row is not queued."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Remove a row that was just queued, while it is still delayed and was neither offered nor claimed; returns
        False, and removes nothing, for any other row."""
        ...

    def now(self) -> datetime:
        """The time of the database, with which `not_before` and leases are compared."""
        ...

    @property
    def has_notices(self) -> bool:
        """Whether this kind of ledger can send notifications of changes, so that the daemon need not poll it every
        second."""
        ...

    def notices(self) -> Notices | None:
        """Open a connection that receives notifications of changes that any process makes to this ledger; the caller
        closes it.

        Returns None when the ledger sends no notifications, or cannot be reached at present.
        """
        ...

    def get(self, uuid: str) -> Row | None:
        """The row of the task with this uuid, None if there is none."""
        ...

    def resolve(self, prefix: str) -> str:
        """The uuid of the task of which the uuid begins with `prefix`.

        Raises UsageError when no uuid or several uuids begin with `prefix`; in the second case the message names some
        of them.
        """
        ...

    def list(self, status: Status | str | None = None, limit: int | None = None) -> Rows:
        """The rows of the ledger, the newest first. Raises UsageError for an unknown status."""
        ...

    def running_here(self) -> Rows:
        """The running rows of which the holder is on this host, with any base_dir, the newest first.

        The query reads only the running rows of this host, so its duration does not depend on the number of hosts.
        """
        ...

    def paused_for(self, outcome: str) -> Rows:
        """The paused rows with this `outcome`, the newest first."""
        ...

    def latest(self, key: TaskKey) -> Row | None:
        """The newest row with this task key, open or closed; None if there is none."""
        ...

    def due(self, limit: int, now: datetime | None = None, *, outcome: str | None = None) -> Uuids:
        """The uuids of queued rows that are due (`not_before` is past) and not reserved, by priority and then by age;
        with `outcome` only those with this outcome. The method `due` reserves nothing; `reserve` decides which rows
        start next."""
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
        """Reserve the rows that `owner` is to start next; returns at most `limit` uuids, in the order in which to start
        them.

        Among the rows to reserve, those with the highest priority come first. Rows of one priority come round robin
        over the pairs (person who asked, repository): first the pair that was served longest ago, and for one pair the
        oldest row. A reserved row is not given to any other owner for `seconds`. A reserved row counts as running for
        the limits `at_once`: no row is reserved for a person, a repository or a model server (`server`) that already
        has that many running tasks, on any host. `without` has the uuids of rows that must not be reserved now. With
        `outcome` only rows with this outcome are reserved.
        """
        ...

    def release_reservation(self, uuid: str, owner: str) -> bool:
        """Cancel the reservation of a row that `owner` will not start; returns False if `owner` has not reserved the
        row."""
        ...

    def release_reservations(self, owner: str) -> Uuids:
        """Cancel the reservations of earlier processes with the same host and base_dir as `owner`, which is safe
        because only one daemon at a time works with a base_dir."""
        ...

    def publish(self, limit: int, again_after: float | None = None) -> Rows:
        """Get the rows of which the uuids must be sent to the broker: due rows that were not published since they were
        queued, and with `again_after` also rows that were published more than this many seconds ago and are still
        queued. Each row to publish is returned to one caller only. Rows that the method returns count as published from
        this call on. Among the rows to publish, those with the highest priority come first, then the oldest. Rows with
        the outcome `publishing` are never returned, since their unpublished work is on one host only.
        """
        ...

    def claim(self, uuid: str, owner: str, lease_seconds: float) -> Claim:
        """Claim the row for this process: its status becomes `running`, `attempt` is incremented, and it gets a lease;
        `started_at` is set only at the first claim.

        Raises ClaimLost, and writes nothing, when the row is not queued, not due yet, or missing.  If several processes
        call at the same time, exactly one gets the row.
        """
        ...

    def heartbeat(self, uuid: str, attempt: int, lease_seconds: float) -> str | None:
        """Renew the lease of a row; returns the row's `requested` (None without a request). (The heartbeat in the
        package `context` renews the lease too, and writes counters in addition.)

        Raises Fenced.
        """
        ...

    def requested(self, uuid: str) -> str | None:
        """The request that the holder of the row has to execute: "stop", "pause", or None if there is none.

        The result is also None if the ledger has no row with this uuid.
        """
        ...

    def release(self, uuid: str, attempt: int, not_before: datetime | str | None = None) -> Status:
        """Put a row back that this process holds, which does not count as a death of the holder; returns the new
        status.

        The new status is `queued`; but if there is a request to stop or pause that the holder has not executed, the new
        status is `stopped` or `paused`, and people have to be notified.  A row with a decided end (outcome `ending …`)
        is queued in any case.  Raises Fenced.
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
        """Close a row when the task's own stores cannot do this, because the task never started or its folder is gone.

        Raises Fenced, or LedgerError for a change of status that `transitions.TRANSITIONS` does not allow.
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
        """Put back the rows of dead holders, as `release` does; returns the uuids of the rows that are queued now.

        Every row of a dead holder that became `paused`, `stopped` or `failed` is passed to `on_settled`.

        Whether the holder of a row is dead is decided by `is_alive` alone if the holder has this base_dir, even if the
        lease is old, and by the lease alone if the holder has another base_dir.  A row without a lease (of a program
        that uses the library directly) stays unchanged.  With `everywhere` `is_alive` decides for all rows that have a
        lease: this is for a ledger that only one host can use, so that a daemon need not wait for leases after a reboot
        or in a new container.  The function `is_alive` may kill processes that a dead holder has left running.

        If the dead holder made no model or tool call since its claim, the column `deaths` is incremented, unless
        `blamed` returns that the task is not the cause; if the dead holder made such a call, `deaths` becomes 0. After
        three deaths without progress, one after the other, the row becomes `failed` with the error code `poison`,
        unless `publish` returns True. The counters in a row are written once a turn, so they may be out of date. For a
        row for which `is_alive` decides, the function `tool_calls` therefore returns the number of tool calls in the
        task's folder, and the row is updated with this number. Before a row becomes `failed` after three deaths,
        `publish` is called with the error code and message. If `publish` returns True, the row does not fail and is
        queued once more, for an attempt that publishes the work.
        """
        ...

    def repair_future_times(self) -> Uuids:
        """Correct times that were written while a clock was wrong: a delayed row (`not_before`) of which the last
        change is in the future too becomes due soon, and a notification or memory extraction that is due later than any
        delay would allow becomes due now. Returns the uuids of the corrected rows."""
        ...

    def is_mine(self, row: Row, owner: str) -> bool:
        """Whether the holder of the row is on the same machine and has the same base_dir as `owner`."""
        ...

    def counts(self) -> dict[Status, int]:
        """The number of rows in each status; 0 for a status without rows."""
        ...

    def count_groups(self) -> Records:
        """Count all rows by status and host: records with `status`, `host` ("" if there is none), `count`, and `since`
        (the time since which the oldest open row of the group has had its status, or has been due if it is queued; None
        for closed rows)."""
        ...

    def request(
        self,
        uuid: str,
        word: Request,
        *,
        comment: str | None = None,
        waiting: str | None = None,
        why: str | None = None,
        who: str | None = None,
    ) -> Status:
        """Request a stop, pause or resume from outside; returns the new status of the row.

        `comment`: the id of the comment with the command. The id of the comment is stored in the same transaction, so
        that a repeated request with this id changes nothing. `waiting`: an outcome; the row is changed only if it is
        paused with this outcome. The caller gives `waiting` when it resumes a task because of an event for which the
        task waits, since a task that a person has paused in the meantime must stay paused. `why`: the reason for a stop
        that takes effect at once; it becomes the `error_message` of the row, of which people are notified. `who` is the
        person or program that gave the request; the column `requested_by` has this until the next request that changes
        something.

        The status of a queued or paused row changes at once, and a notification of people becomes due. If a row is
        paused for another reason than a request, a request to pause changes its outcome to `paused`, unless its work
        waits on one host for publication or notification. A resume makes a queued row due at once that was started
        before and is delayed (`not_before`). The status of a running row does not change: the column `requested` has
        the request until the holder has executed it, puts the row back, or dies. A resume cancels a pause; nothing
        cancels a stop.

        Raises UsageError for a closed or missing row, and for an unknown request.
        """
        ...

    def move_instance(self, source: str, old: str, new: str) -> Uuids:
        """Change the `instance` of a forge's rows from `old` to `new`; returns the uuids of the changed rows.

        A row is not changed if the ledger already has a row with the same key in the new instance. A repeated call of
        `move_instance` changes nothing.
        """
        ...

    def open_instances(self) -> dict[tuple[str, str], int]:
        """The open rows of the forges: (source, instance) of a forge → number of its open rows."""
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
        """The rows about which people must be notified now, for example because a task ended, was paused or was resumed
        while no worker held its row, or while the forge was not reachable."""
        ...

    def notify_again(self, uuid: str) -> bool:
        """Make the notification about the state of a row due once more, since an older attempt may have shown another
        state on the issue after people were notified.  Returns False, and changes nothing, while a holder works on the
        row, because the holder shows the state itself."""
        ...

    def begin_notification(self, uuid: str, until: datetime | str) -> bool:
        """Take over the notification about a row; returns False if people were notified already, or if another process
        has taken the notification over.

        If `mark_notified` is not called before `until`, the notification becomes due again at `until`.
        """
        ...

    def mark_notified(self, uuid: str, until: datetime | str) -> bool:
        """Mark that people were notified of the state of the task.

        `until` must be the value that was passed to `begin_notification`.  Returns False, and changes nothing, when the
        state changed in the meantime; the notification of the new state is due instead.
        """
        ...

    def remember_ends(self) -> None:
        """After this call every task that ends through this object becomes due for long-term memory, if a worker has
        worked on it.

        `LedgerKind.open` calls `remember_ends` if long-term memory is enabled.
        """
        ...

    def due_extractions(self, limit: int | None = None, *, host: str | None = None) -> Rows:
        """The closed rows that are due for long-term memory, the one that has been due longest first; with `host` only
        those of which the last worker ran on the host of this name, which has the folder."""
        ...

    def begin_extraction(self, uuid: str, until: datetime | str) -> bool:
        """Take over the memory extraction of a row; returns False if the extraction is done, or if another process has
        taken the extraction over.

        If neither `delay_extraction` nor `mark_extracted` is called before `until`, the extraction becomes due again at
        `until`.
        """
        ...

    def delay_extraction(self, uuid: str, until: datetime | str, later: datetime | str) -> bool:
        """Move the time at which an extraction that was taken over becomes due again from `until` to `later`: to have
        more time for it, or to leave it to a later attempt.  Returns False, and changes nothing, when the caller no
        longer has the extraction (the time in the row is not `until`)."""
        ...

    def mark_extracted(self, uuid: str, until: datetime | str) -> bool:
        """Mark the memory extraction of a row as done: long-term memory has taken the task, or cannot take it.

        `until` must be the time that the last call of `begin_extraction` (as `until`) or `delay_extraction` (as
        `later`) has set. Returns False, and changes nothing, when the row has another time now, because the extraction
        became due again.
        """
        ...

    def extract_again(self, uuid: str) -> bool:
        """Make the memory extraction of a closed row due now; returns False for a row that is not closed."""
        ...

    def note_pull(self, uuid: str, state: PullState) -> bool:
        """Store the final state of the pull request of a closed row on which a worker has worked, and make its memory
        extraction due.  Returns False, and changes nothing, when the row is missing, is not closed, was never claimed,
        or has the state `state` already."""
        ...

    def count_memory_requests(self, uuid: str, was: int, usages: Sequence[MemoryRequest]) -> bool:
        """Add the requests for long-term memory in `usages` to the counters of a row, of which the counter
        `memory_requests` must be `was`.  Returns False, and changes nothing, when `memory_requests` is not `was`.
        """
        ...

    def usage_today(self, *, owner: str, repo: str, instance: str, source: str | None = None) -> tuple[int, float]:
        """The usage of one repository since midnight UTC, for daily limits: (runs, money).

        Runs that started today or wait to start are counted, and the whole cost of every task that worked today, so
        that a limit is reached rather too early than too late.
        """
        ...

    def closed_before(self, before: datetime | str) -> Records:
        """`uuid`, `status` and `completed_at` of the closed rows that ended before the time `before`, the oldest first,
        without rows that an open row continues (`parent_uuid`)."""
        ...

    def host_last_seen(self, host: str) -> str | None:
        """The newest time (ISO 8601) of a change in the rows of which the last holder was on the host with this name;
        None when no row names the host."""
        ...

    def delete(self, uuid: str) -> bool:
        """Remove a closed row; returns False when the row is missing or open, or when an open row continues it
        (`parent_uuid`)."""
        ...

    def close(self) -> None:
        """Close the database of the ledger; a second call does nothing."""
        ...
