"""Polls the forges: puts waiting issues into the ledger, and processes comments on tasks on which no worker works.

The daemon's poller thread has one `Poller`, which polls each forge at its own interval (`interval.py`); the function
`fetch_and_enqueue_tasks` polls every forge once (docs/design/context.md, 4.6).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, ForgeLimited, ForgeUnreachable, IssueUnreadable
from agent.forge.base import ForgeReports
from agent.forge.refused_changes import RefusedChanges
from agent.forge.task_getter import NOT_SHOWN
from agent.intake.backlog import Backlog
from agent.intake.comment_poller import CommentPoller
from agent.intake.enqueue import Intake, enqueue_task, priority_of, will_start
from agent.intake.interval import PollingInterval
from agent.intake.orphaned_issues import AWAY_SECONDS, OTHERS_SECONDS, enqueue_orphans
from agent.intake.orphaned_issues import SECONDS as LEFT_SECONDS
from agent.observe.error_tolerant_loop import WHOLE, ItemLoop
from agent.taskqueue.row_holder import is_alone
from agent.values import Status
from agent.worker.earlier_task import parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from threading import Event

    from agent.config import Settings
    from agent.forge import Task
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue.ledger import Ledger


AT_ONCE = 20
"""The maximum number of new tasks that one poll of a forge puts into the ledger before it handles the comments on
waiting tasks.

The program makes pauses between label changes (`forge/rate_limiter.py`), so it takes hours to queue thousands of tasks.
"""


@dataclass(slots=True)
class OrphanCheck:
    """`at` is the time (of the monotonic clock) of the next comparison of a forge's issues with the ledger, to find
    lost rows; `surely` is True when the ledger is known to be lost."""

    at: float = field(default_factory=clock.monotonic)
    surely: bool = False


@dataclass(slots=True)
class PolledForge:
    """One forge and its state between two polls.

    `backlog`: tasks that a poll has found and that are not in the ledger yet. The issues of the forge are listed again
    at the time `list_at`, so that a new issue does not wait until the whole backlog is in the ledger.
    """

    forge: Forge
    interval: PollingInterval
    comment_poller: CommentPoller
    items: ItemLoop
    backlog: Backlog
    list_at: float = 0.0
    problems: set[str] = field(default_factory=set)  # problems of the last poll, so that each problem is reported once
    left: OrphanCheck = field(default_factory=OrphanCheck)
    labels_checked: bool = False

    def show_seen(self, task: Task) -> None:
        """Add a reaction to the task's issue that shows that the program has read the request for work."""
        self.comment_poller.seen.show(task.get_task_key())


class Poller:
    """Polls every forge.  An error of one forge does not stop the polls of the others; the error is announced as an
    event.

    `unasked`: the forges that did not answer at the last poll, or of which a part did not answer.  `lost`: a threading
    event that is set when rows of the ledger are known to be lost; then the issues are compared with the ledger once
    (`orphaned_issues.py`).  `compares`: the issues are also compared with the ledger a few times a day.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        forges: Iterable[Forge],
        events: Events,
        *,
        lost: Event | None = None,
        compares: bool = False,
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.events = events
        self.unasked: list[str] = []
        self.away: set[str] = set()  # the forges of which the last poll failed
        self.lost = lost
        self.compares = compares
        self.places = [self._polled_forge(forge) for forge in forges]
        # the time (of the monotonic clock) at which the poller last began to put a found task into the ledger
        self.moved_at = clock.monotonic()
        self.items = ItemLoop(
            self._report_failed_poll, whole=tuple(one for one in WHOLE if one is not ForgeUnreachable)
        )

    def _polled_forge(self, forge: Forge) -> PolledForge:
        attention = CommentPoller(self.settings, self.ledger, forge, self.events)
        items = ItemLoop(partial(report_skipped, self.events, forge))
        return PolledForge(
            forge, PollingInterval.for_forge(self.settings, forge), attention, items, Backlog(self._priority)
        )

    def _priority(self, task: Task) -> int:
        return priority_of(self.settings, task.labels)

    def _report_failed_poll(self, place: str, why: str) -> None:
        source, _, instance = place.partition(" ")
        self.unasked.append(place)
        self.away.add(place)
        self.events.emit("poll_failed", source=source, instance=instance, error=why)

    def poll(self, *, everything: bool = False) -> list[str]:
        """Poll the forges that are due (all forges with `everything`); returns the uuids of the tasks that are new in
        the ledger."""
        new: list[str] = []
        self.unasked = []
        if self.lost is not None and self.lost.is_set():
            self.lost.clear()
            wait = 0.0 if is_alone(self.settings) else OTHERS_SECONDS
            for place in self.places:
                place.left.surely, place.left.at = True, clock.monotonic() + wait
                place.interval.poll_again()
        for place in self.places:
            if everything or place.interval.is_due():
                with self.items.handling(f"{place.forge.source} {place.forge.instance}"):
                    place.interval.begun()  # after an error the next poll must not be due at once
                    self._poll_forge(place, None if everything else AT_ONCE, new)
        self.items.finish()
        return new

    def last_progress(self) -> float:
        """The time (of the monotonic clock) at which a forge last answered, or at which the poller last began to put a
        found task into the ledger."""
        answers = (ForgeReports(place.forge).answered_at() for place in self.places)
        return max(self.moved_at, *(when for when in answers if when is not None), 0.0)

    def unasks_all(self) -> bool:
        """Whether the last poll of every forge failed."""
        return bool(self.places) and len(self.away) == len(self.places)

    def poke(self) -> None:
        """Make the next poll of every forge due, with a new list of its issues."""
        for place in self.places:
            place.interval.poke()
            place.list_at = 0.0

    def seconds_to_next_poll(self) -> float:
        """Seconds until the next poll of a forge is due."""
        due = min((place.interval.due_at for place in self.places), default=clock.monotonic() + 1.0)
        return max(0.0, due - clock.monotonic())

    def _poll_forge(self, place: PolledForge, most: int | None, new: list[str]) -> None:
        """Poll one forge, and queue at most `most` tasks from its backlog (all if `most` is None); the uuids of tasks
        that are new in the ledger are added to `new`."""
        forge = place.forge
        name = f"{forge.source} {forge.instance}"
        before = len(new)
        failed: ForgeUnreachable | None = None
        place.items.begin_anew()
        try:
            if not place.backlog or clock.monotonic() >= place.list_at:
                getter = forge.task_getter()
                place.backlog.replace(getter.get_task_list())
                place.list_at = clock.monotonic() + place.interval.shortest
                failed = getattr(getter, "failed", None)
                self._report_problems(place, [str(problem) for problem in getter.problems])
            found = len(place.backlog)
            shown = self._next_tasks(place, AT_ONCE if most is None else most)
            # to enqueue a task takes more than a second, so all requests are read and marked as seen before the first
            # one
            place.comment_poller.read()
            while shown:
                for task, seen in shown:
                    self.moved_at = clock.monotonic()
                    with _handling(place, task):
                        uuid = enqueue(self.settings, self.ledger, task, self.events, seen)
                        new += [uuid] if uuid is not None else []
                shown = self._next_tasks(place, AT_ONCE if most is None else most - (len(new) - before))
            self._compare(place, new)
            try:
                stirred = place.comment_poller.handle(new)
            finally:
                place.items.finish()
        except ForgeError as error:
            self._report_failed_poll(name, str(error))
            wait = error.retry_after if isinstance(error, ForgeLimited) else None
            place.interval.polled(happened=len(new) > before, pause=wait or 0.0)
        else:
            self.away.discard(name)
            if failed is None:
                self.events.emit("poll_finished", source=forge.source, instance=forge.instance, found=found)
            else:  # a part of the forge did not answer, and the other parts were polled
                self.unasked.append(name)
                self.events.emit("poll_failed", source=forge.source, instance=forge.instance, error=str(failed))
            self._check_labels(place)
            place.interval.polled(happened=stirred or found > 0, pause=forge.poll_pause)
            if place.backlog:
                place.interval.poll_again()

    def _next_tasks(self, place: PolledForge, most: int) -> list[tuple[Task, Callable[[], None]]]:
        """The next tasks of the backlog, at most `most`, each with the function that shows on its issue that the
        request was seen.

        All requests that will probably start a task are marked as seen before the first of the tasks is queued: to
        queue a task takes more than a second, and a person should not wait for the tasks of others."""
        found: list[tuple[Task, Callable[[], None]]] = []
        while place.backlog and len(found) < most:
            task = place.backlog.pop()
            with _handling(place, task):
                seen: Callable[[], None] = partial(place.show_seen, task)
                intake = place.comment_poller.intake
                if task.forge is not None and will_start(intake, task.get_task_key(), task.started_by):
                    task.confirm()
                    seen()
                    seen = do_nothing
                found.append((task, seen))
        return found

    def _check_labels(self, place: PolledForge) -> None:
        """Report misspelt labels of the configuration once, after the first poll of the forge that succeeds."""
        if place.labels_checked:
            return
        forge = place.forge
        try:
            problems = list(ForgeReports(forge).label_problems())
        except (ForgeUnreachable, ForgeLimited):
            return  # the forge did not answer: the program reads its labels again after the next poll
        except ForgeError as error:
            problems = [f"the labels cannot be read: {error}"]
        place.labels_checked = True
        for problem in problems:
            self.events.emit("label_unknown", source=forge.source, instance=forge.instance, why=problem)

    def _compare(self, place: PolledForge, new: list[str]) -> None:
        """Compare the issues of a forge with the ledger, if the comparison is due, and queue the issues of which the
        tasks have lost their rows."""
        due = place.left.surely or self.compares
        if not due or clock.monotonic() < place.left.at:
            return
        waiting: list[tuple[str, str]] = []
        new += enqueue_orphans(
            self.settings,
            self.ledger,
            place.forge,
            self.events,
            place.items,
            surely=place.left.surely,
            waits=lambda key, why: waiting.append((key, why)),
        )
        place.left.surely = place.left.surely and bool(waiting)
        place.left.at = clock.monotonic() + (AWAY_SECONDS if waiting else LEFT_SECONDS)

    def _report_problems(self, place: PolledForge, problems: list[str]) -> None:
        """Report the problems of this poll that the previous poll did not report."""
        for problem in dict.fromkeys(problems):
            if problem not in place.problems:
                report_skipped(self.events, place.forge, "", problem)
        place.problems.clear()
        place.problems.update(problems)


def report_skipped(events: Events, forge: Forge, item: str, why: str) -> None:
    """Report an issue that cannot become a task."""
    said = why if not item or item in why else f"{item}: {why}"
    events.emit("issue_skipped", source=forge.source, instance=forge.instance, why=said)


@contextmanager
def _handling(place: PolledForge, task: Task) -> Iterator[None]:
    """A context manager for work on one task that a poll has found: an error that concerns only this task is reported,
    and the poll goes on.

    If the host does not show yet who asked for the task, the task is left to the next poll, without a report.
    """
    with place.items.handling(str(task.get_task_key())):
        try:
            yield
        except IssueUnreadable as error:
            if error.code != NOT_SHOWN:
                raise


def do_nothing() -> None:
    """Show nothing on the issue, since the request was marked as seen already."""


def fetch_and_enqueue_tasks(settings: Settings, ledger: Ledger, forges: Iterable[Forge], events: Events) -> list[str]:
    """Poll every forge once; returns the uuids of the tasks that are new in the ledger."""
    return Poller(settings, ledger, forges, events).poll(everything=True)


def enqueue(
    settings: Settings, ledger: Ledger, task: Task, events: Events, seen: Callable[[], None] = lambda: None
) -> str | None:
    """Put a found task into the ledger, then change the label of its issue; returns the uuid, None when the task is not
    queued (`Refusal`), for example because a task with this key is already open.  `seen` shows on the issue that the
    program has read the request; it is called when the row is new."""
    key = task.get_task_key()
    if task.forge is None:
        raise ForgeError(f"task {key} has no forge; make it with TaskFactory.from_dict(task_dict, forges)")
    if RefusedChanges(settings.base_dir / "limits", key.instance).is_resting(f"{key.owner}/{key.repo}"):
        return None
    task.confirm()
    parent = parent_of(settings, ledger, key)
    uuid, refused = enqueue_task(
        Intake(settings, ledger, task.forge, events),
        key,
        user=task.get_user(),
        title=task.title,
        priority=priority_of(settings, task.labels),
        parent_uuid=parent,
        started_by=task.started_by,
        take=task.prepare if task.started_by is None else None,
        seen=seen,
        has_comments=task.has_comments,
    )
    task.uuid = uuid
    # an event that asks for a task (an assignment) stays listed after the task has begun, so it does not resume the
    # task
    waiting = ledger.latest(key) if refused == "known" and task.started_by is None else None
    if waiting is not None and waiting.status is Status.PAUSED:
        # The bot label on the issue of a paused task is a request to resume the task.
        ledger.request(waiting.uuid, "resume")
        events.emit("task_resumed", uuid=waiting.uuid)
    return uuid
