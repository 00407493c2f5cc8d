"""Posts and edits the progress comment of a task, of which there is one: it is posted at the start, then edited in
place at most every EDIT_SECONDS; the first plan, the address of the draft, a long wait and the end are shown at once.

As a listener of the loop's events, `Progress` only records the events and edits nothing. The progress comment is edited
between two turns (`checkpoint_publisher.py`), and before a long wait for the model's server (`WaitEvents`). If the
forge refuses an edit by `update`, or does not answer, the run continues. If another attempt owns the task, the progress
comment is not edited, and Fenced is raised.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from agent import clock
from agent.errors import ForgeError
from agent.issue.claims import PROGRESS, home_of, with_claim_markers
from agent.issue.comments import post_once
from agent.values import End

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.context import EffectStore, TaskContextManager
    from agent.forge.base import Forge
    from agent.issue.publish_filter import PublishFilter
    from agent.observe.events import Events
    from agent.tools import Toolbox
    from agent.values import Public, TaskKey
    from agent.worker.inbox import CommentInbox

EDIT_SECONDS = 10.0
WAIT_SECONDS = 3.0
REASON = 300
ORDERED = (End.PAUSED, End.STOPPED)
"""Ends of a run that a person may request in a comment; the progress comment then names the person."""


class ShownRun(Protocol):
    """The attributes and methods of a run that the progress comment needs (`task_run.TaskRun`). `tools` is None until
    the tools are restored."""

    settings: Settings
    publishing: bool
    key: TaskKey
    uuid: str
    effects: EffectStore
    context: TaskContextManager
    events: Events
    tools: Toolbox | None

    def check_held(self) -> None:
        """Raise Fenced if another attempt owns the task."""
        ...

    @property
    def forge(self) -> Forge:
        """The forge of the task."""
        ...

    @property
    def inbox(self) -> CommentInbox:
        """The inbox with the comments of people on the task."""
        ...

    @property
    def publish_filter(self) -> PublishFilter:
        """The filter for texts that are published."""
        ...

    def facts(self) -> dict[str, Any]:
        """The values that the texts about the run show; they can be read at any stage."""
        ...

    def fit_comment(self, text: Public) -> Public:
        """The text, cut to the maximum length of a comment on the forge."""
        ...


class Progress:
    """The progress comment of one run.

    `start` posts the progress comment or finds the existing one; a call records an event, and `update` edits the
    comment.
    """

    def __init__(self, run: ShownRun) -> None:
        self.run = run
        self.comment: str | None = None
        self.edited_at = -EDIT_SECONDS
        self.last = ""
        self.text = ""
        self.shown: set[str] = set()
        self.waiting = False

    @cached_property
    def started_by(self) -> str | None:
        """The id of the comment (or event) that requested the task; None if there is none."""
        found: str | None = self.run.context.column("started_by")
        return found

    def start(self) -> None:
        """Post the progress comment, once per task; the daemon may have posted it already when it queued the task."""
        run, known = self.run, self.is_posted

        def words() -> Public:
            nonlocal known
            known = True
            text = self.compose("started")
            run.check_held()
            return text

        self.comment = post_once(run.forge, run.key, run.uuid, PROGRESS, words, run.effects, self._signed)
        if not known:
            self.edit("started")

    @property
    def is_posted(self) -> bool:
        """Whether the files of the task record that the progress comment was posted."""
        return self.run.effects.receipt(PROGRESS) is not None

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Record the newest action of the model, or a wait for its server, from an event of the loop."""
        if name == "tool_finished":
            self.last = f"{fields['tool']}: {fields['status']}"
        elif name == "model_wait":
            seconds = float(fields.get("seconds") or 0.0)
            self.last = f"waiting {seconds:.0f} s for the model's server: {str(fields.get('why', ''))[:REASON]}"
            self.waiting = True
        elif name == "answer_received":
            self.last, self.waiting = "" if self.waiting else self.last, False

    def update(self, *, now: bool = False) -> None:
        """Edit the progress comment if the last edit was at least EDIT_SECONDS ago, if it does not show the first plan
        or pull request yet, or if `now` is set.

        If the forge refuses the edit or does not answer, only an event is emitted. Raises Fenced.
        """
        if not (now or self._has_news()) and clock.monotonic() - self.edited_at < EDIT_SECONDS:
            return
        try:
            self.edit("working")
        except ForgeError as error:
            self.edited_at = clock.monotonic()
            self.run.events.emit("effect_failed", effect="progress", error=str(error))

    def _has_news(self) -> bool:
        """Whether the first plan, or the first address of a pull request, exists and the progress comment does not show
        it yet; afterwards it counts as shown."""
        run = self.run
        here = {
            "plan": bool(run.tools is not None and run.tools.plan()),
            "pull": bool(run.context.column("url")),
        }
        news = {name for name, is_there in here.items() if is_there} - self.shown
        self.shown |= news
        return bool(news)

    def edit(self, state: str, **values: Any) -> None:
        """Edit the progress comment so that it shows `state`, unless its text stays the same."""
        self.write(self.compose(state, **values))

    def write(self, words: Public, *, ends: bool = False) -> bool:
        """Set the text of the progress comment; returns whether the comment has this text now. In a replay, and if
        there is no comment (for example in a run that fails early), nothing is done, and the result is False. Raises
        ForgeError or Fenced. With `ends` the progress comment also gets the marker of a task's last comment."""
        if self.comment is None and (receipt := self.run.effects.receipt(PROGRESS)) is not None:
            self.comment = str(receipt["id"])
        if self.comment is None or not self.run.publishing:
            return False
        if words == self.text and not ends:
            return True
        self.run.check_held()
        self.edited_at = clock.monotonic()
        self.text = words
        self.run.forge.edit_comment(self.run.key, self.comment, self._signed(words, ends=ends))
        return True

    def _signed(self, words: Public, *, ends: bool = False) -> Public:
        return with_claim_markers(words, self.run.uuid, self.started_by, home_of(self.run.settings), ends=ends)

    def compose(self, state: str, **values: Any) -> Public:
        """The text of the progress comment for `state`, at any stage of the run."""
        run = self.run
        plan = run.tools.plan() if run.tools is not None else []
        if state in ORDERED and run.inbox.asked_by:
            values = {"note": run.inbox.asked_by, **values}
        return run.fit_comment(
            run.publish_filter.render(
                "progress",
                state=state,
                uuid=run.uuid,
                plan=plan,
                last=self.last,
                facts=run.facts(),
                **values,
            )
        )


class WaitEvents:
    """Passes on the events of the model client.

    Before a long wait, WaitEvents edits the progress comment, since the run is blocked until the wait ends.
    """

    def __init__(self, run: ShownRun, progress: Progress) -> None:
        self.run = run
        self.progress = progress

    def emit(self, name: str, /, **fields: Any) -> None:
        """Emit the event. If the event announces a wait for the model's server, update the progress comment as well: at
        once for a wait of at least WAIT_SECONDS, else only if an edit is due."""
        self.run.events.emit(name, **fields)
        if name == "model_wait":
            self.progress.update(now=float(fields.get("seconds") or 0.0) >= WAIT_SECONDS)
