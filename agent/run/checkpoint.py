"""Between two turns: publish a finished step of the plan as a draft pull request, then edit the progress comment.

The loop calls it as a step of its own, after the results of an answer are recorded and the heartbeat has shown that the
row is still ours.  What it raises ends the run as any other step's error does; refusals of the forge and the repository
are events, and the end of the task tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agent.run import progress

if TYPE_CHECKING:
    from agent.run.delivery import Delivery


class Run(progress.Run, Protocol):
    """What is published of a run (`task_run.TaskRun`)."""

    delivery: Delivery
    progress: progress.Progress


class Checkpoint:
    """The checkpoints of one run, once its tools and its delivery are there."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps_done = 0

    def __call__(self) -> None:
        """Fenced when another attempt owns the task: then nothing more is pushed, opened or edited."""
        run = self.run
        done = [str(item["text"]) for item in run.tools.plan() if item["status"] == "done"]
        if len(done) > self.steps_done:
            self.steps_done = len(done)
            report = run.delivery.checkpoint(done[-1])
            if report.pull is not None:
                run.context.set_columns(branch=report.branch, url=report.pull.url)
        run.progress.show()
