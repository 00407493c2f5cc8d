"""The one progress comment of a task: posted at the start, edited in place, never more often than a person reads.

It listens to the loop's events; when it fails, the run goes on (`observe/events.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent import clock
from agent.forge.marks import marked, marker
from agent.prompts import render
from agent.run.comments import post_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.run.task_run import TaskRun

EDIT_SECONDS = 10.0
WAIT_SECONDS = 3.0
REASON = 300
CHECKPOINT_TOOL = "update_plan"


class Progress:
    """Progress of one run.  `start` posts or finds the comment, calling it hears an event, `close` writes the end."""

    def __init__(self, run: TaskRun) -> None:
        self.run = run
        self.comment: str | None = None
        self.edited_at = -EDIT_SECONDS
        self.steps_done = 0
        self.last = ""
        self.text = ""
        self.waiting = False

    def start(self) -> None:
        """Post the comment, once per task."""
        run = self.run
        self.comment = post_once(run.forge, run.key, run.uuid, "progress", lambda: self._body("started"), run.effects)

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Hear an event of the loop; edit when something is new and the last edit is old enough."""
        if name == "tool_finished":
            self.last = f"{fields['tool']}: {fields['status']}"
            if fields["tool"] == CHECKPOINT_TOOL:
                self._checkpoint()
        elif name == "model_wait":
            self._wait(fields)
        elif name == "answer_received":
            self.last, self.waiting = "" if self.waiting else self.last, False
        elif name != "turn_started":
            return
        if clock.monotonic() - self.edited_at >= EDIT_SECONDS:
            self.edit("working")

    def _wait(self, fields: Mapping[str, Any]) -> None:
        """A wait is shown at once when it is long: nothing else happens before its end."""
        seconds = float(fields.get("seconds") or 0.0)
        self.last = f"waiting {seconds:.0f} s for the model's server: {str(fields.get('why', ''))[:REASON]}"
        self.waiting = True
        if seconds >= WAIT_SECONDS:
            self.edit("working")

    def edit(self, state: str, **values: Any) -> None:
        """Write the comment anew if it says something else than before."""
        body = self._body(state, **values)
        if self.comment is None or body == self.text or not self.run.publishing:
            return
        self.edited_at = clock.monotonic()
        self.text = body
        self.run.forge.edit_comment(self.run.key, self.comment, marked(body, marker(self.run.uuid, "progress")))

    def _checkpoint(self) -> None:
        """A step of the plan is done: show what there is, as a draft."""
        plan = self.run.tools.plan()
        done = sum(1 for item in plan if item["status"] == "done")
        if done > self.steps_done:
            self.steps_done = done
            newest = [item["text"] for item in plan if item["status"] == "done"][-1]
            report = self.run.delivery.checkpoint(newest)
            if report.pull is not None:
                self.run.context.set_columns(branch=report.branch, url=report.pull.url)

    def _body(self, state: str, **values: Any) -> str:
        run = self.run
        plan = run.tools.plan() if hasattr(run, "tools") else []
        return run.say(
            render("progress", state=state, uuid=run.uuid, plan=plan, last=self.last, facts=run.facts(), **values)
        )
