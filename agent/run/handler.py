"""One task from its issue to its end: prepare → loop → deliver → notify → close.

Called by `run/worker.py` in the task's own process, which holds the lock and the claim, and by `solve`.  Each step
leaves its truth on disk before the next begins; run again from the top after a crash it repeats nothing that has
happened outside.  What an error makes of the task is decided by one table, `dispose.py`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import clock, step
from agent.context import TaskContextManager
from agent.errors import DiskError, EndedBefore, Fenced, GitError, LedgerError, MakimonoError, StopHeard, WorkError
from agent.llm.base import Interrupted
from agent.observe import log
from agent.run import later
from agent.run.claims import LABELS
from agent.run.closing import ENDS
from agent.run.dispose import dispose
from agent.run.ending import Ending
from agent.run.gate import Decision, decide, is_checked
from agent.run.lease import Lease
from agent.run.replicating import END_SECONDS
from agent.run.rework import send_back, standing
from agent.run.room import OUTCOME
from agent.run.showing import AGAIN, announce, for_the_disk
from agent.run.task_run import TaskRun
from agent.run.telling import put_in_words, tell_end, tell_pause
from agent.values import End, Outcome, Status
from agent.work import revived

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge import Task
    from agent.run.dispose import Disposition
    from agent.run.wiring import Wiring

DONE = (End.FINISHED, End.ANSWERED)
WAITS = (End.DRAINED, End.PAUSED, End.ASKED)


class TaskHandler:
    """Handles one task.  `attempt` is the fence of the claim; `publishing` False keeps everything inside (replay)."""

    def __init__(self, wiring: Wiring, *, attempt: int | None = None, publishing: bool = True) -> None:
        self.wiring = wiring
        self.attempt = attempt
        self.publishing = publishing
        self.run: TaskRun | None = None
        self.outcome: Outcome | None = None  # what the work came to, once only publishing is left
        self.drain_wanted = False
        self.failed = False

    def drain(self, *_: object) -> None:
        """End at the next turn and give the row back; may be called from a signal handler at any time."""
        self.drain_wanted = True
        if self.run is not None:
            self.run.control.drain()

    def handle(self, task: Task) -> Outcome:
        """Work on the task until it ends; what ends it badly is logged, told on the issue, and raised again."""
        context = self._open(task)
        try:
            with Lease(self.wiring.ledger, context.uuid, context.attempt, self.wiring.events):
                try:
                    return self._steps(context)
                except Exception as error:  # noqa: BLE001 - worker top: whatever it is, the row and the person are told
                    return self._dispose(context, error)
        finally:
            if self.run is not None:
                self.run.end_copy()
            context.close()

    def _steps(self, context: TaskContextManager) -> Outcome:
        """prepare → loop → deliver → notify → close, from where an earlier attempt left it."""
        self.run = run = TaskRun(self.wiring, context, publishing=self.publishing)
        if self.drain_wanted:
            run.control.drain()
        with run.held, step.hearing(run.control.pending):
            if (ending := Ending.kept(context.context_dir)) is not None:  # all is decided, and perhaps told
                self.outcome = ending.outcome
                return self._close(context, run, ending)
            if (ending := Ending.in_row(context.row)) is not None:  # decided on another host, which has the words
                self._close_row(context, ending, untold=self.publishing)
                return ending.outcome
            kept = later.unpublished(run.effects)
            self.outcome = kept.outcome if kept else None
            try:
                run.prepare(set_up=kept is None or is_checked(kept.outcome))
                if kept is None:
                    if said := later.begin_anew(context):
                        self._emit("task_anew", context, turns=context.elsewhere.turns)
                    run.reports.extend(said)
                    run.brief()
                    run.replicate()
                    outcome = run.loop().run()
                else:  # only publishing is left
                    run.take_up()
                    revived.settled(context.context_dir)
                    run.replicate()
                    outcome = run.control.poll() or kept.outcome
                return self._conclude(context, run, outcome)
            except Interrupted as stop:  # in the set-up command or in the verify command
                return self._conclude(context, run, stop.outcome)
            except StopHeard:  # in a wait of ours
                if run.control.outcome is None:
                    raise
                return self._conclude(context, run, run.control.outcome)

    def _conclude(self, context: TaskContextManager, run: TaskRun, outcome: Outcome) -> Outcome:
        """deliver → notify → close: leave every end as its kind wants, files first, the forge second, the row last."""
        run.control.settle()
        run.keep_copy(END_SECONDS)
        if outcome.end in WAITS:
            return self._wait(context, run, outcome)
        if outcome.end is End.STOPPED:
            outcome = replace(outcome, summary=f"{outcome.summary} {self._keep(context)}".strip())
        finish = standing(run, outcome)
        goes_back, outcome = finish is outcome, finish
        self.outcome = outcome
        report = None if outcome.end is End.STOPPED else run.delivery.deliver(outcome)
        if report is not None and report.changed:
            context.set_columns(branch=report.branch, url=report.pull.url if report.pull else None)
            if goes_back and send_back(run, outcome, report):
                self.outcome = None  # the model works on
                run.control.resume()
                return self._conclude(context, run, run.loop().run())
        ending = put_in_words(run, outcome, report, decide(outcome, report))
        if self.publishing:
            ending.keep(context)
            run.keep_copy()
        return self._close(context, run, ending)

    def _close(self, context: TaskContextManager, run: TaskRun, ending: Ending) -> Outcome:
        """Tell an end that is kept, and close the task by it."""
        tell_end(run, ending)
        run.label(LABELS[ending.status])
        run.tidy(ending.status)
        self._close_row(context, ending)
        return ending.outcome

    # --- an end by an error --------------------------------------------------------------------------------------

    def _dispose(self, context: TaskContextManager, error: Exception) -> Outcome:
        """Raise the error again when the row says what came of it; the outcome when it stopped the task."""
        outcome = self._carry_out(context, error)
        if outcome is None:
            raise error
        return outcome

    def _carry_out(self, context: TaskContextManager, error: Exception) -> Outcome | None:
        """Do what the table says of the error.  Raises it when nothing may be done."""
        todo = dispose(error, later.state_of(context, self.outcome))
        match todo.what:
            case "leave":
                raise error
            case "stop":
                return self._stop(context, todo)
            case "believe":
                return self._believe(context, error, todo)
            case "pause":
                self._pause(context, todo)
            case "requeue":
                status = later.give_back(context, self.wiring.ledger, todo, self.outcome, self.run)
                announce(self.wiring.events, context.uuid, status, context.attempt, todo.why)
            case "fail":
                said = {"message": "Task processing failed", "code": todo.code, "error": todo.why}
                log.get("handler").error("task_failed", exc_info=error, **said)
                self._fail(context, todo)
        return None

    def _stop(self, context: TaskContextManager, todo: Disposition) -> Outcome:
        """Somebody else has the issue and speaks there: nothing is said.  Or a person stopped the task and cannot be
        told now: it ends all the same, and the daemon tells it."""
        outcome = self.outcome or Outcome(End.STOPPED, code=todo.code, summary=todo.why)
        ending = Ending(Status.STOPPED, todo.code, outcome.summary, outcome)
        if not todo.silent:
            self._emit("effect_failed", context, effect="final", error=todo.why)
            ending = Ending.kept(context.context_dir) or ending
        self._close_row(context, ending, untold=self.publishing and not todo.silent)
        return outcome

    def _believe(self, context: TaskContextManager, error: Exception, todo: Disposition) -> Outcome:
        """The forge has the end of this task already; the row follows, and nothing is shown again."""
        assert isinstance(error, EndedBefore), "only this one is believed"
        status = Status(error.status)
        outcome = Outcome(ENDS[status], code="" if status is Status.COMPLETED else todo.code, summary=todo.why)
        self._close_row(context, Ending(status, outcome.code, todo.why, outcome))
        return outcome

    def _pause(self, context: TaskContextManager, todo: Disposition) -> None:
        """For the disk: by the row the daemon knows that the task is to go on when there is room (`room.py`).  The
        forge may lie on the same disk, and so may tasks.db: then the daemon gives the row back later."""

        def tell(run: TaskRun) -> None:
            run.label("paused")
            run.progress.edit("paused", note=for_the_disk(todo.why))

        try:
            self._rest(context, OUTCOME, tell, todo.why)
        except Fenced:
            raise
        except (DiskError, LedgerError):
            if self.run is not None:
                with suppress(MakimonoError):
                    tell(self.run)
            raise

    def _fail(self, context: TaskContextManager, todo: Disposition) -> None:
        """What the model had done is delivered as at any other end: as a draft, with the reason.  When that fails too,
        the first error stays the reason, and what was done waits to be published, or the last word says where it is."""
        code, message, before = todo.code, todo.why, self.outcome
        if before is None and self.run is not None and self._has_worked(context) and self.run.is_open:
            self.outcome = Outcome(End.FAILED, message, code=code)
            try:
                self._conclude(context, self.run, self.outcome)
            except Exception as second:  # noqa: BLE001 - whatever it is, the first error is what the task ends by
                self._carry_out(context, second)
            return
        if before is not None and before.end not in (*DONE, End.ASKED):
            code, message = before.code or str(before.end), f"{before.summary} It could not be published: {message}"
        if before is not None or self._has_worked(context):
            message = f"{message} {later.kept_where(context.context_dir)}".strip()
        self._close_failed(context, code, message)

    def _close_failed(self, context: TaskContextManager, code: str, message: str) -> None:
        """Tell the person and close as failed, or as the end says that is kept already; what cannot be told now, the
        daemon tells later (`closing.py`)."""
        outcome = Outcome(End.FAILED, code=code, summary=message)
        kept = Ending.kept(context.context_dir) or Ending.in_row(context.row)
        ending = kept or Ending(Status.FAILED, code, message, outcome)
        untold = self.publishing
        if self.run is not None and (kept is None or kept.final):  # else another host has the words
            try:
                if self.publishing and kept is None:
                    ending = put_in_words(self.run, outcome, None, Decision(Status.FAILED, code, message))
                    ending.keep(context)
                tell_end(self.run, ending)
                self.run.label(LABELS[ending.status])
                untold = False
            except MakimonoError as second:
                self._emit("effect_failed", context, effect="final", error=str(second))
        self._close_row(context, ending, untold=untold)

    # --- what is not over, and what is not told ------------------------------------------------------------------

    def _wait(self, context: TaskContextManager, run: TaskRun, outcome: Outcome) -> Outcome:
        """The task waits for the next daemon, or for a person."""
        if outcome.end is End.DRAINED:
            run.beat()
            try:
                run.progress.edit("drained")
            except MakimonoError as error:  # the row goes back all the same
                self._emit("effect_failed", context, effect="progress", error=str(error))
            status = self.wiring.ledger.release(context.uuid, context.attempt)
            announce(self.wiring.events, context.uuid, status, context.attempt, "drained")
        elif outcome.end is End.PAUSED:
            self._rest(context, "paused", lambda run: tell_pause(run, outcome))
        else:
            self.outcome = outcome  # a question that cannot be posted waits as a result does
            tell_pause(run, outcome)
            later.is_asked(run.effects)
            self._rest(context, "asked")
        return outcome

    def _rest(
        self,
        context: TaskContextManager,
        reason: str,
        tell: Callable[[TaskRun], None] | None = None,
        message: str = "",
    ) -> None:
        """The row first, and in it that this is to be told: for who dies before `tell` is done, or finds the forge
        away, the poller does it (`showing.py`).  A stop that was asked meanwhile ends the task; that is told too."""
        until = clock.now() + AGAIN if tell is not None and self.publishing else None
        status = context.paused(reason, message, tell_at=until)
        if self.run is not None:
            self.run.resting = True
        if status is Status.STOPPED:
            announce(self.wiring.events, context.uuid, status, context.attempt, "")
            return
        self._emit("task_paused", context, why=message or reason)
        if tell is None or self.run is None:
            return
        try:
            tell(self.run)
            if until is not None:
                self.wiring.ledger.told(context.uuid, until)
        except MakimonoError as error:
            self._emit("effect_failed", context, effect="progress", error=str(error))

    def _close_row(self, context: TaskContextManager, ending: Ending, *, untold: bool = False) -> None:
        self.failed = ending.status is Status.FAILED
        if self.run is not None:
            self.run.end_copy()
        if ending.status is Status.COMPLETED:
            context.complete(ending.outcome, untold=untold)
        elif ending.status is Status.STOPPED:
            context.stopped(ending.message, None if ending.code == "stopped" else ending.code, untold=untold)
        else:
            context.fail(ending.message, ending.code, untold=untold)
        status, end = str(ending.status), str(ending.outcome.end)
        self._emit("task_ended", context, status=status, end=end, code=ending.code)

    def _has_worked(self, context: TaskContextManager) -> bool:
        """Whether the model has done anything, in this attempt or an earlier one."""
        return context.get_tool_store().count_tool_calls() > 0

    def _keep(self, context: TaskContextManager) -> str:
        """Commit what a task has done that a person stopped, and publish nothing; where it is, in words."""
        kept = self._has_worked(context) and self.run is not None and self.run.is_open
        if kept and self.run is not None:
            with suppress(GitError, WorkError, DiskError):  # it lies in the work tree then
                kept = self.run.delivery.keep()
        return later.kept_where(context.context_dir) if kept else ""

    def _open(self, task: Task) -> TaskContextManager:
        """The task's files and row."""
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
        context.noticed = lambda what: self._emit("store_repaired", context, file=what)
        return context

    def _emit(self, name: str, context: TaskContextManager, **fields: object) -> None:
        self.wiring.events.emit(name, uuid=context.uuid, **fields)
