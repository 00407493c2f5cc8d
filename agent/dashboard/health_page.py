"""Makes the page about the health of this host: daemon, queue, workers, limits, disk, and the newest errors.

The facts on the health page come from this host and the ledger; no server other than that of the ledger is asked. The
local checks of `doctor` have a page of their own; a helper process makes them, and the page caches their findings for
KEPT_SECONDS.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING

from agent import __version__, clock
from agent.daemon import program_version
from agent.daemon.health import read_health
from agent.daemon.task_reasons import TaskReasons
from agent.dashboard import charts, helper_process
from agent.errors import HostError, MakimonoError
from agent.forge import rate_limiter
from agent.store.db import sqlite_version
from agent.taskqueue.row_holder import hostname, owner
from agent.wiring import disk_space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.config import Settings
    from agent.dashboard.ledger_reader import LedgerReader
    from agent.taskqueue import Ledger
    from agent.values import Json

KEPT_SECONDS = 60.0
MOST_ERRORS = 20
NEWEST = 100
"""The number of newest tasks; for their repositories the page says whether a daily limit is used up."""


class HealthPage:
    """The health page of one server."""

    def __init__(self, settings: Settings, reader: LedgerReader) -> None:
        self.settings = settings
        self.reader = reader
        self._lock = Lock()
        self._checks: tuple[float, Json] | None = None

    def view(self) -> Json:
        """The value of the page; if the ledger cannot be read, `problems` says so and the facts from it are missing."""
        health = read_health(self.settings)
        shown: Json = {
            "page": "health",
            "problems": [],
            "host": hostname(),
            "version": __version__,
            "base_dir": str(self.settings.base_dir),
            "daemon": {
                "live": health.live,
                "ready": health.ready,
                "why": list(health.why),
                "restart": program_version.restart_reason(self.settings),
            },
            "disk": self._disk(),
            "limits": self._limits(),
            "parts": self._parts(),
            "ledger": self.reader.kind.where,
        }
        try:
            with self.reader.ledger() as ledger:
                shown |= self._of_ledger(ledger, health.why)
        except MakimonoError as error:
            shown["problems"].append(str(error))
        return shown

    def doctor(self) -> Json:
        """The findings of the local checks of `doctor`. Raises HostError when the checks fail or take too long, or run
        for another page and do not end within WAIT_SECONDS: a request that waits longer would occupy a thread that the
        commands of people (stop, pause) need."""
        if not self._lock.acquire(timeout=helper_process.WAIT_SECONDS):
            raise HostError("the checks of this machine are running for another page; try again in a moment")
        try:
            if self._checks is None or clock.monotonic() - self._checks[0] > KEPT_SECONDS:
                found = helper_process.run(self.settings, "doctor")
                self._checks = (clock.monotonic(), found)
            return {"page": "health", "problems": [], "host": hostname(), **self._checks[1]}
        finally:
            self._lock.release()

    def _of_ledger(self, ledger: Ledger, daemon_says: Sequence[str]) -> Json:
        now = ledger.now()
        me = owner(self.settings.base_dir)
        running = ledger.list("running")
        reasons = TaskReasons(self.settings, ledger, me)
        since = clock.stamp(now - timedelta(days=charts.DAYS))
        return {
            "groups": [{**one, "age": _age(one.get("since"), now.timestamp())} for one in ledger.count_groups()],
            "workers": [
                {
                    "uuid": row.uuid,
                    "title": row.title,
                    "host": row.hostname,
                    "here": ledger.is_mine(row, me),
                    "process": row.process_id,
                    "attempt": row.attempt,
                    "heartbeat_at": row.heartbeat_at,
                    "turns": row.turns,
                }
                for row in running
            ],
            "most_workers": self.settings.scheduling.max_workers,
            "waiting": [one for one in reasons.notes(ledger.list(None, NEWEST)) if one not in daemon_says],
            "errors": ledger.db.run("page_errors", limit=MOST_ERRORS),
            "days": charts.days(ledger.db.run("page_days", since=since[:10])),
            "queue": charts.queue(ledger),
        }

    def _disk(self) -> Json:
        free = None
        with suppress(OSError):
            free = disk_space.free(self.settings.base_dir)
        least = self.settings.scheduling.min_free
        return {"free": free, "least": least, "why": disk_space.shortage(self.settings)}

    def _limits(self) -> list[Json]:
        return [asdict(one) for one in rate_limiter.host_limits(self.settings.base_dir / "limits")]

    def _parts(self) -> list[Json]:
        version, module, safe = sqlite_version()
        return [
            {"name": "Python", "found": platform.python_version(), "ok": True},
            {"name": "SQLite", "found": f"{version} of {module}", "ok": safe},
            {"name": "Model", "found": f"{self.settings.llm.provider} {self.settings.provider().model}", "ok": True},
            {"name": "Sources", "found": ", ".join(self.settings.task_sources), "ok": True},
        ]


def _age(since: str | None, now: float) -> float | None:
    return None if not since else max(0.0, now - clock.parse(since).timestamp())
