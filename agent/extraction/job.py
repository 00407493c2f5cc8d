"""One extraction job: extracts long-term memories from an ended task (docs/memory.md, "What goes in").

Every step is idempotent: events have tokens, the store merges equal records, the index of commits continues where it
ended, and the answer of a model is on disk before it is used. Because every step is idempotent, if the process dies at
any point, another process can repeat the job with the same result.

The lease of the job is `remember_at` in the row of the task. The row of the job in memory.db counts the tries.
`process.py` is the process that runs this module.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.error_text import named
from agent.errors import Fenced, LockHeld, MakimonoError, MemoryUnavailable, UsageError
from agent.extraction.feedback import Feedback
from agent.extraction.task_extraction import EPISODES, Extracted, TaskExtraction
from agent.memory import jobs
from agent.observe import log
from agent.wiring.folders import folder_of
from agent.wiring.memory import actor_of_task, open_memory
from agent.worker.task_templates import templates_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from agent.memory import MemoryStore
    from agent.observe.events import Events
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

LOCK = "memory.lock"
"""The name of the lock file in base_dir for extraction jobs. A job holds the flock on this lock file, so that only one
job runs for each base_dir."""

LEASE_SECONDS = 90.0
TRIES = 3
PAUSES = (60.0, 600.0)
"""Seconds to wait after the first and after the second failed try."""
AWAY_SECONDS = 600.0
"""Seconds to wait when memory.db cannot be used. If memory.db cannot be opened, the try is not counted, since the count
is in memory.db."""
LONGEST_ERROR = 500


class Stopped(BaseException):
    """The exception for a signal that asks the process to end. A stopped job starts again from the beginning later."""


@dataclass(slots=True)
class ExtractionLease:
    """The lease of one task's extraction. A thread extends the lease of the extraction; `lost` is True once another
    process has the lease."""

    wiring: Wiring
    uuid: str
    until: datetime
    lost: bool = False

    def extend(self) -> None:
        """Extend the lease to LEASE_SECONDS from now; set `lost` if another process has the lease."""
        later = clock.now() + timedelta(seconds=LEASE_SECONDS)
        if self.wiring.ledger.delay_extraction(self.uuid, self.until, later):
            self.until = later
        else:
            self.lost = True

    def check(self) -> None:
        """Raise Fenced if another process has the job."""
        if self.lost:
            raise Fenced(f"the memory extraction of task {self.uuid} is done by another process now")


def run(wiring: Wiring, uuid: str) -> bool:
    """Run the extraction jobs of a task, if they are due and no other job runs in this base_dir; return whether each is
    done or has failed for the last time.

    An error of a job is announced as an event and not raised.  Raises LedgerError or DiskError when the ledger
    fails."""
    try:
        lock = durable_files.lock(wiring.settings.base_dir / LOCK)
    except LockHeld:
        return False
    try:
        lease = ExtractionLease(wiring, uuid, clock.now() + timedelta(seconds=LEASE_SECONDS))
        if not wiring.ledger.begin_extraction(uuid, lease.until):
            return False
        row = wiring.ledger.get(uuid)
        if row is None:
            return False
        with _extending(lease):
            return _work(wiring, row, lease)
    finally:
        durable_files.unlock(lock)


def follow(store: MemoryStore, events: Events) -> None:
    """Apply the newest entries of the shared log to memory.db, and announce the result. Raises MemoryUnavailable."""
    begun = clock.monotonic()
    found = store.follow()
    if found.entries or found.imported:
        seconds = round(clock.monotonic() - begun, 3)
        events.emit("memory_followed", entries=found.entries, imported=found.imported, seconds=seconds)
    for where in found.remains:
        events.emit("memory_remains", where=where)


@contextmanager
def _extending(lease: ExtractionLease) -> Iterator[None]:
    over = threading.Event()

    def extend() -> None:
        while not over.wait(LEASE_SECONDS / 3) and not lease.lost:
            try:
                lease.extend()
            except MakimonoError:  # the next call may reach the ledger again, before the lease ends
                continue

    thread = threading.Thread(target=extend, name="memory lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Job:
    """A part of the extraction of a task, with a row of its own in `memory_jobs`: its own tries and its own status."""

    id: str
    strategy: str
    work: Callable[[Wiring, MemoryStore, Row, ExtractionLease], Extracted]


def jobs_of(row: Row) -> list[Job]:
    """The jobs of a task: the extraction of the task, and one for the end of its pull request, if that has ended."""
    found = [Job(row.uuid, "all", take_in)]
    if row.pull_state:
        found.append(Job(f"{row.uuid}-{row.pull_state}", EPISODES, take_pull))
    return found


def take_in(wiring: Wiring, store: MemoryStore, row: Row, lease: ExtractionLease) -> Extracted:
    """Extract the memories of the task from its folder; do nothing if the folder was removed meanwhile. Raises LockHeld
    while another process works in the folder."""
    folder = folder_of(wiring.settings, row.uuid)
    if folder is None:
        return Extracted()
    lock = durable_files.lock(folder / "lock")
    try:
        with templates_of(wiring.settings, wiring.events, folder):
            return TaskExtraction(wiring, store, row, folder, lease.check).run()
    finally:
        durable_files.unlock(lock)


def take_pull(wiring: Wiring, store: MemoryStore, row: Row, lease: ExtractionLease) -> Extracted:
    """Add the end of the pull request to memory (`Feedback.of_pull`)."""
    lease.check()
    return Extracted(amended=Feedback(wiring, store).of_pull(row))


def _work(wiring: Wiring, row: Row, lease: ExtractionLease) -> bool:
    """Run those jobs of a row that are not done; return whether each is done now, or has failed for the last time."""
    store = open_memory(wiring.settings, f"extraction of {row.uuid}")
    try:
        follow(store, wiring.events)
        pauses = [_try(wiring, store, row, lease, job) for job in jobs_of(row)]
        lease.check()
    except Stopped:
        _give_back(wiring, lease, 0.0)
        raise
    except Fenced:
        return False
    except MemoryUnavailable as error:
        wiring.events.emit("memory_unavailable", uuid=row.uuid, error=str(error))
        _give_back(wiring, lease, AWAY_SECONDS)
        return False
    finally:
        store.close()
    if again := max(pauses):
        _give_back(wiring, lease, again)
        return False
    return wiring.ledger.mark_extracted(row.uuid, lease.until)


def _give_back(wiring: Wiring, lease: ExtractionLease, seconds: float) -> None:
    """Make the extraction of the row due again after `seconds`. If the ledger fails, the extraction becomes due again
    when its lease expires."""
    with suppress(MakimonoError):
        wiring.ledger.delay_extraction(lease.uuid, lease.until, clock.now() + timedelta(seconds=seconds))


def _try(wiring: Wiring, store: MemoryStore, row: Row, lease: ExtractionLease, job: Job) -> float:
    """Run one try of a job, unless the job is done; return the seconds until the next try, 0 if no further try is
    needed."""
    begun = clock.monotonic()
    actor = actor_of_task(wiring.settings, row.key)
    until = clock.format_stamp(lease.until)
    attempt = store.jobs.begin(job.id, actor, row.uuid, job.strategy, wiring.owner, until)
    if not attempt:
        return 0.0
    try:
        found = job.work(wiring, store, row, lease)
    except Stopped:
        store.jobs.end(job.id, jobs.QUEUED, counts=False)
        raise
    except (Fenced, MemoryUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - every other error counts as one of at most TRIES failed tries
        return _record_failed_try(wiring, store, job, row, attempt, error)
    lease.check()
    store.jobs.end(job.id, jobs.DONE)
    seconds = round(clock.monotonic() - begun, 3)
    wiring.events.emit("memory_extracted", uuid=row.uuid, job=job.id, **found.to_dict(), seconds=seconds)
    return 0.0


def _record_failed_try(wiring: Wiring, store: MemoryStore, job: Job, row: Row, attempt: int, error: Exception) -> float:
    """Record a failed try of a job; return the seconds until the next try, 0 after the last."""
    log.mistake("extraction", row.uuid, error)
    why = wiring.redact(named(error))[:LONGEST_ERROR]
    last = attempt >= TRIES
    store.jobs.end(job.id, jobs.FAILED if last else jobs.QUEUED, why)
    wiring.events.emit("memory_extraction_failed", uuid=row.uuid, job=job.id, attempt=attempt, error=why, last=last)
    return 0.0 if last else PAUSES[min(attempt, len(PAUSES)) - 1]


def restart(wiring: Wiring, store: MemoryStore, job_id: str) -> None:
    """Queue a failed job again and make it due now. Raises UsageError when there is no failed job with this id, or the
    ledger has no ended task for it."""
    found = next((one for one in store.list_memory_extraction_jobs(jobs.FAILED) if one["id"] == job_id), None)
    if found is not None and not wiring.ledger.extract_again(str(found["session_id"])):
        raise UsageError(
            f"job {job_id} cannot run again: the ledger has no ended task {found['session_id']}; its row was removed, "
            f"or is in another ledger"
        )
    store.start_memory_extraction_job(job_id)
