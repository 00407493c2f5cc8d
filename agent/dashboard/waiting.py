"""Sentences about why a task waits: for a worker, a limit, the disk, the rate limit of a host, a model's server, a
person, or CI.

The sentences come from what the daemon decides with: its health file, `holds.json`, the limits of the queue, the disk,
and the columns of the row.  `Waits` is made for one page and reads each of them once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent import clock
from agent.daemon import start_holds
from agent.daemon.health import read_health
from agent.forge import rate_limiter
from agent.taskqueue import AtOnce, is_decided
from agent.taskqueue.row_holder import hostname, is_alone, owner
from agent.taskqueue.startable import startable
from agent.values import Status
from agent.wiring.disk_space import OUTCOME as DISK
from agent.wiring.disk_space import shortage
from agent.wiring.private_tracker import issue_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.config import Settings
    from agent.daemon.health import Health
    from agent.taskqueue import Ledger, Row

PUBLISHING = "publishing"


class Waits:
    """The reasons for which tasks wait, as of now.  `ledger` is read only while a method runs."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.settings = settings
        self.ledger = ledger
        self.now = clock.stamp(ledger.now())
        self._issues: dict[str, str | None] = {}

    def of_all(self) -> list[str]:
        """Sentences about what keeps tasks from starting here, whichever they are."""
        found = list(self.health.why)
        if not self.health.live and (short := shortage(self.settings)):
            found.append(short)
        found += [one.text for one in start_holds.read(self.settings.base_dir) if one.until and one.text not in found]
        for host, limits in rate_limiter.known_limits(self.settings.base_dir / "limits").items():
            seconds, why = rate_limiter.wait_of(limits)
            if seconds > 0:
                found.append(f"requests to {host} wait for {seconds:.0f} s more: {why}")
        return [*found, *self._days()]

    def of(self, row: Row, record: Mapping[str, Any] | None = None) -> list[str]:
        """Sentences about what the task waits for; [] for one that waits for nothing.  `record` has all columns of the
        row, also those that `Row` lacks."""
        match row.status:
            case Status.QUEUED:
                return list(self._queued(row, record or {}))
            case Status.PAUSED:
                return [self._paused(row)]
            case Status.RUNNING:
                return [f"a {row.requested} was requested; the worker carries it out"] if row.requested else []
            case Status.COMPLETED:
                return list(self._completed(row))
        return []

    def issue_of(self, instance: str) -> str | None:
        """The file or address of the issue of a private tracker (`solve`), None for another tracker."""
        if instance not in self._issues:
            self._issues[instance] = issue_of(self.settings, instance)
        return self._issues[instance]

    @cached_property
    def health(self) -> Health:
        """The health of the daemon of this base_dir and host."""
        return read_health(self.settings)

    def is_here(self, row: Row) -> bool:
        """Whether a process of this base_dir and machine has claimed the row."""
        return self.ledger.is_mine(row, self._owner)

    @cached_property
    def _owner(self) -> str:
        return owner(self.settings.base_dir)

    @cached_property
    def workers(self) -> int:
        """The number of tasks that run in this base_dir."""
        return sum(1 for row in self.ledger.running_here() if self.is_here(row))

    @cached_property
    def _startable(self) -> frozenset[str] | None:
        limits = self.settings.limits.at_once
        at_once = AtOnce(limits.repository, limits.person, limits.server)
        if not at_once:
            return None
        provider = self.settings.provider()
        server = f"{provider.name} {provider.base_url or ''}".strip()
        return startable(self.ledger.db, server=server, at_once=at_once)

    def _queued(self, row: Row, record: Mapping[str, Any]) -> Iterator[str]:
        if row.outcome == PUBLISHING:
            yield "the model has finished; what is left is to publish the work"
        elif is_decided(row.outcome):
            yield "the task has ended; what is left is to say so on its issue"
        if row.error_code or row.error_message:
            yield f"the last attempt ended with {row.error_code}: {row.error_message}"
        if row.not_before and row.not_before > self.now:
            yield f"it is tried again after {_short(row.not_before)} UTC"
            return
        if str(record.get("reserved_until") or "") > self.now:
            yield "a worker is being started for it"
            return
        yield from self._places(row)

    def _places(self, row: Row) -> Iterator[str]:
        reasons = [*self.health.why, *(one.text for one in start_holds.holding(self.settings, row))]
        if reasons:
            here = "" if is_alone(self.settings) else f"on {hostname()}: "
            yield from dict.fromkeys(f"{here}{one}" for one in reasons)
            return
        from agent.worker import unpublished_work

        if unpublished_work.lies_elsewhere(self.settings, row, self.ledger.now()):
            yield f"its work is published by {row.hostname}, where it lies"
        if self._startable is not None and row.uuid not in self._startable:
            yield "as many tasks run for its repository, its person or the model's server as `limits.at_once` allows"
            return
        most = self.settings.scheduling.max_workers
        if self.workers >= most:
            yield f"no worker is free: {self.workers} of {most} run (`scheduling.max_workers`)"
        else:
            yield "it is next, or waits for its turn"

    def _paused(self, row: Row) -> str:
        match row.outcome:
            case "asked":
                return "it waits for a person to answer its question"
            case "paused" | None:
                return "a person paused it; `resume` lets it go on"
        if row.outcome == DISK:
            return f"{row.error_message or 'the disk cannot be written'}; it goes on by itself when that is mended"
        why = f": {row.error_message}" if row.error_message else ""
        return f"it is paused ({row.outcome}){why}; `resume` lets it go on"

    def _completed(self, row: Row) -> Iterator[str]:
        if not row.url or row.pull_state is not None:
            return
        from agent.intake import ci_watch

        if row.task_source != "local" and row.head_commit and ci_watch.may_be_watched(self.settings, row):
            until = clock.stamp(clock.parse(str(row.completed_at)) + ci_watch.LONGEST)
            yield f"its pull request is open; its CI is read until {_short(until)} UTC, and red CI starts another task"
        else:
            yield "its pull request is open"

    def _days(self) -> Iterator[str]:
        """A sentence for each repository that has used up a limit of the day."""
        limits = self.settings.limits
        if limits.runs is None and limits.repository_cost is None:
            return
        from agent.intake.enqueue import budget_spent

        for one in self.ledger.db.run("page_repositories"):
            key = budget_spent(self.settings, self.ledger, one["owner"], one["repo"], one["instance"])
            if key is not None:
                yield f"{one['owner']}/{one['repo']}: `{key}` is used up; its issues wait until tomorrow (UTC)"


def _short(stamp: str) -> str:
    return stamp[:16].replace("T", " ")
