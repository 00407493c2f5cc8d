"""Publishes a finished step of the model's plan as a draft pull request after a turn, and updates the progress comment
and the replica.

The loop calls `Checkpoint` after the results of an answer's tool calls are recorded, and after the heartbeat has
confirmed that this attempt still owns the row. If a commit, a push or a request to the forge fails in a checkpoint
(`Delivery.checkpoint`), an event is emitted and the run continues; the delivery at the end of the task tries again. Any
other error that a call of `Checkpoint` raises ends the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.worker.delivery import Delivery
    from agent.worker.task_run import TaskRun


class Checkpoint:
    """Publishes the finished steps of the plan during one run; the loop calls the object after each turn."""

    def __init__(self, run: TaskRun, delivery: Delivery) -> None:
        self.run = run
        self.delivery = delivery
        self.steps_done = 0

    def __call__(self) -> None:
        """If more steps of the plan are done than at the last call in this run, publish the work, with the last done
        step as the title of the commit. Whether or not there was work to publish, update the progress comment and
        the replica.

        Raises Fenced if another attempt owns the task; then nothing is pushed or edited.
        """
        run = self.run
        plan = run.tools.plan() if run.tools is not None else []
        done = [str(item["text"]) for item in plan if item["status"] == "done"]
        if len(done) > self.steps_done:
            self.steps_done = len(done)
            report = self.delivery.checkpoint(done[-1])
            if report.pull is not None:
                run.context.set_columns(branch=report.branch, url=report.pull.url)
        run.progress.update()
        run.replica.save()
