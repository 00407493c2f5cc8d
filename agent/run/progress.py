"""The one progress comment of a task: posted at the start, edited in place, never more often than a person reads.

It listens to the loop's events; when it fails, the run goes on (`observe/events.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.prompts import render
from agent.run.claims import PROGRESS, signed
from agent.run.comments import post_once
from agent.values import End

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.context import EffectStore, TaskContextManager
    from agent.forge.base import Forge
    from agent.run.delivery import Delivery
    from agent.run.hearing import Hearing
    from agent.tools import Toolbox
    from agent.values import TaskKey

EDIT_SECONDS = 10.0
WAIT_SECONDS = 3.0
REASON = 300
CHECKPOINT_TOOL = "update_plan"
ORDERED = (End.PAUSED, End.STOPPED)
"""States that a person may have ordered in a comment, who is named then."""


class Run(Protocol):
    """What is shown of a run (`task_run.TaskRun`).  `tools` and `delivery` are there once it has come so far."""

    publishing: bool
    key: TaskKey
    uuid: str
    forge: Forge
    effects: EffectStore
    context: TaskContextManager
    hearing: Hearing
    tools: Toolbox
    delivery: Delivery

    def facts(self) -> dict[str, Any]:
        """What the texts for people say about the run, however far it came."""
        ...

    def say(self, text: str) -> str:
        """The text as the forge may have it."""
        ...


class Progress:
    """Progress of one run.  `start` posts or finds the comment, calling it hears an event, `close` writes the end."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.comment: str | None = None
        self.edited_at = -EDIT_SECONDS
        self.steps_done = 0
        self.last = ""
        self.text = ""
        self.waiting = False
        self.started_by: str | None = run.context.column("started_by")

    def start(self) -> None:
        """Post the comment, once per task; whoever queued it may have done so."""
        run, known = self.run, self.is_posted

        def words() -> str:
            nonlocal known
            known = True
            return self.words("started")

        self.comment = post_once(run.forge, run.key, run.uuid, PROGRESS, words, run.effects, self._signed)
        if not known:
            self.edit("started")
            self.edited_at = -EDIT_SECONDS  # the first turn is shown at once

    @property
    def is_posted(self) -> bool:
        """Whether an earlier attempt has seen the comment."""
        return self.run.effects.receipt(PROGRESS) is not None

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
        self.write(self.words(state, **values))

    def write(self, words: str) -> None:
        """Make these the comment's words; without a comment, which a run that fails early has not, nothing is done."""
        if self.comment is None and (receipt := self.run.effects.receipt(PROGRESS)) is not None:
            self.comment = str(receipt["id"])
        if self.comment is None or words == self.text or not self.run.publishing:
            return
        self.edited_at = clock.monotonic()
        self.text = words
        self.run.forge.edit_comment(self.run.key, self.comment, self._signed(words))

    def _signed(self, words: str) -> str:
        return signed(words, self.run.uuid, self.started_by)

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

    def words(self, state: str, **values: Any) -> str:
        """What the comment says in this state, however far the run came."""
        run = self.run
        plan = run.tools.plan() if hasattr(run, "tools") else []
        if state in ORDERED and run.hearing.asked_by:
            values = {"note": run.hearing.asked_by, **values}
        return run.say(
            render("progress", state=state, uuid=run.uuid, plan=plan, last=self.last, facts=run.facts(), **values)
        )
