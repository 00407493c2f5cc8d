"""TaskContextManager: everything that is kept of one task, opened, repaired, closed (seed 002, 4.1).

Holds the folder, the row and the stores together and keeps the order of their last writes.  It takes no lock: who
works on the task holds `running/{uuid}/lock` before he builds one (`run/worker.py`).  It decides nothing about
messages, compactions or the queue.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from agent import clock
from agent.context.compactions import CompactionStore
from agent.context.effects import EffectStore
from agent.context.folder import TaskFolder, checked_uuid
from agent.context.messages import MessageStore
from agent.context.requests import RequestStore
from agent.context.row import TaskRow
from agent.context.summaries import SummaryStore
from agent.context.tools import ToolStore
from agent.context.totals import Totals, cost_of
from agent.security.redact import Redactor
from agent.store.db import open_tasks
from agent.store.ratios import RatioTable
from agent.tokens import LearntRatios
from agent.values import Outcome, Status, TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from agent.config import Settings
    from agent.store.base import Database
    from agent.store.jsonl import JsonlFile
    from agent.values import Counter, Json

LEASE_SECONDS = 180.0


class TaskContextManager:
    """The context of the task `uuid`.

    `task_key` is the seed's mapping or a TaskKey, `config` the seeds' mapping or Settings.  `attempt` is the claim
    that the ledger gave; without it the row is inserted, or an open one taken over.  `database` may be a connection
    that is open already; it is not closed here then.

    `resumed` tells whether the folder was there before.  `elsewhere` is what the row counts and the files here do not:
    counters and limits are the task's, whichever host works on it.  `repairs` lists, as sentences, what the opening
    mended; `noticed`, when set, is told what another program did to a file since, and how that was mended.
    Errors: ContextError for a task that has ended, LedgerError for a second open task of the key, Fenced, DiskError.
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
        self.task_key = TaskKey.of(task_key)
        self.uuid = checked_uuid(uuid)
        self._provider = provider = settings.provider()
        self._folder = TaskFolder(settings, self.uuid)
        self._owns_database = database is None
        self._ended = False
        self._beaten = False
        self._others = (0, 0)  # as the row has them
        self._synced = settings.context_storage.durability != "none"
        self.database = open_tasks(settings.base_dir, settings.taskqueue.ledger) if database is None else database
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
        self._redact = Redactor(settings.secrets())
        self._tools = ToolStore(folder, durability=durability, redact=self._redact)
        self._effects = EffectStore(folder)
        self._messages = MessageStore(
            folder,
            settings,
            counter=counter,
            ratios=self.ratios,
            summaries=SummaryStore(folder, durability=durability),
            compactions=CompactionStore(folder, durability=durability),
            tools=self._tools,
            requests=RequestStore(folder, durability=durability, redact=self._redact),
        )
        self._inherited = Totals.inherited(folder)
        self.elsewhere = self._not_here()
        self.repairs = [f"{name}: left by a process that died; removed" for name in gone] + self._messages.repairs
        self.noticed: Callable[[str], None] | None = None
        self._messages.noticed = self._notice
        for file in self._files:
            file.make()
            self.repairs += file.damaged
            file.noticed = self._notice

    @property
    def _files(self) -> tuple[JsonlFile, ...]:
        """The files of facts beside messages.jsonl."""
        summaries, compactions = self._messages.summaries, self._messages.compactions
        return self._tools.file, self._effects.file, summaries.file, compactions.file

    def _notice(self, what: str) -> None:
        if self.noticed is not None:
            self.noticed(what)

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def context_dir(self) -> Path:
        """The folder; below completed/ after the end."""
        return self._folder.path

    @property
    def attempt(self) -> int:
        """The claim that this process holds."""
        return self._row.attempt

    @property
    def fence(self) -> str:
        """The random marker by which the prompts of this task tell data from words (24 hex digits)."""
        return str(self.metadata["fence"])

    @property
    def row(self) -> Json:
        """The row as it is now; {} when it was removed."""
        return self._row.get() or {}

    def get_message_store(self) -> MessageStore:
        """messages.jsonl and current.jsonl."""
        return self._messages

    def get_summary_store(self) -> SummaryStore:
        """summaries.jsonl."""
        return self._messages.summaries

    def get_tool_store(self) -> ToolStore:
        """tools.jsonl."""
        return self._tools

    def get_request_store(self) -> RequestStore:
        """requests.jsonl."""
        return self._messages.requests

    def get_effect_store(self) -> EffectStore:
        """effects.jsonl."""
        return self._effects

    # --- while it runs ---------------------------------------------------------------------------------------

    def update_status(self, status: str, error_message: str | None = None, error_code: str | None = None) -> None:
        """Set the status in the row, and nothing else; `complete`, `fail`, `stopped` and `paused` do the rest too."""
        self._row.status(status, error_message, error_code)

    def update_statistics(
        self, llm_calls: int = 0, tool_calls: int = 0, tokens: int = 0, compressions: int = 0
    ) -> None:
        """Add to the row's counters (the seed's way).  `beat` writes absolute ones over them."""
        self._row.add(llm_calls=llm_calls, tool_calls=tool_calls, tokens=tokens, compressions=compressions)

    def beat(self, lease_seconds: float = LEASE_SECONDS) -> str | None:
        """Heartbeat, lease and absolute counters in one UPDATE; returns what was requested: "pause", "stop" or None.

        Fenced when the attempt is not ours any more: stop at once, without another outside effect.
        """
        totals = self.totals()
        self._count_others(totals)
        requested = self._row.beat(self._counters(totals), lease_seconds)
        self._beaten = True
        return requested

    def check_held(self) -> None:
        """Fenced unless the row runs in the attempt of this process.  For the moment before an outside effect."""
        self._row.check()

    def counters(self) -> Json:
        """The row's counters as the stores have them."""
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
        """Write what beside the counters changes rarely, if it has."""
        others = (totals.llm_calls - totals.turns, totals.estimated)
        if others != self._others:
            self._row.count_others(*others)
            self._others = others

    def totals(self) -> Totals:
        """Requests, tokens and cost of this task so far, on any host; not what a copied beginning had cost another."""
        return self._totals_here().plus(self.elsewhere)

    def _totals_here(self) -> Totals:
        counted = replace(self._messages.totals(), tool_calls=self._tools.count_tool_calls())
        inherited = self._inherited
        return counted.without(replace(inherited, cost=cost_of(inherited.usage, self._provider.price)))

    def _not_here(self) -> Totals:
        """What the row has of attempts whose files are not in this folder."""
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
        return counted.beyond(self._totals_here())

    def column(self, name: str) -> Any:
        """One column of the row as it is now; None when it is NULL, or the row was removed."""
        return self.row.get(name)

    def set_columns(self, **columns: Any) -> None:
        """Set columns of the row (`row.SETTABLE`: title, branch, url, outcome, …); None keeps what is there."""
        self._row.set(**columns)

    def learn_window(self, model: str, tokens: int) -> None:
        """Keep the true window of `model` that an error has taught, for the rest of this task."""
        self._row.set(learnt_window=tokens, learnt_model=model)

    def learnt_window(self, model: str) -> int | None:
        """What an earlier process of this task was taught about the window of `model`; None for nothing."""
        row = self.row
        return row.get("learnt_window") if row.get("learnt_model") == model else None

    # --- how it ends -----------------------------------------------------------------------------------------

    def complete(self, outcome: Outcome | str | None = None, *, untold: bool = False) -> None:
        """The task is done: status completed, the folder to completed/.  `untold`: nobody could be told, so the daemon
        does it when that is possible again."""
        title = self._redact(outcome.title) or None if isinstance(outcome, Outcome) else None
        code = (outcome.code or outcome.end.value) if isinstance(outcome, Outcome) else outcome
        self._end(Status.COMPLETED, outcome=code, title=title, untold=untold)

    def fail(self, error_message: str, code: str = "error", *, untold: bool = False) -> None:
        """The task failed: status failed with the reason, the folder to completed/.  `untold` as above."""
        self._end(Status.FAILED, error_message=self._redact(error_message), error_code=code, untold=untold)

    def stopped(self, message: str = "", code: str | None = None, *, untold: bool = False) -> None:
        """Somebody stopped the task: status stopped, the folder to completed/.  `code`: why, when it was no person.
        `untold` as above."""
        self._end(Status.STOPPED, error_message=message or None, error_code=code, outcome="stopped", untold=untold)

    def paused(self, reason: str, message: str = "", *, tell_at: datetime | None = None) -> Status:
        """The task waits: status paused, `outcome` is the reason, with a `message` also the error; the folder stays in
        running/.  The next claim takes the error away.  A person who asked for a pause is the reason then, and one who
        asked for a stop has it: the row, whose status is returned, is closed, and the daemon does the rest.

        `tell_at`: when the daemon shows it on the issue, unless it was told before (`Ledger.told`)."""
        if message:
            self._row.set(error_code=reason, error_message=self._redact(message))
        else:
            self._messages.sync(force=True)
        until = clock.stamp(tell_at) if tell_at is not None else None
        return self._row.pause(reason, self._final_counters(), until)

    def close(self) -> None:
        """Give descriptors and the connection back, without ending the task.  Doing it again does nothing."""
        self._close_files()
        self._close_database()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, status: Status, *, untold: bool = False, **columns: Any) -> None:
        """Last line and `end.json` durable → row committed → folder moved, both parents synced.  A crash between the
        last two leaves a closed row with its folder in running/, which the next start moves.  The first end stands."""
        if not self._ended:
            self._messages.sync(force=True, view=True)
            self._folder.record_end(status.value, sync=self._synced, **columns)
            self._row.close(status, self._final_counters(), untold=untold, **columns)
            self._ended = True
        self._close_files()
        self._folder.sweep()
        self._folder.close()
        self._messages.moved(self._folder.path)
        self._close_database()

    def _final_counters(self) -> Json:
        """The stores' counters; where only increments were used, never less than those."""
        totals = self.totals()
        self._count_others(totals)
        counters = self._counters(totals)
        if self._beaten:
            return counters
        row = self.row
        return {name: max(value, row.get(name) or 0) for name, value in counters.items()}

    def _close_files(self) -> None:
        self._messages.close()
        for file in self._files:
            file.close()

    def _close_database(self) -> None:
        if self._owns_database:
            self.database.close()
