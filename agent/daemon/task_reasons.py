"""Finds out why a task does not run, or what a running or ended task waits for: a sentence and a code.

`TaskReasons` reads once all that the daemon considers: rows of the ledger, the health file of the daemon, the disk,
start holds, limits. `TaskReasons` decides nothing: where the daemon decides with a function, the reason comes from the
same function (`start_holds.is_closed`, `disk_space.shortage`, `rows_here.workers_of`, `row_holder.alive_by_lock`,
`unpublished_work.lies_elsewhere`, `ci_watch.watched_until`, `startable.startable`, `enqueue.budget_spent`,
`rate_limiter.host_limits`); other reasons come from the row, the settings and the health file. `task_reasons.py` only
reads, and imports the modules of the forges only for a task that needs them. The commands `tasks` and `show` print the
reasons of tasks, and the gauge `makimono_waiting_tasks` counts them.

A daemon also delays single tasks by itself (`start_delays.py`, `host_affinity.py`); it writes these delays to its
health file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from agent import clock
from agent.config.base import SOURCES
from agent.config.project_settings import for_project
from agent.daemon import program_version, start_holds
from agent.daemon.health import read_health
from agent.daemon.rows_here import workers_of
from agent.daemon.start_limits import at_once_of, server_of
from agent.errors import (
    AnswerOdd,
    ForgeAccessRefused,
    ForgeError,
    ForgeLimited,
    ForgeUnreachable,
    HostUnreached,
    RemoteAway,
)
from agent.forge.rate_limiter import HostLimit, host_limits
from agent.store.jsonl import last_record
from agent.taskqueue import PUBLISHING, alive_by_lock, is_decided
from agent.taskqueue.startable import startable
from agent.values import Status
from agent.wiring.disk_space import OUTCOME as DISK
from agent.wiring.disk_space import shortage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from agent.config import Settings
    from agent.daemon.health import Health
    from agent.daemon.start_holds import StartHold
    from agent.taskqueue import Ledger, Row

ReasonCode = Literal[
    "worker",
    "at_once",
    "disk",
    "forge_limit",
    "forge",
    "model",
    "question",
    "ci",
    "paused",
    "requested",
    "publishing",
    "hold",
    "delay",
    "daemon",
    "next",
    "other",
]
"""The codes for what a task waits for. `worker`: a free worker; `at_once`: a limit of `limits.at_once`; `disk`: free
space; `forge_limit`, `forge`, `model`: a forge or a model's server that did not answer; `question`: a person's answer;
`ci`: CI of the pull request of an ended task; `paused`: a person's `resume`; `requested`: the next step of its worker,
which executes a request; `publishing`: the publication of finished work; `hold`: the end of a hold after failures of
several tasks; `delay`: the next try after another error, or the end of a delay of the daemon; `daemon`: a daemon that
starts tasks; `next`: nothing more; `other`: the end of a pause with another outcome."""

REASONS: tuple[ReasonCode, ...] = get_args(ReasonCode)

FORGE_CODES = frozenset(
    one.code for one in (ForgeError, ForgeUnreachable, ForgeAccessRefused, AnswerOdd, RemoteAway, HostUnreached)
)
"""Codes of an attempt that ended because a forge or its repositories gave no usable answer."""
MOST_REPOSITORIES = 100
"""Maximum number of repositories for which the daily limits are read from the ledger: those of the first rows."""


AT_ONCE = "as many tasks run for its repository, its person or the model's server as `limits.at_once` allows"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why one task waits: a code, a sentence for a person, and the time when the wait ends, "" if that time
    is not known."""

    code: ReasonCode
    text: str
    until: str = ""


class TaskReasons:
    """The reasons of all tasks at one moment; a new object reads the state again. `owner` is the text that names a
    process of this base_dir as the owner of leases (`Wiring.owner`). The methods raise LedgerError when the ledger does
    not answer."""

    def __init__(self, settings: Settings, ledger: Ledger, owner: str) -> None:
        self.settings = settings
        self.ledger = ledger
        self.owner = owner
        self._closed: dict[str, bool] = {}  # name of a place → whether its start hold lets no task start

    def find_reason(self, row: Row) -> Reason | None:
        """The reason why the task waits; None for a task that runs, or has ended, and waits for nothing."""
        match row.status:
            case Status.QUEUED:
                return self._queued(row)
            case Status.PAUSED:
                return _paused(row)
            case Status.RUNNING:
                return self._running(row)
            case _:
                return self._ended(row)

    def notes(self, rows: Iterable[Row] = ()) -> list[str]:
        """Sentences about everything that holds back several tasks: start holds, the disk, rate limits, an outdated
        daemon, and used up daily limits of the repositories of `rows`."""
        old = program_version.restart_reason(self.settings)
        notes = [old, *(one.text for one in self._holds if one.until)]
        if self._shortage:
            notes.append(f"no task is started: {self._shortage}")
        notes += [_limited(one) for one in self.host_limits if one.seconds > 0]
        notes += [
            f"{name} has used up `{key}` of today: its new issues are taken after midnight UTC"
            for name, key in self._spent(rows)
        ]
        return [one for one in dict.fromkeys(notes) if one]

    @cached_property
    def host_limits(self) -> list[HostLimit]:
        """The rate limits of the forges' hosts that still apply."""
        return host_limits(self.settings.base_dir / "limits")

    @cached_property
    def _holds(self) -> list[StartHold]:
        return start_holds.read(self.settings.base_dir)

    @cached_property
    def _shortage(self) -> str:
        return shortage(self.settings)

    @cached_property
    def _health(self) -> Health:
        return read_health(self.settings)

    @cached_property
    def _startable(self) -> frozenset[str]:
        """The queued tasks that `limits.at_once` does not prevent from starting."""
        return startable(self.ledger.db, server=server_of(self.settings), at_once=at_once_of(self.settings))

    @cached_property
    def workers(self) -> int:
        """The number of tasks that run in this base_dir."""
        return len(workers_of(self.ledger, self.ledger.running_here(), self.owner))

    @cached_property
    def _is_alive(self) -> Callable[[Row], bool]:
        return alive_by_lock(self.settings.base_dir)

    @cached_property
    def _now(self) -> datetime:
        return self.ledger.now()

    def _spent(self, rows: Iterable[Row]) -> list[tuple[str, str]]:
        """(repository, configuration key) for each repository of `rows` that has used up a daily limit."""
        seen: dict[tuple[str, str, str, str], None] = {}
        for row in rows:
            seen[row.task_source, row.instance, row.owner, row.repo] = None
        found: list[tuple[str, str]] = []
        if not _has_limits_of_the_day(self.settings):
            return found
        from agent.intake.enqueue import budget_spent

        for source, instance, owner, repo in list(seen)[:MOST_REPOSITORIES]:
            settings, name = self.settings, f"{owner}/{repo}"
            for section in _sections(settings, source):
                settings = for_project(settings, section, name)
            if (key := budget_spent(settings, self.ledger, owner, repo, instance)) is not None:
                found.append((name, key))
        return found

    def _queued(self, row: Row) -> Reason:
        if row.not_before and row.not_before > clock.stamp(self._now):
            return _delayed(row)
        if row.outcome == PUBLISHING and self._lies_elsewhere(row):
            return Reason("publishing", f"its work is finished and is published by {row.hostname}, which has it")
        held = [one for one in start_holds.holds_of(self.settings, row, self._holds) if self._is_closed(one)]
        if held:
            return Reason("hold", held[0].text, held[0].until)
        if at_once_of(self.settings) and row.uuid not in self._startable:
            return Reason("at_once", AT_ONCE)
        if not self._health.live:
            return Reason("daemon", self._health.why[0] if self._health.why else "no daemon starts tasks")
        if self._shortage:
            return Reason("disk", self._shortage)
        if (delay := self._health.delays.get(row.uuid)) and delay.until > clock.stamp(clock.now()):
            return Reason(
                "delay", f"{delay.why}; a worker is started after {start_holds.minute(delay.until)}", delay.until
            )
        if not self._health.ready:
            return Reason("daemon", "; ".join(self._health.why))
        most = self.settings.scheduling.max_workers
        if self.workers >= most:
            return Reason("worker", f"no worker is free: {self.workers} run, `scheduling.max_workers` is {most}")
        return Reason("next", "it starts next")

    def _lies_elsewhere(self, row: Row) -> bool:
        from agent.worker.unpublished_work import lies_elsewhere

        return lies_elsewhere(self.settings, row, self._now)

    def _is_closed(self, hold: StartHold) -> bool:
        if hold.place not in self._closed:
            self._closed[hold.place] = start_holds.is_closed(self.ledger, hold)
        return self._closed[hold.place]

    def _running(self, row: Row) -> Reason | None:
        if row.requested:
            who = f" by {row.requested_by}" if row.requested_by else ""
            return Reason("requested", f"a {row.requested} was requested{who}; its worker obeys at the next step")
        if not self.ledger.is_mine(row, self.owner):
            return None
        if not self._is_alive(row):
            return Reason("daemon", "its worker is gone; the daemon puts it back in the queue")
        try:
            last = last_record(self.settings.base_dir / "running" / row.uuid / "requests.jsonl")
        except OSError:
            return None
        if last is None or last.get("status") == "ok":
            return None
        why = str(last.get("error") or last.get("status"))[:300]
        return Reason("model", f"the last request to the model failed and is sent again: {why}")

    def _ended(self, row: Row) -> Reason | None:
        if row.url is None or row.pull_state is not None or row.key.is_in_folder or row.completed_at is None:
            return None
        from agent.intake.ci_watch import watched_until
        from agent.issue.ci_rounds import rounds_of

        until = watched_until(self.settings, row)
        if until is None or rounds_of(self.ledger, row) is None:
            return None
        stamp = clock.stamp(until)
        return Reason("ci", f"CI of its pull request is watched until {start_holds.minute(stamp)}", stamp)


def _has_limits_of_the_day(settings: Settings) -> bool:
    """Whether a daily limit is set, for all projects or for one of them."""
    sections = [one for source in SOURCES for one in _sections(settings, source)]
    entries = [entry.limits for one in sections for entry in getattr(one, "projects", ()) if entry.limits is not None]
    return any(one.runs is not None or one.repository_cost is not None for one in (settings.limits, *entries))


def _sections(settings: Settings, source: str) -> tuple[object, ...]:
    found = getattr(settings, source, ())
    return found if isinstance(found, tuple) else (found,)


def _paused(row: Row) -> Reason:
    why = (row.error_message or "").strip()
    if is_decided(row.outcome) or row.outcome == PUBLISHING:
        return Reason("publishing", "its work is finished; a resume publishes it")
    match row.outcome:
        case "asked":
            return Reason("question", "it asked a question on the issue, and an answer there resumes it")
        case outcome if outcome == DISK:
            return Reason("disk", f"{why or 'the disk cannot be written'}; it goes on when that is mended")
        case "paused" | None:
            return Reason("paused", f"{row.requested_by or 'a person'} paused it")
        case outcome:
            return Reason("other", f"{outcome}: {why}" if why else str(outcome))


def _delayed(row: Row) -> Reason:
    """The reason for which a queued row is not due yet."""
    until = row.not_before or ""
    if row.attempt == 0 and not row.error_code:
        return Reason("next", "it was just queued", until)
    code, what = _named(row.error_code or "")
    detail = f" ({row.error_message})" if row.error_message else ""
    return Reason(code, f"{what}{detail}; it is tried again after {start_holds.minute(until)}", until)


def _named(error_code: str) -> tuple[ReasonCode, str]:
    if error_code == ForgeLimited.code:
        return "forge_limit", "the forge's rate limit is used up"
    if error_code in FORGE_CODES:
        return "forge", "the forge does not answer"
    if error_code in start_holds.SERVER:
        return "model", "the model's server does not answer"
    return "delay", f"its last attempt ended with `{error_code or 'an error'}`"


def _limited(limit: HostLimit) -> str:
    until = clock.stamp(clock.now() + timedelta(seconds=limit.seconds))
    return f"{limit.host} takes no requests ({limit.bucket}) before {start_holds.minute(until)}: {limit.why}"
