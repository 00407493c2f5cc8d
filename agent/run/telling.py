"""What a person is told at the end: the progress comment's last words, and one final comment per run.

Every text passes the redactor, loses anything that looks like a marker, and is cut to what the forge takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import ForgeError
from agent.forge.marks import marked, marker
from agent.prompts import render
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
    mark = marker(run.uuid, name)

    def look_up() -> dict[str, Any] | None:
        found = run.forge.find_comment(run.key, mark)
        return None if found is None else {"id": found}

    def post() -> dict[str, Any]:
        body = render("final", outcome=outcome, report=report, failed=failed, uuid=run.uuid, facts=run.facts())
        return {"id": run.forge.post_comment(run.key, marked(run.say(body), mark))}

    run.effects.once(name, look_up, post)
    run.events.emit("effect_done", effect=name)
