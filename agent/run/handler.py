"""One task from its issue to its end: prepare → loop → deliver → tell → close.

Called by `run/worker.py` in the task's own process, which holds the lock and the claim, and by `solve`.  Each step
leaves its truth on disk before the next begins; run again from the top after a crash it repeats nothing that has
happened outside (design: section 2; seed 002: sections 5.1, 6 and 11.1).
"""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.context import TaskContextManager
from agent.errors import DiskError, Fenced, ForgeError, IssueUnreadable, LedgerError, MakimonoError
from agent.llm.base import Interrupted
from agent.observe import log
from agent.run.closing import LABELS
from agent.run.task_run import TaskRun
from agent.run.telling import tell
from agent.values import End, Outcome, Status

if TYPE_CHECKING:
    from agent.forge import Task
    from agent.run.delivery import Report
    from agent.run.wiring import Wiring

DONE = (End.FINISHED, End.ANSWERED)
FORGE_ATTEMPTS = 8
FORGE_SECONDS, FORGE_LONGEST = 60.0, 1800.0
"""How often, and how far apart, a task is tried again that its forge did not let end."""


class TaskHandler:
    """Handles one task.  `attempt` is the fence of the claim; `publishing` False keeps everything inside (replay)."""

    def __init__(self, wiring: Wiring, *, attempt: int | None = None, publishing: bool = True) -> None:
        self.wiring = wiring
        self.attempt = attempt
        self.publishing = publishing
        self.run: TaskRun | None = None
        self.drain_wanted = False
        self.failed = False

    def drain(self, *_: object) -> None:
        """End at the next turn and give the row back; may be called from a signal handler at any time."""
        self.drain_wanted = True
        if self.run is not None:
            self.run.control.drain()

    def listen(self) -> None:
        """SIGTERM drains; SIGINT belongs to the daemon."""
        signal.signal(signal.SIGTERM, self.drain)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def handle(self, task: Task) -> Outcome:
        """Work on the task until it ends; what ends it badly is logged, told on the issue, and raised again."""
        settings = self.wiring.settings
        context = TaskContextManager(
            task.get_task_key(),
            str(task.get_uuid()),
            settings,
            user=task.get_user(),
            title=task.title,
            attempt=self.attempt,
            lease_owner=self.wiring.owner,
            database=self.wiring.db,
        )
        self._emit(
            "task_started",
            context,
            task=str(context.task_key),
            provider=settings.llm.provider,
            model=settings.provider().model,
            resumed=context.resumed,
        )
        for repair in context.repairs:
            self._emit("store_repaired", context, file=repair)
        try:
            return self._handle(context)
        except Fenced:
            raise  # a newer attempt owns everything, the row included
        except LedgerError:
            raise  # the rows cannot be reached: nothing is said, and the sweep puts the task back
        except DiskError as error:
            self._emit("task_paused", context, why=str(error))
            context.paused(str(error))
            raise
        except ForgeError as error:
            if isinstance(error, IssueUnreadable) or context.attempt >= FORGE_ATTEMPTS:
                self._fail_with(context, error)
            else:  # away for a while: all that was done is on disk, and the next attempt goes on from there
                self._give_back(context, error)
            raise
        except Exception as error:
            # Worker top: whatever it is, the person who asked is told and the row says so (seed 002, 11.1).
            self._fail_with(context, error)
            raise
        finally:
            context.close()

    def _fail_with(self, context: TaskContextManager, error: Exception) -> None:
        code = error.code if isinstance(error, MakimonoError) else "bug"
        log.get("handler").exception("task_failed", message="Task processing failed", code=code)
        self._fail(context, code, str(error) or type(error).__name__)

    def _give_back(self, context: TaskContextManager, error: ForgeError) -> None:
        seconds = min(FORGE_LONGEST, FORGE_SECONDS * 2.0 ** (context.attempt - 1))
        context.beat()
        self.wiring.ledger.release(context.uuid, context.attempt, clock.now() + timedelta(seconds=seconds))
        self._emit("task_requeued", context, attempt=context.attempt, why=str(error))

    def _handle(self, context: TaskContextManager) -> Outcome:
        self.run = run = TaskRun(self.wiring, context, publishing=self.publishing)
        if self.drain_wanted:
            run.control.drain()
        try:
            run.prepare()
            run.brief()
            outcome = self._conclude(context, run, run.loop().run())
        except Interrupted as stop:  # in the set-up command or in the verify command
            outcome = self._conclude(context, run, stop.outcome)
        return outcome

    def _conclude(self, context: TaskContextManager, run: TaskRun, outcome: Outcome) -> Outcome:
        """Leave every end as its kind wants: files first, the forge second, the row last."""
        if outcome.end is End.DRAINED:
            run.beat()
            self._show_drained(context, run)
            self.wiring.ledger.release(context.uuid, context.attempt)
            self._emit("task_requeued", context, attempt=context.attempt, why="drained")
            return outcome
        if outcome.end in (End.PAUSED, End.ASKED):
            tell(run, outcome, None)
            run.label("paused")
            context.paused("asked" if outcome.end is End.ASKED else "paused")
            self._emit("task_paused", context, why=str(outcome.end))
            return outcome
        report = None if outcome.end is End.STOPPED else run.delivery.deliver(outcome)
        if report is not None and report.changed:
            context.set_columns(branch=report.branch, url=report.pull.url if report.pull else None)
        status, code, message = judged(outcome, report)
        tell(run, outcome, report, failed=status is Status.FAILED)
        run.label(LABELS[status])
        if status is Status.COMPLETED:
            context.complete(outcome)
        elif status is Status.STOPPED:
            context.stopped(message)
        else:
            context.fail(message, code)
        self.failed = status is Status.FAILED
        self._emit("task_ended", context, status=str(status), end=str(outcome.end), code=code)
        return outcome

    def _show_drained(self, context: TaskContextManager, run: TaskRun) -> None:
        try:
            run.progress.edit("drained")
        except MakimonoError as error:  # the row goes back all the same
            self._emit("effect_failed", context, effect="progress", error=str(error))

    def _fail(self, context: TaskContextManager, code: str, message: str) -> None:
        """Tell the person and close as failed; what cannot be told does not hide the first error."""
        self.failed = True
        outcome = Outcome(End.FAILED, code=code, summary=message)
        if self.run is not None:
            try:
                tell(self.run, outcome, None, failed=True)
                self.run.label("failed")
            except MakimonoError as second:
                self._emit("effect_failed", context, effect="final", error=str(second))
        context.fail(message, code)
        self._emit("task_ended", context, status="failed", end="failed", code=code)

    def _emit(self, name: str, context: TaskContextManager, **fields: object) -> None:
        self.wiring.events.emit(name, uuid=context.uuid, **fields)


def judged(outcome: Outcome, report: Report | None) -> tuple[Status, str, str]:
    """(status, code, message) of a run that is over: what the model says, and whether what came of it holds."""
    if outcome.end is End.STOPPED:
        return Status.STOPPED, "stopped", outcome.summary
    if outcome.end not in DONE:
        return Status.FAILED, outcome.code or str(outcome.end), outcome.summary
    code, problem = report.problem if report is not None else ("", "")
    return (Status.FAILED, code, problem) if code else (Status.COMPLETED, "", "")
