"""Starts the jobs that extract memories from ended tasks, the jobs that index the history of a repository, and the
process that follows a shared log (`follow_schedule.py`), one at a time, each in a process of its own
(`extraction/process.py`).

The rows of the ledger that are due are the queue of jobs; a request of a task to index a history
(`memory/index_requests.py`) comes before them.  `Supervisor` calls `step`, which does not wait for a job.  While memory
is off, no job is due, and the packages `memory` and `extraction` are not imported.
"""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock
from agent.daemon import forkserver
from agent.error_text import reason
from agent.taskqueue.row_holder import hostname, is_alone
from agent.wiring.folders import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    from agent.daemon.follow_schedule import FollowSchedule
    from agent.memory.index_requests import IndexRequest
    from agent.wiring.wiring import Wiring

LOOK_SECONDS = 60.0
"""Seconds between two searches for due jobs; in addition, each end of a job, and of a task on this host, causes a
search."""
LISTED = 20
"""Maximum number of rows that one search for jobs examines: the folders of some rows may be in another base_dir of this
host."""
LOST_DAYS = 7
"""Days after which the extraction of a task is given up if this host, which had the task last, does not find its
folder."""
OVERDUE_SECONDS = 1800.0
"""Seconds after which a running job counts as hung and is killed."""
END_SECONDS = 2.0


class ExtractionRunner:
    """Runs at most one job of this daemon at a time.  `pid` is the process id of the job, None while no job runs."""

    def __init__(self, wiring: Wiring, context: ForkServerContext) -> None:
        self.wiring = wiring
        self.context = context
        self.uuid = ""
        self.request: IndexRequest | None = None
        self._look_at = 0.0
        self._process: ForkServerProcess | None = None
        self._report: Connection | None = None
        self._overdue_at = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether the configuration enables the extraction of memories, and base_dir exists."""
        settings = self.wiring.settings
        return settings.remembers and Path(settings.base_dir).is_dir()

    @cached_property
    def schedule(self) -> FollowSchedule:
        """The schedule by which memory.db follows a shared log."""
        from agent.daemon.follow_schedule import FollowSchedule

        return FollowSchedule(self.wiring)

    @property
    def pid(self) -> int | None:
        """The pid of the job's process, None if none runs."""
        return self._process.pid if self._process is not None else None

    def step(self, *, look: bool, starts: bool = True) -> None:
        """Read the events of the running job, kill it if it is overdue, and, when none runs, start the next one that is
        due, unless `starts` is False.

        `step` searches for ended tasks whose extraction is due when a job has ended, when `look` is set, and every
        LOOK_SECONDS."""
        if self._process is not None:
            self._read()
            if self._process.exitcode is None:
                if clock.monotonic() >= self._overdue_at:
                    forkserver.send_signal(self._process, signal.SIGKILL)
                return
            self._reap()
            look = True  # a job has ended, so another one may be due
        now = clock.monotonic()
        if starts and (request := self._request()) is not None:
            self._start_index(request)
        elif starts and (look or now >= self._look_at) and self.is_wanted:
            self._look_at = now + LOOK_SECONDS
            if (uuid := self.next_due()) is not None:
                self._start(uuid)
        if starts and self._process is None and self.is_wanted and self.schedule.is_due():
            self._start_follow()

    def is_busy(self) -> bool:
        """Whether a job is running, or is due and this host can do it."""
        if self._process is not None:
            return True
        return self.is_wanted and (self._request() or self.next_due()) is not None

    def _request(self) -> IndexRequest | None:
        """The next request to index the history of a repository; None if there is none."""
        if not self.is_wanted:
            return None
        from agent.memory.index_requests import first_request

        return first_request(self.wiring.settings.base_dir)

    def next_due(self) -> str | None:
        """The task of the job that is due for the longest time and that this host can do; None when there is none."""
        settings = self.wiring.settings
        host = None if is_alone(settings) else hostname()
        for row in self.wiring.ledger.due_extractions(LISTED, host=host):
            if host is None or folder_of(settings, row.uuid) is not None:
                return row.uuid
            if clock.parse(str(row.remember_at)) < clock.now() - timedelta(days=LOST_DAYS):
                self._give_up(row.uuid)
        return None

    def _give_up(self, uuid: str) -> None:
        until = clock.now() + timedelta(seconds=END_SECONDS)
        if self.wiring.ledger.begin_extraction(uuid, until):
            self.wiring.ledger.mark_extracted(uuid, until)

    def _start(self, uuid: str) -> None:
        from agent.extraction import process

        self._fork(process.main, uuid)
        self.uuid, self.request = uuid, None

    def _start_follow(self) -> None:
        from agent.extraction import process

        self._fork(process.follow, "")
        self.uuid, self.request = "", None

    def _start_index(self, request: IndexRequest) -> None:
        from agent.extraction import process

        self._fork(process.index, request)
        self.uuid, self.request = "", request
        if self._process is None:
            # No process could be started; the request is dropped, since the history is also indexed after each task.
            self._done_with_request()

    def _fork(self, target: Callable[..., None], what: str | IndexRequest) -> None:
        try:
            self._process, self._report = forkserver.fork(self.context, target, self.wiring.settings, what)
        except (OSError, EOFError) as error:  # no process or descriptor is free, or the forkserver has ended
            uuid = what if isinstance(what, str) else ""
            self.wiring.events.emit("memory_unavailable", uuid=uuid, error=reason(error))
            return
        self._overdue_at = clock.monotonic() + OVERDUE_SECONDS

    def descriptors(self) -> list[int]:
        """Descriptors that become readable when the running job reports or ends."""
        if self._process is None or self._report is None:
            return []
        return [self._process.sentinel, *([] if self._report.closed else [self._report.fileno()])]

    def _read(self) -> None:
        """Announce what the job has reported as events of this process."""
        report = self._report
        while report is not None and not report.closed and report.poll():
            try:
                name, fields = report.recv()
            except (EOFError, OSError):
                report.close()
                return
            self.wiring.events.emit(name, **fields)

    def _reap(self) -> None:
        assert self._process is not None
        self._read()
        self._process.join()
        code = self._process.exitcode
        if code is not None and code < 0:
            self.wiring.events.emit("memory_worker_died", uuid=self.uuid, signal=-code)
        self._process.close()
        if self._report is not None:
            self._report.close()
        self._process = self._report = None
        self._done_with_request()

    def _done_with_request(self) -> None:
        if self.request is not None:
            self.request.remove(self.wiring.settings.base_dir)
            self.request = None

    def stop(self) -> None:
        """End the process of the job that runs, if there is one. The extraction that the job did is due again later; a
        request to index a history is dropped, since the history is also indexed after each task."""
        if self._process is None:
            return
        forkserver.send_signal(self._process, signal.SIGTERM)
        self._process.join(END_SECONDS)
        if self._process.exitcode is None:
            forkserver.send_signal(self._process, signal.SIGKILL)
            self._process.join()
        self._reap()
