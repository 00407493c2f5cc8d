"""The extraction jobs of memory: a table with the status and the number of attempts of each job, for people to inspect
and retry.

A job extracts memories from one task that has ended.  The time at which a job is due is in the row of the task
(`remember_at`), not in this table.  An attempt is counted when it begins, so that an attempt that kills its process is
counted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from agent.memory.base import Selector
    from agent.memory.database import MemoryDatabase
    from agent.memory.shared_entries import SharedEntries

QUEUED, RUNNING, DONE, FAILED = "queued", "running", "done", "failed"
JOB_STATUSES = (QUEUED, RUNNING, DONE, FAILED)


class ExtractionJobs:
    """The table `memory_jobs`, in memory.db or in the database of the shared log.  The column `session_id` is the uuid
    of the task."""

    def __init__(self, database: MemoryDatabase | SharedEntries) -> None:
        self.database = database

    def begin(self, job_id: str, actor_id: str, session_id: str, strategy: str, owner: str, until: str) -> int:
        """Begin an attempt of a job; a job that does not exist yet is created. Returns the number of the attempt, 0 if
        the extraction job is done already."""
        rows = self.database.run(
            "job_begin",
            id=job_id,
            actor_id=actor_id,
            session_id=session_id,
            strategy=strategy,
            owner=owner,
            until=until,
            now=clock.stamp(),
        )
        return int(rows[0]["attempts"]) if rows else 0

    def end(self, job_id: str, status: str, error: str = "", *, counts: bool = True) -> None:
        """End an attempt and set the status of the job.  With `counts` False the attempt is not counted, for example
        when a signal stopped it."""
        less = 0 if counts else 1
        self.database.run("job_end", id=job_id, status=status, error=error, less=less, now=clock.stamp())

    def list(self, status: str | None) -> list[dict[str, Any]]:
        """The extraction jobs with this status, oldest first; all jobs if `status` is None."""
        return self.database.run("job_list", status=status)

    def by_status(self) -> dict[str, int]:
        """status → number of extraction jobs with it."""
        return {row["status"]: int(row["jobs"]) for row in self.database.run("jobs_by_status")}

    def with_errors(self, sessions: Collection[str], selector: Selector) -> tuple[str, ...]:
        """The ids of the jobs with an error message that may quote a text to forget: the jobs of the given sessions,
        the jobs of the selector's actor, and the jobs with the selector's text in their error message."""
        match = (selector.match or "").casefold()
        return tuple(
            row["id"]
            for row in self.list(None)
            if row["error"]
            and (
                row["session_id"] in sessions
                or selector.actor == row["actor_id"]
                or (match and match in row["error"].casefold())
            )
        )

    def clear_errors(self, job_ids: Iterable[str]) -> None:
        """Remove the error messages of extraction jobs."""
        for job_id in job_ids:
            self.database.run("job_error_clear", id=job_id)

    def restart(self, job_id: str) -> bool:
        """Queue a failed job again; False if there is no failed job with this id."""
        return bool(self.database.run("job_restart", id=job_id, now=clock.stamp()))
