"""Gauges of which the values are read when metrics are requested: the rows of the ledger by status and host, their ages
and what they wait for, rate limits of the forges, the disk, and jobs of long-term memory.

The function that reads the gauges' values is a parameter, since this package must not import the ledger
(`daemon/ledger_gauges.py` does).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from agent import clock
from agent.errors import MakimonoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KEPT_SECONDS = 5.0
"""Seconds for which the values of gauges are cached: many clients may request metrics, and each read loads all open
rows of the ledger."""

ROWS = ("makimono_rows", "Tasks in the ledger, by status and the host that worked on them last.", ("status", "host"))
OLDEST = (
    "makimono_oldest_seconds",
    "Age of the open task that is longest in its status: queued since it is due, running since its claim.",
    ("status",),
)
WORKERS = ("makimono_workers", "Tasks that run in this base_dir.", ())
UP = ("makimono_ledger_up", "Whether the ledger answered for the other gauges.", ())
WAITING = (
    "makimono_waiting_tasks",
    "Open tasks that wait, by reason (docs/operations.md names the reasons).",
    ("reason",),
)
LIMIT = ("makimono_forge_limit_requests", "Requests that a forge's rate limit allows.", ("host", "bucket"))
REMAINING = ("makimono_forge_remaining_requests", "Requests that are left until the reset.", ("host", "bucket"))
FREE = ("makimono_disk_free_bytes", "Bytes that this user may still write on the disk of base_dir.", ())
SIZE = ("makimono_disk_size_bytes", "Size of the disk of base_dir.", ())
JOBS = ("makimono_memory_waiting_jobs", "Ended tasks that wait for their extraction into long-term memory.", ())
ALL = (UP, ROWS, OLDEST, WORKERS, WAITING, JOBS, LIMIT, REMAINING, FREE, SIZE)
OPEN = ("queued", "running", "paused")
MOST_HOSTS = 64


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of the ledger with one status and host.

    `age` is the number of seconds for which the oldest of these rows has had its status (for a queued row: since it was
    due), None for closed rows.
    """

    status: str
    host: str
    count: int
    age: float | None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A rate limit of a forge's host that the forge reported: `remaining` of `limit` requests."""

    host: str
    bucket: str
    remaining: int
    limit: int


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The number of the ledger's rows for each status and host, with the age of the oldest open one, and the number of
    tasks that are running in this base_dir.

    `waiting` is the number of open tasks for each reason to wait, `jobs` the number of waiting extraction jobs (None:
    long-term memory is off), `disk` the (free, all) bytes of the disk of base_dir (None: they cannot be read).
    """

    groups: tuple[RowGroup, ...]
    workers: int
    waiting: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[RateLimit, ...] = ()
    disk: tuple[int, int] | None = None
    jobs: int | None = None


class Gauges:
    """A collector of prometheus_client that yields the gauges; `read` returns their values."""

    def __init__(self, read: Callable[[], LedgerSnapshot]) -> None:
        self._read = read
        self._kept: LedgerSnapshot | None = None
        self._until = 0.0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields each gauge with its present values; if the ledger cannot be read, only the gauge that reports this."""
        snapshot = self._snapshot()
        up = _family(UP)
        up.add_metric([], float(snapshot is not None))
        yield up
        if snapshot is None:
            return
        rows, oldest, workers = map(_family, (ROWS, OLDEST, WORKERS))
        for (status, host), count in _counted(snapshot).items():
            rows.add_metric([status, host], count)
        for status in OPEN:
            ages = [one.age for one in snapshot.groups if one.status == status and one.age is not None]
            oldest.add_metric([status], max(ages, default=0.0))
        workers.add_metric([], snapshot.workers)
        yield from (rows, oldest, workers)
        yield from _others(snapshot)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges without values, so that registering the collector does not read the ledger's rows."""
        yield from map(_family, ALL)

    def _snapshot(self) -> LedgerSnapshot | None:
        now = clock.monotonic()
        if self._kept is None or now >= self._until:
            try:
                self._kept = self._read()
            except MakimonoError:
                self._kept = None
            self._until = clock.monotonic() + KEPT_SECONDS
        return self._kept


def _others(snapshot: LedgerSnapshot) -> Iterator[GaugeMetricFamily]:
    """The gauges that are not computed from counts of rows."""
    waiting, limit, remaining = map(_family, (WAITING, LIMIT, REMAINING))
    for reason, count in snapshot.waiting.items():
        waiting.add_metric([reason], count)
    for one in snapshot.limits[:MOST_HOSTS]:
        limit.add_metric([one.host, one.bucket], one.limit)
        remaining.add_metric([one.host, one.bucket], one.remaining)
    yield from (waiting, limit, remaining)
    if snapshot.disk is not None:
        for named, size in zip((FREE, SIZE), snapshot.disk, strict=True):
            family = _family(named)
            family.add_metric([], size)
            yield family
    if snapshot.jobs is not None:
        jobs = _family(JOBS)
        jobs.add_metric([], snapshot.jobs)
        yield jobs


def _family(named: tuple[str, str, tuple[str, ...]]) -> GaugeMetricFamily:
    name, meaning, labels = named
    return GaugeMetricFamily(name, meaning, labels=labels)


def _counted(snapshot: LedgerSnapshot) -> dict[tuple[str, str], int]:
    """(status, host) → number of rows, which is 0 for an open status without rows; hosts beyond MOST_HOSTS count as
    `other`."""
    found: dict[tuple[str, str], int] = {}
    hosts = sorted({one.host for one in snapshot.groups})[:MOST_HOSTS]
    for one in snapshot.groups:
        key = one.status, one.host if one.host in hosts else "other"
        found[key] = found.get(key, 0) + one.count
    present = {status for status, _ in found}
    return {**{(status, ""): 0 for status in OPEN if status not in present}, **found}
