"""Implements the contract of a ledger (`base.py`) with the named queries of `store/sql/ledger.sql`.

A row is claimed with one UPDATE statement that contains the condition for the claim. `row_changes.py` makes the other
changes of a row's status, except those that the running task makes through its own stores (`store/sql/tasks.sql`).
`sqlite.py`, `postgresql.py` or a plug-in opens the ledger.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from agent import clock
from agent.errors import ClaimLost, Fenced, LedgerError, UsageError
from agent.observe.error_tolerant_loop import ItemLoop
from agent.taskqueue import row_holder, transitions
from agent.taskqueue.base import FREE, Claim, Row
from agent.taskqueue.row_changes import RowChanges, is_changed_by, row_of, seen_parameters, storable_column
from agent.taskqueue.startable import limit_or_all
from agent.values import CLOSED_STATUSES, Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.store.base import Database
    from agent.taskqueue.base import AtOnce, MemoryRequest, Notices, PullState, Records, Rows, Uuids
    from agent.taskqueue.transitions import Request

AHEAD, SOON, LONGEST_TELLING = 300.0, 60.0, 7200.0
"""For `repair_future_times`, in seconds: AHEAD is how far in the future the last change and the `not_before` of a
queued row must both be to count as an error of a clock; SOON is the delay after which such a row becomes due;
LONGEST_TELLING is the longest delay that a notification of people, or a memory extraction, can have."""
SLACK = 50
"""Without limits `at_once`, `reserve` considers only the first rows of each pair (person, repository): as many as it
may return, and SLACK more, since other hosts may reserve rows of the pair at the same time."""
POISON = 3
"""After this number of deaths of a task's process without progress, one after the other, the task becomes `failed`, or
is queued once more only to publish its work."""

WAITING = (Status.QUEUED, Status.PAUSED)
_PREFIX = re.compile(r"[0-9a-f-]{1,36}")


class Ledger:
    """The ledger in one database, which implements `base.BaseLedger`.

    `place` names a host and its base_dir (`row_holder.place`). If a holder has the same `place` as this Ledger,
    `requeue_dead` asks its function `is_alive` whether the holder is alive; for other holders the lease decides. The
    default of `place` is this host with the folder of the SQLite file, which is the base_dir.
    """

    is_local = False

    def __init__(self, db: Database, *, place: str | None = None) -> None:
        self.db = db
        self._items = ItemLoop.logging("rows")
        self._dead = ItemLoop.logging("requeue_dead")
        self.changes = RowChanges(db)
        path = getattr(db, "path", None)
        self.place = place or (row_holder.place(path.parent) if path is not None else None)

    # --- adding and reading rows -------------------------------------------------------------------------------

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
        name = str(uuid4()) if uuid is None else _canonical(uuid)
        put = self.db.run(
            "ledger_put",
            uuid=name,
            **TaskKey.from_mapping(key).to_dict(),
            now=clock.stamp(),
            user=user,
            title=storable_column(title),
            priority=priority,
            not_before=_time(not_before),
            parent_uuid=parent_uuid,
            provider=provider,
            model=model,
            started_by=started_by,
        )
        if put:
            return name
        if uuid is not None and (there := self.get(name)) is not None and there.key != TaskKey.from_mapping(key):
            raise LedgerError(f"the uuid {name} belongs to another task, {there.key}; use a new one")
        return None

    def restore(self, record: Mapping[str, Any]) -> bool:
        texts = {name: storable_column(record[name]) for name in ("title", "error_message") if name in record}
        return bool(self.db.run("ledger_restore", **{**record, **texts}))

    def offer(self, uuid: str) -> bool:
        return bool(self.db.run("ledger_offer", uuid=uuid))

    def withdraw(self, uuid: str) -> bool:
        return bool(self.db.run("ledger_withdraw", uuid=uuid))

    def now(self) -> datetime:
        return self.db.now()

    def notices(self) -> Notices | None:
        listen = getattr(self.db, "notices", None)
        return listen() if listen is not None else None

    @property
    def has_notices(self) -> bool:
        return hasattr(self.db, "notices")

    def get(self, uuid: str) -> Row | None:
        return row_of(self.db, uuid)

    def resolve(self, prefix: str) -> str:
        text = prefix.strip().lower()
        found = self.db.run("ledger_prefix", prefix=text) if _PREFIX.fullmatch(text) else []
        uuids = [record["uuid"] for record in found]
        if text in uuids:
            return text
        if not uuids:
            raise UsageError(f"no task has a uuid that begins with {prefix!r}; `tasks` lists them")
        if len(uuids) > 1:
            raise UsageError(f"several tasks begin with {prefix!r}: {', '.join(uuids)}; write more of it")
        return str(uuids[0])

    def running_here(self) -> Rows:
        if self.is_local:  # whatever host name a row has, only this host can use the ledger
            return self.list(Status.RUNNING)
        return self._rows(self.db.run("ledger_running_here", hostname=row_holder.hostname()))

    def paused_for(self, outcome: str) -> Rows:
        return self._rows(self.db.run("ledger_paused_for", outcome=outcome))

    def list(self, status: Status | str | None = None, limit: int | None = None) -> Rows:
        most = limit_or_all(limit)
        if status is None:
            return self._rows(self.db.run("ledger_list", limit=most))
        return self._rows(self.db.run("ledger_list_status", status=str(status_of(status)), limit=most))

    def _rows(self, found: Records) -> Rows:
        """Make rows from database records; an unreadable record is left out and logged once."""
        rows = []
        for record in found:
            with self._items.handling(str(record.get("uuid"))):
                rows.append(Row.from_record(record))
        self._items.finish()
        return rows

    def latest(self, key: TaskKey) -> Row | None:
        found = self.db.run("ledger_latest", **key.to_dict())
        return Row.from_record(found[0]) if found else None

    def due(self, limit: int, now: datetime | None = None, *, outcome: str | None = None) -> Uuids:
        found = self.db.run("ledger_due", now=self._stamp(now), limit=limit_or_all(limit), outcome=outcome)
        return [row["uuid"] for row in found]

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
        now = self.db.now()
        many = {"of_repository": at_once.repository, "of_person": at_once.person, "of_server": at_once.server}
        params = {
            "owner": owner,
            "now": clock.stamp(now),
            "until": _stamp_after(now, seconds),
            "server": server,
            "without": " ".join(without),
            "outcome": outcome,
            "limited": "yes" if at_once else None,
            **{name: limit_or_all(number) for name, number in many.items()},
        }
        if not at_once:
            found = self.db.run("ledger_take", limit=limit_or_all(limit), depth=limit_or_all(limit) + SLACK, **params)
            return [row["uuid"] for row in sorted(found, key=_by_age)]
        taken: Uuids = []
        # rows are reserved one after the other, and by one host at a time, since a reserved row counts for the limits
        # `at_once` of the rows after it
        with self.db.transaction():
            while len(taken) < limit and (found := self.db.run("ledger_take", limit=1, depth=1, **params)):
                taken.append(found[0]["uuid"])
        return taken

    def release_reservation(self, uuid: str, owner: str) -> bool:
        return bool(self.db.run("ledger_give_up", uuid=uuid, owner=owner))

    def release_reservations(self, owner: str) -> Uuids:
        found = self.db.run("ledger_give_up_all", place=f"{row_holder.place_of(owner)}:")
        return [row["uuid"] for row in found]

    def publish(self, limit: int, again_after: float | None = None) -> Rows:
        now = self.db.now()
        before = "" if again_after is None else _stamp_after(now, -again_after)
        found = self.db.run("ledger_publish", now=clock.stamp(now), before=before, limit=limit_or_all(limit))
        rows = self._rows(found)
        return sorted(rows, key=lambda row: (-row.priority, row.created_at, row.uuid))

    # --- the holder --------------------------------------------------------------------------------------------

    def claim(self, uuid: str, owner: str, lease_seconds: float) -> Claim:
        now = self.db.now()
        found = self.db.run(
            "ledger_claim",
            uuid=uuid,
            owner=owner,
            now=clock.stamp(now),
            lease_until=_stamp_after(now, lease_seconds),
            process_id=os.getpid(),
            hostname=row_holder.hostname(),
        )
        if not found:
            raise ClaimLost(self._why_lost(uuid))
        row = Row.from_record(found[0])
        return Claim(row.uuid, row.attempt, row.key, row.user, row.parent_uuid, row.title)

    def heartbeat(self, uuid: str, attempt: int, lease_seconds: float) -> str | None:
        now = self.db.now()
        lease_until = _stamp_after(now, lease_seconds)
        found = self.db.run("ledger_beat", uuid=uuid, attempt=attempt, now=clock.stamp(now), lease_until=lease_until)
        if not found:
            raise self._fenced(uuid, attempt)
        requested: str | None = found[0]["requested"]
        return requested

    def requested(self, uuid: str) -> str | None:
        found = self.db.run("ledger_requested", uuid=uuid)
        requested: str | None = found[0]["requested"] if found else None
        return requested

    def release(self, uuid: str, attempt: int, not_before: datetime | str | None = None) -> Status:
        result: list[Status] = []

        def back(row: Row) -> bool:
            self._hold(row, attempt)
            result[:] = [_status_after_release(row)]
            return self.changes.release_row(row, result[0], not_before=_time(not_before), deaths=row.deaths)

        self.changes.change_row(uuid, back)
        return result[0]

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
        to = status_of(status)
        if to not in CLOSED_STATUSES:
            raise LedgerError(f"task {uuid}: {to} ends nothing; allowed are {', '.join(CLOSED_STATUSES)}")

        def close(row: Row) -> bool:
            if row.attempt != attempt:
                raise self._fenced(uuid, attempt)
            return self.changes.close_row(row, to, outcome=outcome, error_message=error_message, error_code=error_code)

        self.changes.change_row(uuid, close)

    # --- the dead ----------------------------------------------------------------------------------------------

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
        moment = self._stamp(now)
        requeued = []
        for row in self.list(Status.RUNNING) if everywhere else self._perhaps_dead(moment):
            with self._dead.handling(row.uuid):
                by_lock = (everywhere and row.lease_owner is not None) or self._is_here(row)
                if is_alive(row) if by_lock else row.lease_until is None or row.lease_until >= moment:
                    continue
                calls = tool_calls(row) if by_lock else row.tool_call_count
                to = self._bury(row, calls, publish, blamed=blamed(row))
                if to is Status.QUEUED:
                    requeued.append(row.uuid)
                elif to is not None and on_settled is not None:
                    on_settled(self.get(row.uuid) or row)
        self._dead.finish()
        return requeued

    def _perhaps_dead(self, moment: str) -> Rows:
        """The rows of which the holder may be dead: running rows of this host, and those of other hosts with an expired
        lease (in a local ledger all running rows); other rows need not be read."""
        if self.is_local:
            return self.list(Status.RUNNING)
        return self._rows(self.db.run("ledger_perhaps_dead", hostname=row_holder.hostname(), now=moment))

    def repair_future_times(self) -> Uuids:
        now = self.db.now()
        ahead = self.db.run("ledger_ahead", later=_stamp_after(now, AHEAD), tell=_stamp_after(now, LONGEST_TELLING))
        soon = _stamp_after(now, SOON)
        for row in ahead:
            self.db.run(
                "ledger_soon",
                uuid=row["uuid"],
                now=clock.stamp(now),
                soon=soon,
                tell=_stamp_after(now, LONGEST_TELLING),
            )
        return [row["uuid"] for row in ahead]

    def is_mine(self, row: Row, owner: str) -> bool:
        return row.lease_owner is not None and row_holder.place_of(row.lease_owner) == row_holder.place_of(owner)

    def counts(self) -> dict[Status, int]:
        found = {record["status"]: int(record["count"]) for record in self.db.run("ledger_counts")}
        return {status: found.get(status.value, 0) for status in Status}

    def count_groups(self) -> Records:
        return self.db.run("ledger_groups")

    def _is_here(self, row: Row) -> bool:
        """Whether the holder of a row is on this host with this base_dir, so that this process can read its locks and
        files."""
        return row.lease_owner is not None and row_holder.place_of(row.lease_owner) == self.place

    def _bury(
        self, known: Row, tool_calls: int, publish: Callable[[Row, str, str], bool], *, blamed: bool
    ) -> Status | None:
        """Put back the row of a dead holder; returns its new status, None when another process changed the row first,
        or when the holder is alive after all."""
        progress = known.llm_call_count + max(known.tool_call_count, tool_calls) > known.progress_at_claim
        deaths = 0 if progress else known.deaths + blamed
        with self.db.transaction():
            row = self.get(known.uuid)  # a stop or pause may have been requested since `known` was read
            if row is None or (row.lease_until, seen_parameters(row)) != (known.lease_until, seen_parameters(known)):
                return None
            self.db.run("ledger_catch_up", tool_calls=tool_calls, **seen_parameters(row))
            to = _status_after_release(row)
            if to is not Status.QUEUED or not blamed or deaths < POISON:
                return to if self.changes.release_row(row, to, not_before=row.not_before, deaths=deaths) else None
            message = (
                f"the task's process died {deaths} times in a row before it got anywhere (out of memory, killed?); "
                f"see worker.log in its folder and the system's log, then ask for it again"
            )
            if publish(row, "poison", message):
                return to if self.changes.release_row(row, to, not_before=None, deaths=deaths) else None
            failed = self.changes.close_row(
                row, Status.FAILED, deaths=deaths, error_message=message, error_code="poison"
            )
            return Status.FAILED if failed else None

    # --- people ------------------------------------------------------------------------------------------------

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
        if word not in transitions.REQUESTS:
            raise UsageError(f"{word!r} cannot be asked of a task; allowed are {', '.join(transitions.REQUESTS)}")
        result: list[Status] = []
        has_effect = True

        def ask(row: Row) -> bool:
            if comment is not None and comment in row.handled_comments:
                result[:] = [row.status]
                return True
            if not obey(row):
                return False
            if has_effect and who != row.requested_by:
                self.db.run("ledger_requested_by", uuid=uuid, who=who)
            if comment is not None:
                self.changes.remember_comment(row, comment)
                if result[0] in WAITING:  # a command in a comment is answered even if the status stays
                    self.changes.make_notification_due(row)
            return True

        def obey(row: Row) -> bool:
            nonlocal has_effect
            has_effect = True
            if row.status in CLOSED_STATUSES:
                raise UsageError(f"task {uuid} is {row.status} already and cannot be {transitions.DONE[word]}")
            if waiting is not None and (row.status, row.outcome) != (Status.PAUSED, waiting):
                has_effect = False
                result[:] = [row.status]
                return True
            to, requested = transitions.apply_request(word, row.status, row.requested)
            result[:] = [to]
            if to is row.status:
                has_effect = is_changed_by(row, word, requested)
                return self.changes.stay(row, word, requested)
            if to is Status.QUEUED:
                return self.changes.queue(
                    row, not_before=None, requested=None, deaths=0
                ) and self.changes.make_notification_due(row)
            return (
                self.changes.pause(row)
                if to is Status.PAUSED
                else self.changes.close_row(row, to, outcome="stopped", error_message=why)
            )

        self.changes.change_row(uuid, ask)
        return result[0]

    def rows_to_watch(self, source: str, instance: str, since: datetime) -> Rows:
        found = self.db.run("ledger_watched", source=source, instance=instance, since=clock.stamp(since))
        return self._rows(found)

    def move_instance(self, source: str, old: str, new: str) -> Uuids:
        found = self.db.run("ledger_follow", source=source, old=old, new=new)
        return [record["uuid"] for record in found]

    def open_instances(self) -> dict[tuple[str, str], int]:
        return open_instances(self.db)

    def mark_answered(self, uuid: str, comment: str) -> None:
        def remember(row: Row) -> bool:
            return comment in row.handled_comments or self.changes.remember_comment(row, comment)

        self.changes.change_row(uuid, remember)

    def due_notifications(self, limit: int | None = None) -> Rows:
        found = self.db.run("ledger_untold", now=clock.stamp(), limit=limit_or_all(limit))
        return self._rows(found)

    def notify_again(self, uuid: str) -> bool:
        return bool(self.db.run("ledger_tell_again", uuid=uuid, now=clock.stamp()))

    def begin_notification(self, uuid: str, until: datetime | str) -> bool:
        return bool(self.db.run("ledger_telling", uuid=uuid, now=clock.stamp(), later=_time(until)))

    def mark_notified(self, uuid: str, until: datetime | str) -> bool:
        return bool(self.db.run("ledger_told", uuid=uuid, until=_time(until)))

    # --- long-term memory --------------------------------------------------------------------------------------

    def remember_ends(self) -> None:
        self.changes.remembers = True

    def due_extractions(self, limit: int | None = None, *, host: str | None = None) -> Rows:
        found = self.db.run("ledger_unremembered", now=clock.stamp(), hostname=host, limit=limit_or_all(limit))
        return self._rows(found)

    def begin_extraction(self, uuid: str, until: datetime | str) -> bool:
        return bool(self.db.run("ledger_remembering", uuid=uuid, now=clock.stamp(), later=_time(until)))

    def delay_extraction(self, uuid: str, until: datetime | str, later: datetime | str) -> bool:
        return bool(self.db.run("ledger_remember_later", uuid=uuid, until=_time(until), later=_time(later)))

    def mark_extracted(self, uuid: str, until: datetime | str) -> bool:
        return bool(self.db.run("ledger_remembered", uuid=uuid, until=_time(until)))

    def extract_again(self, uuid: str) -> bool:
        return bool(self.db.run("ledger_remember_again", uuid=uuid, now=clock.stamp()))

    def note_pull(self, uuid: str, state: PullState) -> bool:
        return bool(self.db.run("ledger_pull_seen", uuid=uuid, state=state, now=clock.stamp()))

    def count_memory_requests(self, uuid: str, was: int, usages: Sequence[MemoryRequest]) -> bool:
        used = [one.usage for one in usages]
        return bool(
            self.db.run(
                "ledger_count_memory",
                uuid=uuid,
                was=was,
                requests=len(usages),
                tokens=sum(one.prompt + one.completion for one in used),
                prompt=sum(one.prompt for one in used),
                completion=sum(one.completion for one in used),
                cached=sum(one.cached for one in used),
                estimated=sum(one.estimated for one in usages),
                cost=sum(one.cost for one in usages),
            )
        )

    # --- sums --------------------------------------------------------------------------------------------------

    def usage_today(self, *, owner: str, repo: str, instance: str, source: str | None = None) -> tuple[int, float]:
        day = clock.stamp(self.db.now().replace(hour=0, minute=0, second=0, microsecond=0))
        (sums,) = self.db.run("ledger_today", day=day, owner=owner, repo=repo, instance=instance, source=source)
        return int(sums["runs"]), float(sums["cost"])

    def closed_before(self, before: datetime | str) -> Records:
        return self.db.run("task_closed_before", before=_time(before))

    def host_last_seen(self, host: str) -> str | None:
        (found,) = self.db.run("ledger_heard_of", hostname=host)
        at: str | None = found["at"]
        return at

    def delete(self, uuid: str) -> bool:
        return bool(self.db.run("task_delete", uuid=uuid))

    def _stamp(self, now: datetime | None) -> str:
        """`now` as text; if it is None, the time of the database, which is the same for all hosts that share it."""
        return clock.stamp(self.db.now() if now is None else now)

    def close(self) -> None:
        """Close the database of the ledger."""
        close = getattr(self.db, "close", None)
        if close is not None:
            close()

    # --- refusals ------------------------------------------------------------------------------------------------

    def _hold(self, row: Row, attempt: int) -> None:
        if row.status is not Status.RUNNING or row.attempt != attempt:
            raise self._fenced(row.uuid, attempt)

    def _fenced(self, uuid: str, attempt: int) -> Fenced:
        row = self.get(uuid)
        state = "has no row" if row is None else f"is {row.status} in attempt {row.attempt}"
        return Fenced(f"task {uuid} {state}; attempt {attempt} does not hold it any more")

    def _why_lost(self, uuid: str) -> str:
        row = self.get(uuid)
        if row is None:
            return f"there is no task {uuid}"
        if row.status is Status.QUEUED:
            return f"task {uuid} was not free to claim; it is queued, not before {row.not_before}"
        return f"task {uuid} is {row.status}, held by {row.lease_owner or 'nobody'} in attempt {row.attempt}"


def _status_after_release(row: Row) -> Status:
    """The new status of a running row when its holder puts it back or dies, unless too many holders of it died.

    If the end of the task is decided, a request does not change that end, since people may already have been notified
    of it.
    """
    return Status.QUEUED if row.is_decided else transitions.status_after_release(row.requested)


def _by_age(record: Mapping[str, Any]) -> tuple[int, str, str]:
    return -record["priority"], record["created_at"], record["uuid"]


def _canonical(uuid: str) -> str:
    """The uuid in canonical form, in which it is also the name of the task's folder."""
    try:
        return str(UUID(uuid))
    except ValueError:
        raise UsageError(f"{uuid!r} is not a uuid; it looks like 550e8400-e29b-41d4-a716-446655440000") from None


def status_of(status: Status | str) -> Status:
    """The member of Status with the value `status`; raises UsageError for an unknown one."""
    try:
        return Status(status)
    except ValueError:
        raise UsageError(f"{str(status)!r} is not a status; allowed are {', '.join(Status)}") from None


def _time(moment: datetime | str | None) -> str | None:
    if moment is None:
        return None
    return clock.stamp(clock.parse(moment) if isinstance(moment, str) else moment)


def _stamp_after(now: datetime, seconds: float) -> str:
    return clock.stamp(now + timedelta(seconds=seconds))


def open_instances(database: Database) -> dict[tuple[str, str], int]:
    """(source, instance) of a forge → number of its open tasks."""
    found = database.run("ledger_open_instances")
    return {(str(one["task_source"]), str(one["instance"])): int(one["count"]) for one in found}
