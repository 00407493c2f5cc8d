"""What a person is told when a run pauses or ends: the progress comment's last words, and one comment more.

Every text passes the door (`publishable.py`) and is cut to what the forge takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from agent.errors import ForgeError
from agent.run.claims import FINAL
from agent.run.comments import post_once
from agent.run.ending import Ending
from agent.values import End, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.run.gate import Decision
    from agent.run.report import Report
    from agent.run.task_run import TaskRun
    from agent.values import Public


def tell_pause(run: TaskRun, outcome: Outcome) -> None:
    """Say on the issue that the task waits, and what the model asks if it does; then the label.  ForgeError."""
    if not run.publishing:
        return

    def words() -> Public:
        facts = run.facts()
        return run.say(
            run.door.render("final", outcome=outcome, report=None, decision=None, uuid=run.uuid, facts=facts)
        )

    _edit(run, run.progress.words(str(outcome.end)))
    if outcome.end is End.ASKED:  # who paused it knows
        # Of this folder: a task whose folder was lost asks anew, and what it asked before has been answered.
        folder = crc32(run.context.fence.encode())
        _post(run, f"question-{folder}-{run.context.get_tool_store().count_tool_calls()}", words)
    run.label("paused")


def put_in_words(run: TaskRun, outcome: Outcome, report: Report | None, decision: Decision) -> Ending:
    """The end with what people will read of it, however far the run came; secrets are masked."""
    failed = decision.status is Status.FAILED
    state = "failed" if failed and outcome.end is not End.LIMIT else str(outcome.end)
    facts = run.facts()
    final = run.door.render("final", outcome=outcome, report=report, decision=decision, uuid=run.uuid, facts=facts)
    said = Outcome(outcome.end, run.redact(outcome.summary), run.redact(outcome.title), outcome.code)
    message = run.redact(decision.message)
    return Ending(decision.status, decision.code, message, said, run.progress.words(state), run.say(final))


def tell_end(run: TaskRun, ending: Ending) -> None:
    """Post the comment of this end, once, and bring the progress comment up to date.  ForgeError."""
    if run.publishing:
        _edit(run, ending.progress)
        _post(run, FINAL, lambda: ending.final)


def _edit(run: TaskRun, words: Public) -> None:
    try:
        run.progress.write(words)
    except ForgeError as error:  # a person deleted it, say; the other comment tells the same
        run.events.emit("effect_failed", effect="progress", error=str(error))


def _post(run: TaskRun, name: str, words: Callable[[], Public]) -> None:
    run.hold()
    post_once(run.forge, run.key, run.uuid, name, words, run.effects)
    run.events.emit("effect_done", effect=name)
