"""What GitHub's and GitLab's getters have in common (see `task.TaskGetter`): a look is for what waits, or for what
somebody has; it looks up a bounded number of askers and tells each problem once.

What is listed, and whether an item is a task, is theirs.  What must outlive a look is kept by the forge: a getter is
made for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ForgeAccessRefused, IssueUnreadable
from agent.observe.items import Items

if TYPE_CHECKING:
    from agent.errors import AnswerOdd
    from agent.forge.base import Labels
    from agent.forge.task import Task

RESERVE = 0.1  # the last tenth of the budget belongs to running tasks
LOOK_UPS = 50  # issues per look whose asker is looked up; the rest waits for the next look


class _Forge(Protocol):
    labels: Labels
    told: set[str]
    askers: dict[tuple[Any, ...], Any]


class Getter(ABC):
    """One look at everything that the section covers."""

    def __init__(self, forge: _Forge) -> None:
        self.forge = forge
        self.problems: tuple[IssueUnreadable, ...] = ()
        self._problems: list[IssueUnreadable] = []
        self._look_ups = 0
        self._askers: dict[tuple[Any, ...], Any] = {}
        self._left = False  # look for what somebody has, not for what waits
        self._items = Items(self._skipped, refusals=(ForgeAccessRefused,))

    def get_task_list(self) -> list[Task]:
        found = self._all()
        self.forge.askers = self._askers  # what does not wait any more is forgotten
        return found

    def get_left_list(self) -> list[Task]:
        self._left = True
        try:
            return self._all()
        finally:
            self._left = False

    def _all(self) -> list[Task]:
        self._problems, self._look_ups, self._askers = [], 0, {}
        found = self._look()
        self._items.end(unless_some=True)
        self.problems = tuple(self._problems)
        return [found[place] for place in sorted(found)]

    @abstractmethod
    def _look(self) -> dict[Any, Task]:
        """Every task of this look, by a place that sorts them by project and number."""

    def _labels(self) -> tuple[str, ...]:
        """The labels that this look is for."""
        return self.forge.labels.left() if self._left else (self.forge.labels.queued,)

    def _may_look_up(self) -> bool:
        """Whether one asker more may be looked up in this look; counts it."""
        self._look_ups += 1
        return self._look_ups <= LOOK_UPS

    def _odd(self, error: AnswerOdd) -> None:
        """An item of a list is not what it must be."""
        self._skipped("", str(error))

    def _skipped(self, item: str, why: str) -> None:
        said = why if not item or item in why else f"{item}: {why}"
        self._tell(IssueUnreadable(said), said)

    def _tell(self, problem: IssueUnreadable, once: str) -> None:
        """Report a problem at the first look that sees it, not at every one."""
        if once not in self.forge.told:
            self.forge.told.add(once)
            self._problems.append(problem)
