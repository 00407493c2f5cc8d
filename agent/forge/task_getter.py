"""The common part of GitHub's and GitLab's getters (see `base.TaskGetter`).

One poll lists the tasks that wait, or the tasks that some daemon has; it looks up a limited number of askers and
reports each problem once.

The subclasses list the items and decide which of them are tasks.  Each poll makes a new getter, so the forge holds the
state that must outlive it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agent.errors import ForgeAccessRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.unanswered_lists import postponed
from agent.observe.item_loop import Items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.errors import AnswerOdd
    from agent.forge.base import Labels, Task
    from agent.forge.unanswered_lists import UnansweredLists

T = TypeVar("T")

RESERVE = 0.1  # the last tenth of the rate limit is reserved for running tasks
LOOK_UPS = 50  # maximum look-ups of askers in one poll; the other issues wait for the next poll


class _Forge(Protocol):
    labels: Labels
    told: set[str]
    askers: dict[tuple[Any, ...], Any]
    unanswered: UnansweredLists


class BaseTaskGetter(ABC):
    """One poll of all projects that the section covers."""

    def __init__(self, forge: _Forge) -> None:
        self.forge = forge
        self.problems: tuple[IssueUnreadable, ...] = ()
        self.failed: ForgeUnreachable | None = None
        self._problems: list[IssueUnreadable] = []
        self._look_ups = 0
        self._askers: dict[tuple[Any, ...], Any] = {}
        self._left = False  # True: list the tasks that some daemon has, not those that wait
        self._items = Items(self._skipped, refusals=(ForgeAccessRefused,))

    def get_task_list(self) -> list[Task]:
        found = self._all()
        self.forge.askers = self._askers  # entries of issues that no longer wait are dropped
        return found

    def get_left_list(self) -> list[Task]:
        self._left = True
        try:
            return self._all()
        finally:
            self._left = False

    def _all(self) -> list[Task]:
        self._problems, self._look_ups, self._askers, self.failed = [], 0, {}, None
        found = self._look()
        self._items.finish(unless_some=True)
        self.problems = tuple(self._problems)
        return [found[place] for place in sorted(found)]

    @abstractmethod
    def _look(self) -> dict[Any, Task]:
        """All tasks that this poll finds; the keys sort them by project and number."""

    def _labels(self) -> tuple[str, ...]:
        """The labels that this poll lists."""
        return self.forge.labels.in_use() if self._left else (self.forge.labels.queued,)

    def _may_look_up(self) -> bool:
        """Whether one more asker may be looked up in this poll; each call counts as one look-up."""
        self._look_ups += 1
        return self._look_ups <= LOOK_UPS

    def _due(self, lists: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """The lists to ask at this poll; those that wait for a later poll make this one incomplete."""
        due, later = self.forge.unanswered.in_order(lists, name)
        if later:
            self.failed = self.failed or postponed(map(name, later))
        return due

    def _end_lists(self, lists: Items) -> None:
        """End the loop over the lists of this poll.

        If one of the lists succeeded, the error of a list that did not answer is in `failed`, and refused lists are
        reported as problems.  If no list succeeded, the first error is raised.
        """
        if lists.went_well:
            away = {name: error for name, error in lists.failed.items() if isinstance(error, ForgeUnreachable)}
            for name, error in away.items():
                del lists.failed[name]
                self.failed = self.failed or error
        lists.finish(unless_some=True)

    def _odd(self, error: AnswerOdd) -> None:
        """Report an item of a list that does not match its shape."""
        self._skipped("", str(error))

    def _skipped(self, item: str, why: str) -> None:
        said = why if not item or item in why else f"{item}: {why}"
        self._tell(IssueUnreadable(said), said)

    def _tell(self, problem: IssueUnreadable, once: str) -> None:
        """Report a problem at the first poll that finds it, not at every poll."""
        if once not in self.forge.told:
            self.forge.told.add(once)
            self._problems.append(problem)
