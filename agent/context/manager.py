"""TaskContextManager opens, repairs and closes everything that is stored of one task (docs/design/context.md, 4.1).

The manager holds the folder, the row and the stores, and ensures the order of their last writes.  The manager takes no
lock: the worker holds `running/{uuid}/lock` before it creates a manager (`worker/attempt.py`).  The manager decides
nothing about messages, compactions or the queue.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agent import clock
from agent.context import stores
from agent.context.base import Store
from agent.context.compaction_store import CompactionStore
from agent.context.cost_totals import Totals, cost_of
from agent.context.folder import TaskFolder, checked_uuid
from agent.context.mcp import McpStore
from agent.context.messages import MessageStore
from agent.context.outside_effects import ROW, EffectStore
from agent.context.recalled import RecalledStore
from agent.context.requests import RequestStore
from agent.context.summaries import SummaryStore
from agent.context.task_row import TaskRow
from agent.context.tools import ToolStore
from agent.security.redact import masker_of
from agent.store.configured_ledger import LedgerKind
from agent.store.token_ratios import RatioTable
from agent.tokens import LearntRatios
from agent.values import Outcome, Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from agent.config import Settings
    from agent.store.base import Database
    from agent.values import Counter, Json

AnyStore = TypeVar("AnyStore", bound=Store)

LEASE_SECONDS = 180.0

OF_MESSAGES = (SummaryStore, CompactionStore, ToolStore, RequestStore)
"""The stores that `MessageStore` syncs itself, in the necessary order."""

KEPT = (
    *("attempt", "priority", "parent_uuid", "started_by", "comment_cursor", "branch", "url"),
    *("head_commit", "base_commit"),
)
"""Columns of the row that no other file of the folder has; the manager repeats them in `effects.jsonl`."""


class TaskContextManager:
    """The context of the task `uuid`.

    `task_key` is a TaskKey or a mapping (docs/design/context.md, 3.1), `config` Settings or a mapping (9.1 there).
    `attempt` is the number that the ledger gave to the claim; without it the row is inserted, or an open row is taken
    over.  `database` may be an open connection, which the manager does not close.

    `resumed`: the task's folder existed before this opening. `elsewhere`: the part of the row's counters that the files
    of this folder do not have, since counters and limits belong to the task, on any host. `repairs`: sentences about
    the repairs that were made at this opening. `noticed`, if set, is called with a sentence about each later change of
    a file by another program, and about the repair of that file. Raises ContextError for a task that has ended,
    LedgerError for a second open task of the same key, Fenced, and DiskError.
    """

    def __init__(
        self,
        task_key: TaskKey | Mapping[str, Any],
        uuid: str,
        config: Mapping[str, Any] | Settings,
        *,
        user: str | None = None,
        attempt: int | None = None,
        lease_owner: str | None = None,
        counter: Counter | None = None,
        title: str | None = None,
        database: Database | None = None,
    ) -> None:
        from agent.config import settings_of

        settings = settings_of(config)
        self.task_key = TaskKey.from_mapping(task_key)
        self.uuid = checked_uuid(uuid)
        self._provider = provider = settings.provider()
        self._folder = TaskFolder(settings, self.uuid)
        self._owns_database = database is None
        self._remembers = settings.remembers
        self._ended = False
        self._beaten = False
        # The pair that was written into the row last: (requests without an answer in the conversation, estimated
        # tokens).
        self._others = (0, 0)
        self._synced = settings.context_storage.durability != "none"
        self.database: Database = LedgerKind.from_settings(settings).open().db if database is None else database
        try:
            self._row = TaskRow(self.database, self.uuid)
            self._row.open(
                self.task_key,
                provider=provider.name,
                model=provider.model,
                context_length=provider.context_length,
                user=user,
                title=title,
                attempt=attempt,
                lease_owner=lease_owner,
            )
        except BaseException:
            self._folder.forget()
            self._close_database()
            raise
        self.metadata, self.resumed = self._folder.metadata(self.task_key, settings, user=user, title=title)
        gone = self._folder.sweep()
        self.ratios = LearntRatios(RatioTable(self.database))
        folder, durability = self._folder.path, settings.context_storage.durability
        self._redact = masker_of(settings)
        self._stores = {kind: kind(folder, durability=durability, redact=self._redact) for kind in stores.STORES}
        self._tools, self._effects = self.store(ToolStore), self.store(EffectStore)
        self._messages = MessageStore(
            folder,
            settings,
            counter=counter,
            ratios=self.ratios,
            summaries=self.store(SummaryStore),
            compactions=self.store(CompactionStore),
            tools=self._tools,
            requests=self.store(RequestStore),
            others=[one for kind, one in self._stores.items() if kind not in OF_MESSAGES],
        )
        self._inherited = Totals.inherited(folder)
        self.elsewhere = self._not_here()
        self.repairs = [f"{name}: left by a process that died; removed" for name in gone] + self._messages.repairs
        self.noticed: Callable[[str], None] | None = None
        self._messages.noticed = self._notice
        for store in self._stores.values():
            if store.is_used(settings):
                store.file.create()
            self.repairs += store.repairs + store.file.damaged
            store.file.noticed = self._notice
        row = self.row
        self._repeat({name: row.get(name) for name in KEPT})

    def _notice(self, what: str) -> None:
        if self.noticed is not None:
            self.noticed(what)

    # --- properties and stores -------------------------------------------------------------------------------

    @property
    def context_dir(self) -> Path:
        """The folder of the task, which is below completed/ after the task's end."""
        return self._folder.path

    @property
    def attempt(self) -> int:
        """The number of the attempt that this process holds."""
        return self._row.attempt

    @property
    def fence(self) -> str:
        """The random marker that separates data from instructions in the prompts of this task (24 hex digits)."""
        return str(self.metadata["fence"])

    @property
    def row(self) -> Json:
        """The present row of the task in the ledger; {} when it was removed."""
        return self._row.get() or {}

    def store(self, kind: type[AnyStore]) -> AnyStore:
        """The task's store of the class `kind`; raises KeyError for a class that is not in `stores.STORES`."""
        found = self._stores[kind]
        assert isinstance(found, kind), "it is kept by its class"
        return found

    def get_message_store(self) -> MessageStore:
        """The store of messages.jsonl and current.jsonl."""
        return self._messages

    def get_summary_store(self) -> SummaryStore:
        """The store of summaries.jsonl."""
        return self.store(SummaryStore)

    def get_tool_store(self) -> ToolStore:
        """The store of tools.jsonl."""
        return self._tools

    def get_request_store(self) -> RequestStore:
        """The store of requests.jsonl."""
        return self.store(RequestStore)

    def get_recalled_store(self) -> RecalledStore:
        """The store of recalled.jsonl."""
        return self.store(RecalledStore)

    def get_mcp_store(self) -> McpStore:
        """The store of mcp.jsonl."""
        return self.store(McpStore)

    def get_effect_store(self) -> EffectStore:
        """The store of effects.jsonl."""
        return self._effects

    # --- during the run --------------------------------------------------------------------------------------

    def update_status(self, status: str, error_message: str | None = None, error_code: str | None = None) -> None:
        """Set only the status in the row; `complete`, `fail`, `stopped` and `paused` also do the other steps of an end
        or a pause."""
        self._row.status(status, error_message, error_code)

    def update_statistics(
        self, llm_calls: int = 0, tool_calls: int = 0, tokens: int = 0, compressions: int = 0
    ) -> None:
        """Add to the counters of the row (docs/design/context.md, 4.1).

        The next `heartbeat` overwrites the counters of the row with totals.
        """
        self._row.add(llm_calls=llm_calls, tool_calls=tool_calls, tokens=tokens, compressions=compressions)

    def heartbeat(self, lease_seconds: float = LEASE_SECONDS) -> str | None:
        """Write heartbeat, lease and the totals of the counters in one UPDATE; returns what a person requested:
        "pause", "stop" or None.

        Raises Fenced when this process does not hold the row any more: it must stop at once, without another outside
        effect.
        """
        totals = self.totals()
        self._count_others(totals)
        requested = self._row.heartbeat(self._counters(totals), lease_seconds)
        self._beaten = True
        return requested

    def check_held(self, status: Status = Status.RUNNING) -> None:
        """Raise Fenced unless the row has the attempt of this process and the given status, by default running.

        Callers use `check_held` just before each outside effect.
        """
        self._row.check(status)

    def counters(self) -> Json:
        """The values of the row's counters, computed from the stores."""
        return self._counters(self.totals())

    def _counters(self, totals: Totals) -> Json:
        return {
            "last_seq": self._messages.last_seq,
            "llm_call_count": totals.llm_calls,
            "tool_call_count": totals.tool_calls,
            "compression_count": totals.compactions,
            "total_tokens": totals.tokens,
            "prompt_tokens": totals.prompt,
            "completion_tokens": totals.completion,
            "cached_tokens": totals.cached,
            "cost": totals.cost,
        }

    def _count_others(self, totals: Totals) -> None:
        """Write the row's counters that change rarely, if they have changed."""
        others = (totals.llm_calls - totals.turns, totals.estimated)
        if others != self._others:
            self._row.count_others(*others)
            self._others = others

    def totals(self) -> Totals:
        """Requests, tokens and cost of this task so far, on any host, without the cost of a conversation copied from
        another task."""
        return self._totals_here().plus(self.elsewhere)

    def _totals_here(self) -> Totals:
        counted = replace(self._messages.totals(), tool_calls=self._tools.count_tool_calls())
        inherited = self._inherited
        return counted.difference(replace(inherited, cost=cost_of(inherited.usage, self._provider.price)))

    def _not_here(self) -> Totals:
        """By how much the row's totals exceed those of the files in this folder: the share of attempts on other
        hosts."""
        row = self.row

        def count(name: str) -> int:
            return int(row.get(name) or 0)

        llm_calls = count("llm_call_count")
        counted = Totals(
            llm_calls,
            count("prompt_tokens"),
            count("completion_tokens"),
            count("cached_tokens"),
            count("compression_count"),
            count("tool_call_count"),
            float(row.get("cost") or 0.0),
            llm_calls - count("other_call_count"),
            count("estimated_tokens"),
        )
        return counted.exceeding(self._totals_here())

    def column(self, name: str) -> Any:
        """One column of the present row; None when it is NULL, or the row was removed."""
        return self.row.get(name)

    def set_columns(self, **columns: Any) -> None:
        """Set columns of the row (`task_row.SETTABLE`: title, branch, url, outcome, …); None leaves a column unchanged.

        Raises DiskError when a column of KEPT cannot be written to `effects.jsonl`.
        """
        self._row.set(**columns)
        if told := {name: value for name, value in columns.items() if name in KEPT and value is not None}:
            self._repeat({**(self._effects.receipt(ROW) or {}), **told})

    def _repeat(self, columns: Json) -> None:
        """Record the given columns of the task's row in `effects.jsonl`, if they differ from the values recorded in
        that file."""
        said = {name: value for name, value in columns.items() if value is not None}
        if said != self._effects.receipt(ROW):
            self._effects.done(ROW, said)

    def learn_window(self, model: str, tokens: int) -> None:
        """Store the true window of `model`, learnt from an error, for the rest of this task."""
        self._row.set(learnt_window=tokens, learnt_model=model)

    def learnt_window(self, model: str) -> int | None:
        """The window of `model` that a process of this task has learnt from an error; None if none has."""
        row = self.row
        return row.get("learnt_window") if row.get("learnt_model") == model else None

    # --- the end ---------------------------------------------------------------------------------------------

    def complete(self, outcome: Outcome | str | None = None, *, unnotified: bool = False) -> None:
        """End a task that is done: set the status completed and move the folder to completed/.

        `unnotified`: the end could not be reported to people, so the daemon reports it later. The row's title stays
        that of the issue; the title in the outcome is that of the pull request.
        """
        code = (outcome.code or outcome.end.value) if isinstance(outcome, Outcome) else outcome
        self._close(Status.COMPLETED, outcome=code, untold=unnotified)

    def fail(self, error_message: str, code: str = "error", *, unnotified: bool = False) -> None:
        """End a task that failed: set the status failed with the reason, and move the folder to completed/.

        `unnotified`: the end could not be reported to people, so the daemon reports it later.
        """
        self._close(Status.FAILED, error_message=self._redact(error_message), error_code=code, untold=unnotified)

    def stopped(self, message: str = "", code: str | None = None, *, unnotified: bool = False) -> None:
        """End a task that was stopped: set the status stopped and move the folder to completed/.

        `code`: the reason of the stop, if no person requested it.  `unnotified`: the end could not be reported to
        people, so the daemon reports it later.
        """
        self._close(
            Status.STOPPED,
            error_message=self._redact(message) or None,
            error_code=code,
            outcome="stopped",
            untold=unnotified,
        )

    def paused(self, reason: str, message: str = "", *, notify_at: datetime | None = None) -> Status:
        """Pause the task: set the status paused, and the column `outcome` to `reason`; the folder stays in running/.

        With a `message` the row also gets an error, which the next claim removes. If a pause was requested meanwhile,
        `outcome` is `paused` instead of `reason`. If a stop was requested, the row is closed as stopped, and the daemon
        does the other steps of the end. Returns the status of the row.

        `notify_at`: the time when the daemon shows the pause on the issue, unless it was shown before
        (`Ledger.mark_notified`).
        """
        if message:
            self._row.set(error_code=reason, error_message=self._redact(message))
        else:
            self._messages.sync(force=True)
            waits_for = "paused" if self.column("requested") == "pause" else reason
            self._repeat({**(self._effects.receipt(ROW) or {}), "paused": waits_for})
        until = clock.stamp(notify_at) if notify_at is not None else None
        return self._row.pause(reason, self._final_counters(), until, unremembered=self._remembers)

    def close(self) -> None:
        """Close file descriptors and the database connection without ending the task. A second call of `close` does
        nothing."""
        self._close_files()
        self._close_database()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close(self, status: Status, *, untold: bool = False, **columns: Any) -> None:
        """Sync the last line and `end.json`, then commit the row, then move the folder and sync its two parent folders.

        A crash between the commit and the move leaves a closed row with its folder in running/; the daemon moves the
        folder later. Only the first call that ends the task has an effect.
        """
        if not self._ended:
            self._messages.sync(force=True, view=True)
            self._folder.record_end(status.value, sync=self._synced, **columns)
            counters = self._final_counters()
            self._row.close(status, counters, untold=untold, unremembered=self._remembers, **columns)
            self._ended = True
        self._close_files()
        self._folder.sweep()
        self._folder.close()
        for store in self._stores.values():
            store.move_to(self._folder.path)
        self._messages.move_to(self._folder.path)
        self._close_database()

    def _final_counters(self) -> Json:
        """The final values of the counters, from the stores; if there was no heartbeat, never less than the increments
        that `update_statistics` wrote."""
        totals = self.totals()
        self._count_others(totals)
        counters = self._counters(totals)
        if self._beaten:
            return counters
        row = self.row
        return {name: max(value, row.get(name) or 0) for name, value in counters.items()}

    def _close_files(self) -> None:
        self._messages.close()
        for store in self._stores.values():
            store.close()

    def _close_database(self) -> None:
        if self._owns_database:
            self.database.close()
