"""Extraction jobs: one for each session that is taken into memory, with its tries.

The row of the task says when a job is due (`remember_at`); here people see what became of it.  A try is counted at its
beginning, so that one that ends its process counts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock

if TYPE_CHECKING:
    from agent.memory.database import MemoryDatabase

QUEUED, RUNNING, DONE, FAILED = "queued", "running", "done", "failed"


class ExtractionJobs:
    """The table `memory_jobs`.  `session_id` is the task whose row of the ledger is due."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database

    def begin(self, job_id: str, actor_id: str, session_id: str, strategy: str, owner: str, until: str) -> int:
        """Begin a try of a job, which is made if there is none; the number of this try, 0 when the job is done."""
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
        """End a try with the new status of the job; `counts` False takes the try back, because it was stopped from
        outside."""
        less = 0 if counts else 1
        self.database.run("job_end", id=job_id, status=status, error=error, less=less, now=clock.stamp())

    def list(self, status: str | None) -> list[dict[str, Any]]:
        """Jobs, oldest first."""
        return self.database.run("job_list", status=status)

    def restart(self, job_id: str) -> bool:
        """Queue a failed job again; False when there is no such failed job."""
        return bool(self.database.run("job_restart", id=job_id, now=clock.stamp()))
