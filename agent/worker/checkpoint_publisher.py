"""Publishes a finished step of the plan as a draft pull request between two turns, and updates the progress comment and
the replica.

The loop calls `Checkpoint` after the results of an answer's tool calls are recorded, and after the heartbeat has
confirmed that this attempt still owns the row. Any error in a checkpoint other than a refusal of the forge or the
repository ends the run, as in any other step. If the forge or the repository refuses a request of a checkpoint, an
event is emitted, and the report at the end of the task mentions the refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.worker.delivery import Delivery
    from agent.worker.session import TaskRun


class Checkpoint:
    """Publishes the steps of one run; the loop calls the object after each turn."""

    def __init__(self, run: TaskRun, delivery: Delivery) -> None:
        self.run = run
        self.delivery = delivery
        self.steps_done = 0

    def __call__(self) -> None:
        """Publish a step of the plan that is newly done, and update the progress comment and the replica.

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
