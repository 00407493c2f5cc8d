"""Reads the values of the gauges of `GET /metrics`: from the ledger the tasks by status and host, with age and
reason to wait; also the workers, the rate limits of the forges and the disk of base_dir.

`snapshot` reads the rows of the ledger (the table of tasks) over a new database connection; `observe/gauges.py` calls
it for a request for metrics, at most once in 5 seconds. Gauges that the daemon counted from events would be wrong after
a restart, and would lack the tasks of other hosts.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from agent import clock
from agent.daemon.task_reasons import REASONS, TaskReasons
from agent.observe.gauges import LedgerSnapshot, RateLimit, RowGroup
from agent.values import Status
from agent.wiring.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings


def snapshot(settings: Settings) -> LedgerSnapshot:
    """The values of all gauges: the rows of the ledger by status and host, with their ages; reasons to wait, workers,
    due extractions, rate limits and disk space. Raises LedgerError, HostError or DiskError if the ledger cannot be
    read."""
    with closing(Wiring(settings)) as wiring:
        ledger = wiring.ledger
        now = ledger.now()
        groups = tuple(
            RowGroup(str(row["status"]), str(row["host"]), int(row["count"]), _age(row["since"], now.timestamp()))
            for row in ledger.count_groups()
        )
        reasons = TaskReasons(settings, ledger, wiring.owner)
        waiting = Counter(
            found.code
            for status in (Status.QUEUED, Status.PAUSED, Status.RUNNING)
            for row in ledger.list(status)
            if (found := reasons.find_reason(row)) is not None
        )
        jobs = len(ledger.due_extractions()) if settings.memory.enabled else None
        return LedgerSnapshot(
            groups,
            reasons.workers,
            waiting={code: waiting[code] for code in REASONS if code not in OF_ENDED},
            limits=tuple(_limits(reasons)),
            disk=_disk(settings),
            jobs=jobs,
        )


OF_ENDED = ("ci",)
"""Reason codes that only an ended task can have; ended tasks are not counted, since they may be many."""


def _limits(reasons: TaskReasons) -> Iterator[RateLimit]:
    for one in reasons.host_limits:
        if one.remaining is not None and one.limit is not None:
            yield RateLimit(one.host, one.bucket, one.remaining, one.limit)


def _disk(settings: Settings) -> tuple[int, int] | None:
    try:
        found = os.statvfs(settings.base_dir)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _age(since: str | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - clock.parse(since).timestamp())
