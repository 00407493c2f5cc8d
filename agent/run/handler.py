"""One task from its issue to its end: prepare → loop → deliver → tell → close.

Called by `run/worker.py` in the task's own process, which holds the lock and the claim, and by `solve`.  Each step
leaves its truth on disk before the next begins; run again from the top after a crash it repeats nothing that has
happened outside (design: section 2; seed 002: sections 5.1, 6 and 11.1).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import clock
from agent.context import TaskContextManager
from agent.errors import DiskError, Fenced, LedgerError, MakimonoError, TakenElsewhere
from agent.llm.base import Interrupted
from agent.observe import log
from agent.run import later
from agent.run.closing import LABELS
from agent.run.ending import Ending
from agent.run.gate import Decision, decide
from agent.run.lease import Lease
from agent.run.room import OUTCOME
from agent.run.showing import AGAIN, announce, for_the_disk
from agent.run.task_run import TaskRun
from agent.run.telling import put_in_words, tell_end, tell_pause
from agent.values import End, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge import Task
    from agent.run.wiring import Wiring


class TaskHandler:
    """Handles one task.  `attempt` is the fence of the claim; `publishing` False keeps everything inside (replay)."""

    def __init__(self, wiring: Wiring, *, attempt: int | None = None, publishing: bool = True) -> None:
        self.wiring = wiring
        self.attempt = attempt
        self.publishing = publishing
        self.run: TaskRun | None = None
        self.outcome: Outcome | None = None  # what the model came to, once only publishing is left
        self.drain_wanted = False
        self.failed = False

    def drain(self, *_: object) -> None:
        """End at the next turn and give the row back; may be called from a signal handler at any time."""
        self.drain_wanted = True
        if self.run is not None:
            self.run.control.drain()

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
        context.noticed = lambda what: self._emit("store_repaired", context, file=what)
        try:
            with Lease(self.wiring.ledger, context.uuid, context.attempt, self.wiring.events):
                return self._handle(context)
        except TakenElsewhere as error:
            return self._taken(context, error)
        except Fenced:
            raise  # a newer attempt owns everything, the row included
        except LedgerError:
            raise  # the rows cannot be reached: nothing is said, and the sweep puts the task back
        except DiskError as error:
            if later.is_over(context):
                raise  # the row stays what it is, and is given back (`worker.give_up`)
            self._pause(context, error)
            raise
        except later.OUTSIDE as error:
            if self.outcome is not None and self.outcome.end is End.STOPPED:
                return self._stopped_untold(context, error, self.outcome)
            if later.may_wait(context, error, self.outcome):  # all that was done is on disk
                status = later.give_back(context, self.wiring.ledger, error, self.outcome, self.run)
                announce(self.wiring.events, context.uuid, status, context.attempt, str(error))
            else:
                self._fail_with(context, error)
            raise
        except Exception as error:
            # Worker top: whatever it is, the person who asked is told and the row says so (seed 002, 11.1).
            self._fail_with(context, error)
            raise
        finally:
            context.close()

    def _fail_with(self, context: TaskContextManager, error: Exception) -> None:
        code = error.code if isinstance(error, MakimonoError) else "bug"
        message = str(error) or type(error).__name__
        log.get("handler").exception("task_failed", message="Task processing failed", code=code, error=message)
        if self.outcome is not None:
            message = f"{message} {later.kept_where(context.context_dir)}".strip()
        self._fail(context, code, message)

    def _taken(self, context: TaskContextManager, error: TakenElsewhere) -> Outcome:
        """Somebody else has the issue, and speaks there: the row is closed and nothing is said."""
        outcome = Outcome(End.STOPPED, code=error.code, summary=str(error))
        self._close_row(context, Ending(Status.STOPPED, error.code, str(error), outcome))
        return outcome

    def _pause(self, context: TaskContextManager, error: DiskError) -> None:
        """For the disk: by the row the daemon knows that the task is to go on when there is room (`room.py`).  The
        forge may lie on the same disk, and so may tasks.db: then the daemon gives the row back later."""

        def tell(run: TaskRun) -> None:
            run.label("paused")
            run.progress.edit("paused", note=for_the_disk(str(error)))

        try:
            self._rest(context, OUTCOME, tell, str(error))
        except Fenced:
            raise
        except (DiskError, LedgerError):
            if self.run is not None:
                with suppress(MakimonoError):
                    tell(self.run)
            raise

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

    def _handle(self, context: TaskContextManager) -> Outcome:
        self.run = run = TaskRun(self.wiring, context, publishing=self.publishing)
        if self.drain_wanted:
            run.control.drain()
        with run.held:
            if (ending := Ending.kept(context.context_dir)) is not None:  # all is decided, and perhaps told
                self.outcome = ending.outcome
                return self._close(context, run, ending)
            if (ending := Ending.in_row(context.row)) is not None:  # decided on another host, which has the words
                self._close_row(context, ending, untold=self.publishing)
                return ending.outcome
            try:
                kept = later.unpublished(run.effects)
                self.outcome = kept.outcome if kept else None
                run.prepare()
                if kept is None:
                    run.reports.extend(later.begin_anew(context))
                    run.brief()
                    outcome = self._conclude(context, run, run.loop().run())
                else:  # the model has done its part
                    run.take_up()
                    outcome = self._conclude(context, run, run.control.poll() or kept.outcome)
            except Interrupted as stop:  # in the set-up command or in the verify command
                outcome = self._conclude(context, run, stop.outcome)
        return outcome

    def _conclude(self, context: TaskContextManager, run: TaskRun, outcome: Outcome) -> Outcome:
        """Leave every end as its kind wants: files first, the forge second, the row last."""
        if outcome.end is End.DRAINED:
            run.beat()
            self._show_drained(context, run)
            status = self.wiring.ledger.release(context.uuid, context.attempt)
            announce(self.wiring.events, context.uuid, status, context.attempt, "drained")
            return outcome
        if outcome.end is End.PAUSED:
            self._rest(context, "paused", lambda run: tell_pause(run, outcome))
            return outcome
        if outcome.end is End.ASKED:
            self.outcome = outcome  # a question that cannot be posted waits as a result does
            tell_pause(run, outcome)
            later.is_asked(run.effects)
            self._rest(context, "asked")
            return outcome
        if outcome.end is End.STOPPED and later.unpublished(run.effects) is not None:
            outcome = replace(outcome, summary=f"{outcome.summary} {later.kept_where(context.context_dir)}".strip())
        self.outcome = outcome
        report = None if outcome.end is End.STOPPED else run.delivery.deliver(outcome)
        if report is not None and report.changed:
            context.set_columns(branch=report.branch, url=report.pull.url if report.pull else None)
        ending = put_in_words(run, outcome, report, decide(outcome, report))
        if self.publishing:
            ending.keep(context)
        return self._close(context, run, ending)

    def _close(self, context: TaskContextManager, run: TaskRun, ending: Ending) -> Outcome:
        """Tell an end that is kept, and close the task by it."""
        tell_end(run, ending)
        run.label(LABELS[ending.status])
        self._close_row(context, ending)
        return ending.outcome

    def _stopped_untold(self, context: TaskContextManager, error: MakimonoError, outcome: Outcome) -> Outcome:
        """Somebody stopped the task and cannot be told now: it ends all the same, and the daemon tells it."""
        self._emit("effect_failed", context, effect="final", error=str(error))
        kept = Ending.kept(context.context_dir)
        ending = kept or Ending(Status.STOPPED, "stopped", outcome.summary, outcome)
        self._close_row(context, ending, untold=self.publishing)
        return outcome

    def _close_row(self, context: TaskContextManager, ending: Ending, *, untold: bool = False) -> None:
        self.failed = ending.status is Status.FAILED
        if ending.status is Status.COMPLETED:
            context.complete(ending.outcome, untold=untold)
        elif ending.status is Status.STOPPED:
            context.stopped(ending.message, None if ending.code == "stopped" else ending.code, untold=untold)
        else:
            context.fail(ending.message, ending.code, untold=untold)
        status, end = str(ending.status), str(ending.outcome.end)
        self._emit("task_ended", context, status=status, end=end, code=ending.code)

    def _show_drained(self, context: TaskContextManager, run: TaskRun) -> None:
        try:
            run.progress.edit("drained")
        except MakimonoError as error:  # the row goes back all the same
            self._emit("effect_failed", context, effect="progress", error=str(error))

    def _fail(self, context: TaskContextManager, code: str, message: str) -> None:
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

    def _emit(self, name: str, context: TaskContextManager, **fields: object) -> None:
        self.wiring.events.emit(name, uuid=context.uuid, **fields)
