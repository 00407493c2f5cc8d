"""Handles one task from its issue to its end: prepare → loop → deliver → notify → close.

The handler of a task runs in the process that holds the task's lock and its claim. Each step saves to disk what a later
attempt needs before the next step begins. If the handler runs again from the start after a crash, it repeats no
outside effect that was completed. The module `error_disposition.py` decides what happens to the task after an error. A
`task_run.TaskRun` has the objects that all steps use; `Delivery` and `Conversation` exist only after the step that
makes them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent import deadline
from agent.errors import StopHeard
from agent.llm.base import Interrupted
from agent.values import End, Outcome, Status
from agent.work import work_tree_snapshot
from agent.worker import requeue, unopened_attempts, unpublished_work
from agent.worker.conversation import Conversation
from agent.worker.delivery import Delivery
from agent.worker.end_by_error import carry_out, disposition_of
from agent.worker.end_of_attempt import close_row, notify_and_close, pause_row, release_row
from agent.worker.final_state import FinalState
from agent.worker.fix_rounds import earlier_finish
from agent.worker.lease import Lease
from agent.worker.notify import compose, notify_paused
from agent.worker.outcome import decide, is_checked, with_review
from agent.worker.preparation import prepare
from agent.worker.replicator import END_SECONDS
from agent.worker.replies import ask_reviewers
from agent.worker.reviewer_condition_rounds import goes_back
from agent.worker.task_facts import record_delivery
from agent.worker.task_run import open_run

if TYPE_CHECKING:
    from agent.forge import Task
    from agent.wiring.wiring import Wiring
    from agent.worker.delivery_report import Report
    from agent.worker.task_run import TaskRun


class TaskHandler:
    """Handles one task. `attempt` is the number of the claimed attempt; `publishing` and `asked_here` have the same
    meaning as in `TaskRun`."""

    def __init__(
        self, wiring: Wiring, *, attempt: int | None = None, publishing: bool = True, asked_here: bool = False
    ) -> None:
        self.wiring = wiring
        self._open = partial(open_run, wiring, attempt=attempt, publishing=publishing, asked_here=asked_here)
        self.run: TaskRun | None = None
        self.delivery: Delivery | None = None
        self.conversation: Conversation | None = None
        self.outcome: Outcome | None = None  # the result of the model's work, once it is finished
        self.drain_wanted = False

    @property
    def failed(self) -> bool:
        """Whether the task has ended as failed."""
        return self.run is not None and self.run.ended is Status.FAILED

    def drain(self, *_: object) -> None:
        """Let the task end before the next turn and release its row; a signal handler may call this method at any
        time."""
        self.drain_wanted = True
        if self.run is not None:
            self.run.control.drain()

    def handle(self, task: Task) -> Outcome:
        """Work on the task until it ends, is paused, or its row is released.

        An error that ends the task is logged, reported on the issue, and raised again; an error after which the task is
        paused or tried again is raised too.
        """
        self.run = run = self._open(task)
        unopened_attempts.forget(run.context.context_dir)
        if self.drain_wanted:
            run.control.drain()
        try:
            with Lease(self.wiring.ledger, run.uuid, run.context.attempt, self.wiring.events):
                try:
                    return self._steps(run)
                except Exception as error:
                    outcome = self._after_error(run, error)  # `_after_error` decides how the task ends
                    if outcome is None:
                        raise
                    return outcome
        finally:
            run.replica.close()
            run.context.close()

    def _steps(self, run: TaskRun) -> Outcome:
        """Run prepare → loop → deliver → notify → close, from the step at which an earlier attempt stopped."""
        with run.held, deadline.listening(run.control.has_request):
            # An earlier attempt has stored the end of the task, so only posting and closing are left.
            if (ending := FinalState.load(run.context.context_dir)) is not None:
                self.outcome = ending.outcome
                return notify_and_close(run, ending)
            # Another host has stored the end, and only that host has all texts: the daemon posts the row's part of it.
            if (ending := FinalState.from_row(run.context.row)) is not None:
                close_row(run, ending, untold=run.publishing)
                return ending.outcome
            pending = unpublished_work.pending_publication(run.effects)
            self.outcome = pending.outcome if pending is not None else None
            try:
                outcome = self._work(run) if pending is None else self._take_up(run, pending.outcome)
                return self._conclude(run, outcome)
            except Interrupted as stop:  # a request or a limit ended the set-up command or the verify command
                return self._conclude(run, stop.outcome)
            except StopHeard:  # a request or a limit ended another wait of this program, such as for git
                if run.control.outcome is None:
                    raise
                return self._conclude(run, run.control.outcome)

    def _work(self, run: TaskRun) -> Outcome:
        """Prepare the task, then let the model work, from the briefing or from the step at which an earlier attempt
        stopped. A task that was started because of red checks, and has nothing left to do (`CiFailures.over`), ends at
        once with the reason as its answer."""
        conversation = self._prepare(run, set_up=True)
        if conversation.prepared.claimed.ci.over:
            return Outcome(End.ANSWERED, conversation.prepared.claimed.ci.over)
        if said := requeue.restart(run.context):
            run.emit("task_anew", turns=run.context.elsewhere.turns)
        run.reports.extend(said)
        conversation.begin()
        run.replica.start(conversation.workspace)
        run.disk_overuse.start()
        return run.disk_overuse.run_or_end(conversation.work)

    def _take_up(self, run: TaskRun, outcome: Outcome) -> Outcome:
        """Prepare to publish the outcome of an earlier attempt; returns the outcome, or the end that a person has
        requested meanwhile."""
        run.limits.stop_clock()  # the model's work is finished; only publishing is left
        conversation = self._prepare(run, set_up=is_checked(outcome))
        work_tree_snapshot.mark_restored(run.context.context_dir)
        run.replica.start(conversation.workspace)
        run.control.read_at_once(forge=True)  # earlier polls could not read the comments yet, so the forge is read now
        return run.control.poll() or outcome

    def _prepare(self, run: TaskRun, *, set_up: bool) -> Conversation:
        """Prepare the task: issue, sandbox, work tree, set-up and tools. Without `set_up` the set-up command is not
        run."""
        prepared = prepare(run)
        self.delivery = Delivery(run, prepared)
        if set_up:
            prepared.commands.set_up()
        self.conversation = Conversation(run, prepared, self.delivery)
        return self.conversation

    def _conclude(self, run: TaskRun, outcome: Outcome) -> Outcome:
        """Run deliver → notify → close: first the files change, then the forge, and the row last.

        If finished work is not ready for review, the task may stay open and send the work back to the model.
        """
        run.finish_work(outcome)
        run.reports.extend(run.disk_overuse.free_space())
        run.replica.save(END_SECONDS)
        if outcome.end in (End.DRAINED, End.PAUSED, End.ASKED):
            return self._wait(run, outcome)
        # `delivery` is None if the task had to end before its work tree was open; then there is nothing to deliver
        if outcome.end is End.STOPPED or self.delivery is None:
            why = (run.inbox.asked_by if outcome.end is End.STOPPED else "") or outcome.summary
            kept = unpublished_work.keep(run, self.delivery)
            return self._close(run, replace(outcome, summary=f"{why} {kept}".strip()), None)
        earlier = earlier_finish(run, outcome)
        self.outcome = outcome = earlier or outcome
        report = run.disk_overuse.retry_with_space(partial(self.delivery.deliver, outcome), run.reports)
        if report.changed:
            run.context.set_columns(branch=report.branch, url=report.pull.url if report.pull else None)
            if earlier is None and self.conversation is not None and goes_back(self.conversation, outcome, report):
                self.outcome = None  # the work was sent back to the model, so the run has no outcome yet
                run.resume_work()
                return self._conclude(run, run.disk_overuse.run_or_end(self.conversation.work))
        return self._close(run, outcome, report)

    def _close(self, run: TaskRun, outcome: Outcome, report: Report | None) -> Outcome:
        """Run notify → close: store the end with its texts, then post it, and close the task."""
        self.outcome = outcome = with_review(outcome, report)
        record_delivery(run, report)
        decision = decide(outcome, report)
        ending = compose(run, outcome, report, decision)
        ask_reviewers(run, ending.replies, report, decision)
        if run.publishing:
            ending.save(run.context)
            run.replica.save()
        return notify_and_close(run, ending)

    def _wait(self, run: TaskRun, outcome: Outcome) -> Outcome:
        """Leave the task open for a later attempt: the row is released or paused, or the task waits for an answer."""
        if outcome.end is End.DRAINED:
            release_row(run)
        elif outcome.end is End.PAUSED:
            pause_row(run, "paused", tell=lambda: notify_paused(run, outcome))
        else:
            # If the question cannot be posted, a later attempt posts it, as it would publish a result.
            self.outcome = outcome
            notify_paused(run, outcome)
            unpublished_work.mark_asked(run.effects)
            pause_row(run, "asked")
        return outcome

    def _after_error(self, run: TaskRun, error: Exception) -> Outcome | None:
        """Decide what an error does to the task, and carry the decision out.

        `_after_error` returns the outcome if the task is closed because a person or the forge demands it, None if the
        caller still has to raise the error.

        If the task has to fail, the work so far is delivered as a draft, with the reason for the failure.  If the
        delivery of the draft fails too, the first error remains the reason for the failure: the work waits for
        publication, or the final comment names its place.
        """
        todo = disposition_of(run, error, self.outcome)
        if todo.what != "fail" or self.outcome is not None or self.delivery is None or not run.has_worked():
            return carry_out(run, todo, error, self.outcome)
        self.outcome = Outcome(End.FAILED, todo.why, code=todo.code)
        try:
            self._conclude(run, self.outcome)
        except Exception as second:  # noqa: BLE001 - the first error remains the reason of the task's failure
            self._after_error(run, second)
        return None
