"""The one progress comment of a task: posted at the start, edited in place, never more often than a person reads.

As a listener it only takes notes of the loop's events.  The comment is edited between two turns (`checkpoint.py`) and
before a long wait for the model's server (`Waiting`).  When the forge refuses an edit, the run goes on; when another
attempt owns the task, nothing is edited and Fenced is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.errors import ForgeError
from agent.run.claims import PROGRESS, home_of, signed
from agent.run.comments import post_once
from agent.values import End

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.context import EffectStore, TaskContextManager
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.run.hearing import Hearing
    from agent.run.publishable import Door
    from agent.tools import Toolbox
    from agent.values import Public, TaskKey

EDIT_SECONDS = 10.0
WAIT_SECONDS = 3.0
REASON = 300
ORDERED = (End.PAUSED, End.STOPPED)
"""States that a person may have ordered in a comment, who is named then."""


class Run(Protocol):
    """What is shown of a run (`task_run.TaskRun`).  `tools` is there once it has come so far."""

    settings: Settings
    publishing: bool
    key: TaskKey
    uuid: str
    forge: Forge
    effects: EffectStore
    context: TaskContextManager
    events: Events
    hearing: Hearing
    tools: Toolbox

    def hold(self) -> None:
        """Fenced when another attempt owns the task."""
        ...

    @property
    def door(self) -> Door:
        """What may be published."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the texts for people say about the run, however far it came."""
        ...

    def say(self, text: Public) -> Public:
        """At most what a comment may hold."""
        ...


class Progress:
    """Progress of one run.  `start` posts or finds the comment; a call notes an event, `show` edits the comment."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.comment: str | None = None
        self.edited_at = -EDIT_SECONDS
        self.last = ""
        self.text = ""
        self.waiting = False
        self.started_by: str | None = run.context.column("started_by")

    def start(self) -> None:
        """Post the comment, once per task; whoever queued it may have done so."""
        run, known = self.run, self.is_posted

        def words() -> Public:
            nonlocal known
            known = True
            run.hold()
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
        """Note what an event of the loop says of the last action."""
        if name == "tool_finished":
            self.last = f"{fields['tool']}: {fields['status']}"
        elif name == "model_wait":
            seconds = float(fields.get("seconds") or 0.0)
            self.last = f"waiting {seconds:.0f} s for the model's server: {str(fields.get('why', ''))[:REASON]}"
            self.waiting = True
        elif name == "answer_received":
            self.last, self.waiting = "" if self.waiting else self.last, False

    def show(self, *, now: bool = False) -> None:
        """Edit the comment when the last edit is old enough, or `now`.  A forge that refuses is an event.  Fenced."""
        if not now and clock.monotonic() - self.edited_at < EDIT_SECONDS:
            return
        try:
            self.edit("working")
        except ForgeError as error:
            self.edited_at = clock.monotonic()
            self.run.events.emit("effect_failed", effect="progress", error=str(error))

    def edit(self, state: str, **values: Any) -> None:
        """Write the comment anew if it says something else than before."""
        self.write(self.words(state, **values))

    def write(self, words: Public) -> None:
        """Make these the comment's words; without a comment, which a run that fails early has not, nothing is done."""
        if self.comment is None and (receipt := self.run.effects.receipt(PROGRESS)) is not None:
            self.comment = str(receipt["id"])
        if self.comment is None or words == self.text or not self.run.publishing:
            return
        self.run.hold()
        self.edited_at = clock.monotonic()
        self.text = words
        self.run.forge.edit_comment(self.run.key, self.comment, self._signed(words))

    def _signed(self, words: Public) -> Public:
        return signed(words, self.run.uuid, self.started_by, home_of(self.run.settings))

    def words(self, state: str, **values: Any) -> Public:
        """What the comment says in this state, however far the run came."""
        run = self.run
        plan = run.tools.plan() if hasattr(run, "tools") else []
        if state in ORDERED and run.hearing.asked_by:
            values = {"note": run.hearing.asked_by, **values}
        return run.say(
            run.door.render(
                "progress",
                state=state,
                uuid=run.uuid,
                plan=plan,
                last=self.last,
                facts=run.facts(),
                **values,
            )
        )


class Waiting:
    """The events of the model's client.  Shows a wait on the issue before it begins, since the run does nothing else
    until it ends."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run = run
        self.progress = progress

    def emit(self, name: str, /, **fields: Any) -> None:
        """Announce; then edit the comment if that was a long wait."""
        self.run.events.emit(name, **fields)
        if name == "model_wait":
            self.progress.show(now=float(fields.get("seconds") or 0.0) >= WAIT_SECONDS)
