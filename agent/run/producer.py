"""Poll the forges: put what waits into the ledger, and answer what people say to tasks that no worker holds.

The daemon's poller keeps one `Poller` and asks each place at its own pace (`pace.py`); `fetch_and_enqueue_tasks` is one
look at all of them (seed 002, 4.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, ForgeLimited, ForgeUnreachable
from agent.observe.items import WHOLE, Items
from agent.run.attention import Attention
from agent.run.backlog import Backlog
from agent.run.left import SECONDS as LEFT_SECONDS
from agent.run.left import take_up
from agent.run.pace import Pace
from agent.run.parent import parent_of
from agent.run.starting import start
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Iterable
    from threading import Event

    from agent.config import Settings
    from agent.forge import Task
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue.ledger import Ledger


AT_ONCE = 20
"""Tasks that are taken before what people say to waiting tasks is looked at again: moving a label is paced, and where
thousands wait, taking them all lasts hours."""


@dataclass(slots=True)
class Left:
    """When issues are compared with the ledger next (monotonic), and whether it is known to be lost."""

    at: float = field(default_factory=clock.monotonic)
    surely: bool = False


@dataclass(slots=True)
class Place:
    """One forge, and what is kept between two looks at it.  `backlog`: what was found and is not taken yet.  It is
    listed anew at `list_at`, so that who comes later does not wait until all of it is taken."""

    forge: Forge
    pace: Pace
    attention: Attention
    items: Items
    backlog: Backlog = field(default_factory=Backlog)
    list_at: float = 0.0
    problems: set[str] = field(default_factory=set)  # of the last look, so that each is reported once
    left: Left = field(default_factory=Left)


class Poller:
    """Looks at every forge.  A forge that fails does not stop the others; its error is an event.  `unasked`: places
    that could not be asked in the newest `poll`.  `lost`: set where rows are known to be lost; with it issues are
    compared with the ledger (`left.py`), once when it is set, else now and then (`compares`)."""

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
        self.away: set[str] = set()  # places that could not be asked when they were asked last
        self.lost = lost
        self.compares = compares
        self.places = [self._place(forge) for forge in forges]
        self.items = Items(self._failed, whole=tuple(one for one in WHOLE if one is not ForgeUnreachable))

    def _place(self, forge: Forge) -> Place:
        attention = Attention(self.settings, self.ledger, forge, self.events)
        return Place(forge, Pace.of(self.settings, forge), attention, Items(partial(skipped, self.events, forge)))

    def _failed(self, place: str, why: str) -> None:
        source, _, instance = place.partition(" ")
        self.unasked.append(place)
        self.away.add(place)
        self.events.emit("poll_failed", source=source, instance=instance, error=why)

    def poll(self, *, everything: bool = False) -> list[str]:
        """One look at what is due (or at `everything`); returns the uuids that are new in the ledger."""
        new: list[str] = []
        self.unasked = []
        if self.lost is not None and self.lost.is_set():
            self.lost.clear()
            for place in self.places:
                place.left.surely, place.left.at = True, clock.monotonic()
                place.pace.again()
        for place in self.places:
            if everything or place.pace.is_due():
                with self.items.one(f"{place.forge.source} {place.forge.instance}"):
                    place.pace.looked(happened=False)  # one that ends by an error is not due at once either
                    self._look(place, None if everything else AT_ONCE, new)
        self.items.end()
        return new

    def unasks_all(self) -> bool:
        """Whether no place could be asked when it was asked last."""
        return bool(self.places) and len(self.away) == len(self.places)

    def seconds(self) -> float:
        """Until the next place is due."""
        due = min((place.pace.due_at for place in self.places), default=clock.monotonic() + 1.0)
        return max(0.0, due - clock.monotonic())

    def _look(self, place: Place, most: int | None, new: list[str]) -> None:
        """One look, which takes at most so many tasks and adds their uuids to `new`."""
        forge = place.forge
        name = f"{forge.source} {forge.instance}"
        before = len(new)
        try:
            if not place.backlog or clock.monotonic() >= place.list_at:
                getter = forge.getter()
                place.backlog.replace(getter.get_task_list())
                place.list_at = clock.monotonic() + place.pace.shortest
                self._tell(place, [str(problem) for problem in getter.problems])
            found = len(place.backlog)
            while place.backlog and (most is None or len(new) - before < most):
                task = place.backlog.pop()
                with place.items.one(str(task.get_task_key())):
                    uuid = enqueue(self.settings, self.ledger, task, self.events)
                    new += [uuid] if uuid is not None else []
            self._compare(place, new)
            try:
                stirred = place.attention.look(new)
            finally:
                place.items.end()
        except ForgeError as error:
            self._failed(name, str(error))
            wait = error.retry_after if isinstance(error, ForgeLimited) else None
            place.pace.looked(happened=len(new) > before, pause=wait or 0.0)
        else:
            self.away.discard(name)
            self.events.emit("poll_finished", source=forge.source, instance=forge.instance, found=found)
            place.pace.looked(happened=stirred or found > 0, pause=forge.pause)
            if place.backlog:
                place.pace.again()

    def _compare(self, place: Place, new: list[str]) -> None:
        """Take up issues whose rows were lost, when that is due."""
        due = place.left.surely or self.compares
        if not due or clock.monotonic() < place.left.at:
            return
        new += take_up(self.settings, self.ledger, place.forge, self.events, place.items, surely=place.left.surely)
        place.left.surely, place.left.at = False, clock.monotonic() + LEFT_SECONDS

    def _tell(self, place: Place, problems: list[str]) -> None:
        """Report what the look before has not reported."""
        for problem in dict.fromkeys(problems):
            if problem not in place.problems:
                skipped(self.events, place.forge, "", problem)
        place.problems.clear()
        place.problems.update(problems)


def skipped(events: Events, forge: Forge, item: str, why: str) -> None:
    """Report an issue that cannot be a task."""
    said = why if not item or item in why else f"{item}: {why}"
    events.emit("issue_skipped", source=forge.source, instance=forge.instance, why=said)


def fetch_and_enqueue_tasks(settings: Settings, ledger: Ledger, forges: Iterable[Forge], events: Events) -> list[str]:
    """One poll of every forge; returns the uuids that are new in the ledger."""
    return Poller(settings, ledger, forges, events).poll(everything=True)


def enqueue(settings: Settings, ledger: Ledger, task: Task, events: Events) -> str | None:
    """Insert the row, then move the label; None when a task of that key is open already or its budget is spent."""
    key = task.get_task_key()
    if task.forge is None:
        raise ForgeError(f"task {key} has no forge; make it with TaskFactory.from_dict(task_dict, forges)")
    parent = parent_of(settings, ledger, key)
    uuid, refused = start(
        settings,
        ledger,
        task.forge,
        key,
        events,
        user=task.get_user(),
        title=task.title,
        parent_uuid=parent,
        take=task.prepare,
    )
    task.uuid = uuid
    waiting = ledger.latest(key) if refused == "known" else None
    if waiting is not None and waiting.status is Status.PAUSED:
        ledger.request(waiting.uuid, "resume")  # the bot label on a task that waits means: go on
        events.emit("task_resumed", uuid=waiting.uuid)
    return uuid
