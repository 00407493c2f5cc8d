"""TaskRow: a task's row in tasks.db, for the process of the task (docs/design/context.md, 2.2 and 4.1).

Every write contains the attempt that this process holds. If the row has another attempt, is missing, or (for most
writes) is not running, the write changes nothing and raises Fenced: the task does not belong to this process any more,
and this process must stop. `taskqueue` has the claim of a row, the leases of other processes, and the queue.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.errors import ContextError, Fenced, LedgerError
from agent.security.terminal import strip_terminal_controls
from agent.store.storable_text import replace_surrogates
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from agent.store.base import Database
    from agent.values import Json, TaskKey

SETTABLE = (
    "title",
    "branch",
    "url",
    "outcome",
    "parent_uuid",
    "error_code",
    "error_message",
    "comment_cursor",
    "priority",
    "model",
    "context_length",
    "learnt_window",
    "learnt_model",
    "head_commit",
    "base_commit",
)


FOR_PEOPLE = frozenset({"title", "outcome", "error_message"})
"""Columns of the row that have texts of issues, models and hosts."""


class TaskRow:
    """One row of tasks.db.  `attempt` is the attempt that this process holds, 0 before `open`."""

    def __init__(self, database: Database, uuid: str) -> None:
        self.database = database
        self.uuid = uuid
        self.attempt = 0

    def open(
        self,
        key: TaskKey,
        *,
        provider: str,
        model: str,
        context_length: int,
        user: str | None,
        title: str | None,
        attempt: int | None,
        lease_owner: str | None,
    ) -> None:
        """Make this process the holder of the row.

        With `attempt`, the row was claimed through the ledger and must have that attempt.  Without `attempt`, a missing
        row is inserted with status running (docs/design/context.md, 4.1), and an open one is taken over with the next
        attempt. Raises Fenced, ContextError for a task that has ended, or LedgerError when another open task has the
        same key.
        """
        fields = {
            "now": clock.stamp(),
            "process_id": os.getpid(),
            "hostname": os.uname().nodename,
            "llm_provider": provider,
            "model": model,
            "context_length": context_length,
            "user": column_value(user),
            "title": printable(title),
        }
        if attempt is None:
            rows = self._run("task_register", **key.to_dict(), **fields, lease_owner=lease_owner, lease_until=None)
            if rows:
                self.attempt = int(rows[0]["attempt"])
                return
            attempt = self._claim_row(key, lease_owner)
        self.attempt = attempt
        self._write_if_held("task_started", **fields)

    def _claim_row(self, key: TaskKey, lease_owner: str | None) -> int:
        rows = self._run("task_take", lease_owner=lease_owner, lease_until=None)
        if rows:
            return int(rows[0]["attempt"])
        found = self.get()
        if found is not None:
            raise ContextError(
                f"task {self.uuid} is {found['status']}; a task that has ended is not worked on again, "
                f"start a new one with a new uuid"
            )
        other = self.database.run("task_open_of_key", **key.to_dict())
        named = f"{other[0]['uuid']} ({other[0]['status']})" if other else "another row"
        raise LedgerError(
            f"task {key} is open already as {named}; wait for its end, or stop it, before starting another"
        )

    def get(self) -> Json | None:
        """The whole row of the task, None when the ledger has none."""
        rows = self._run("task_get")
        return rows[0] if rows else None

    def heartbeat(self, counters: Json, lease_seconds: float) -> str | None:
        """Update heartbeat, lease and absolute counters in one UPDATE; returns the column `requested`, None if it is
        empty."""
        now = self.database.now()  # leases are compared with the clock of the database
        until = clock.stamp(now + timedelta(seconds=lease_seconds))
        row = self._write_if_held("task_beat", now=clock.stamp(now), lease_until=until, **counters)
        requested = row["requested"]
        return str(requested) if requested else None

    def check(self, status: Status = Status.RUNNING) -> None:
        """Raise Fenced unless the row has this status in the attempt that this process holds. `check` only reads the
        row."""
        found = self.get()
        if found is None or (found["status"], found["attempt"]) != (status, self.attempt):
            raise self._fenced(found)

    def status(self, status: str, error_message: str | None, error_code: str | None) -> None:
        """Set the status and the error of the row; a status that ends the task also sets `completed_at`."""
        known = Status(status)
        completed = clock.stamp() if known in CLOSED_STATUSES else None
        self._write_if_held(
            "task_status",
            status=known.value,
            error_message=printable(error_message),
            error_code=error_code,
            completed_at=completed,
        )

    def add(self, *, llm_calls: int, tool_calls: int, tokens: int, compressions: int) -> None:
        """Add to the counters of the row (docs/design/context.md, 4.1)."""
        self._write_if_held(
            "task_add_statistics", llm_calls=llm_calls, tool_calls=tool_calls, tokens=tokens, compressions=compressions
        )

    def count_others(self, other_call_count: int, estimated_tokens: int) -> None:
        """Set the counts of requests that gave no answer of the conversation, and of tokens that no server reported."""
        self._write_if_held("task_requests", other_call_count=other_call_count, estimated_tokens=estimated_tokens)

    def set(self, **columns: Any) -> None:
        """Set columns of SETTABLE; None leaves a column unchanged. Raises ValueError for a column that is not in
        SETTABLE."""
        unknown = sorted(set(columns) - set(SETTABLE))
        if unknown:
            raise ValueError(f"column {', '.join(unknown)} cannot be set here; allowed are {', '.join(SETTABLE)}")
        values = {name: column_value(columns.get(name)) for name in SETTABLE}
        self._write_if_held(
            "task_set", **values | {name: printable(values[name]) for name in SETTABLE if name in FOR_PEOPLE}
        )

    def close(
        self,
        status: Status,
        counters: Json,
        *,
        error_message: str | None = None,
        error_code: str | None = None,
        outcome: str | None = None,
        title: str | None = None,
        untold: bool = False,
        unremembered: bool = False,
    ) -> None:
        """End the task: set status, time and counters, and release the lease.

        `untold`: the end was not shown to people, so the daemon shows it later. `unremembered`: long-term memories are
        to be extracted from the task.
        """
        now = clock.stamp()
        self._write_if_held(
            "task_close",
            status=status.value,
            now=now,
            tell_at=now if untold else None,
            remember_at=now if unremembered else None,
            error_message=printable(error_message),
            error_code=error_code,
            outcome=printable(outcome),
            title=printable(title),
            **counters,
        )

    def pause(self, reason: str, counters: Json, notify_at: str | None = None, *, unremembered: bool = False) -> Status:
        """Pause the task in the row and release the lease. Returns PAUSED, or STOPPED if a stop was requested in the
        meantime; `unremembered` has the same meaning as for `close`, and counts only for STOPPED."""
        now = clock.stamp()
        told = {"now": now, "tell_at": notify_at, "remember_at": now if unremembered else None}
        return Status(self._write_if_held("task_pause", reason=printable(reason), **told, **counters)["status"])

    def _run(self, query: str, **params: Any) -> list[Json]:
        return self.database.run(query, uuid=self.uuid, **params)

    def _write_if_held(self, query: str, **params: Any) -> Json:
        """Execute a write to the row that takes effect only while the row has this process's attempt; returns the
        row."""
        rows = self._run(query, attempt=self.attempt, **params)
        if rows:
            return rows[0]
        raise self._fenced(self.get())

    def _fenced(self, found: Json | None) -> Fenced:
        if found is None:
            return Fenced(f"task {self.uuid} has no row in {self.database.where} any more; stop working on it")
        return Fenced(
            f"task {self.uuid} is {found['status']}, attempt {found['attempt']}; this process holds attempt "
            f"{self.attempt} and must stop working on it"
        )


def printable(text: str | None) -> str | None:
    """A text from outside (or None) for a column that people read with sqlite3, without control characters."""
    return None if text is None else strip_terminal_controls(replace_surrogates(text))


def column_value(value: Any) -> Any:
    """`value` in a form that a column can store: text without characters that a database refuses."""
    return replace_surrogates(value) if isinstance(value, str) else value
