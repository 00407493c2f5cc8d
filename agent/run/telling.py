"""What a person is told at the end: the progress comment's last words, and one final comment per run.

Every text passes the redactor, loses anything that looks like a marker, and is cut to what the forge takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ForgeError
from agent.prompts import render
from agent.run.comments import post_once
from agent.values import End

if TYPE_CHECKING:
    from agent.run.delivery import Report
    from agent.run.task_run import TaskRun
    from agent.values import Outcome


def tell(run: TaskRun, outcome: Outcome, report: Report | None, *, failed: bool = False) -> None:
    """Post the comment of this end, once, and bring the progress comment up to date.

    `failed`: whatever the model says, the task ends as failed (a check is red, nothing could be pushed).
    """
    if not run.publishing:
        return
    try:
        run.progress.edit("failed" if failed and outcome.end is not End.LIMIT else str(outcome.end))
    except ForgeError as error:  # a person deleted it, say; the final comment tells the same
        run.events.emit("effect_failed", effect="progress", error=str(error))
    if outcome.end is End.PAUSED:
        return  # a person paused it and knows; the run is not over
    questions = run.context.get_tool_store().count_tool_calls()
    name = f"question-{questions}" if outcome.end is End.ASKED else "final"

    def body() -> str:
        return run.say(render("final", outcome=outcome, report=report, failed=failed, uuid=run.uuid, facts=run.facts()))

    post_once(run.forge, run.key, run.uuid, name, body, run.effects)
    run.events.emit("effect_done", effect=name)
