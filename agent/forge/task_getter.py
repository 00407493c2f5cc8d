"""The base class of the task getters of GitHub, GitLab and Forgejo, which list the waiting tasks (see
`base.TaskGetter`).

A poll lists the tasks that wait, or the tasks on which some daemon works; for a limited number of issues the poll looks
up the person who asked for work; each problem is reported once in the life of the forge object.

The subclasses of `BaseTaskGetter` list the issues and pull requests and decide which of them are tasks.  Each poll
makes a new task getter, so state that must outlive a poll is an attribute of the forge object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.unanswered_lists import postponed
from agent.observe.error_tolerant_loop import ItemLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from agent.errors import AnswerOdd
    from agent.forge.base import Labels, Task
    from agent.forge.unanswered_lists import UnansweredLists

T = TypeVar("T")

# The code of an error: a person has only assigned the issue to themselves, and asked for no work.
SELF_ASSIGNED = "self_assigned"
# The code of an error: the host does not show yet who asked for work (`changed_just_now`).
NOT_SHOWN = "asker_not_shown"
SETTLED = timedelta(minutes=1)
RESERVE = 0.1  # the share of the rate limit that a poll leaves for running tasks
# The maximum number of issues for which one poll looks up who asked for work; other issues wait for the next poll.
LOOK_UPS = 50


def changed_just_now(item: Mapping[str, Any]) -> bool:
    """Whether the time at which an issue was changed differs from the present time by SETTLED at most; it may be in the
    future, as the host has another clock.

    A host may show the label of an issue some seconds before the event that names the person who set the label, since
    both come from different stores: https://github.com/golang/go/issues/28226. For SETTLED after a change of the issue
    its author therefore does not count as the person who asked.
    """
    return abs(clock.now() - clock.parse(str(item["updated_at"]))) <= SETTLED


class _Forge(Protocol):
    section: Any
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
        # True while the issues with the processing or paused label are listed, not those that wait for work. A look-up
        # after the end of the list must not read `_left`: it uses `RequestState.is_left` (`timeline_task_getter.py`).
        self._left = False
        self._items = ItemLoop(self._skipped, refusals=(ForgeAccessRefused,))

    def get_task_list(self) -> list[Task]:
        found = self._list_tasks()
        self.forge.askers = self._askers  # the cache keeps only the issues that this poll looked up
        return found

    def get_left_list(self) -> list[Task]:
        self._left = True
        try:
            return self._list_tasks()
        finally:
            self._left = False

    def _list_tasks(self) -> list[Task]:
        self._problems, self._look_ups, self._askers, self.failed = [], 0, {}, None
        found = self._find_tasks()
        self._items.finish(unless_some=True)
        self.problems = tuple(self._problems)
        return [found[place] for place in sorted(found)]

    @abstractmethod
    def _find_tasks(self) -> dict[Any, Task]:
        """All tasks that this poll finds; if the keys of the dict are sorted, the tasks are in the order of project and
        number."""

    def _labels(self) -> tuple[str, ...]:
        """The labels for which this poll lists issues."""
        if self._left:
            return self.forge.labels.in_use()
        return (self.forge.labels.queued,) if self.forge.section.start.label else ()

    @contextmanager
    def _reading_events(self, item: str) -> Iterator[None]:
        """A context in which the person who asked for work on one issue is looked up: a refusal of the host to list
        the events of the issue concerns this issue alone, and not the poll.  Raises IssueUnreadable."""
        try:
            yield
        except (ForgeRefused, ForgeAccessRefused) as error:
            raise IssueUnreadable(f"{item}: the person who asked for work cannot be looked up: {error}") from error

    def _may_look_up(self) -> bool:
        """Whether this poll may look up who asked for work on one more issue; each call counts as one look-up."""
        self._look_ups += 1
        return self._look_ups <= LOOK_UPS

    def _due(self, lists: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Those of `lists` that this poll requests from the host; if some of them have to wait for a later poll,
        `failed` is set, since this poll is incomplete."""
        due, later = self.forge.unanswered.in_order(lists, name)
        if later:
            self.failed = self.failed or postponed(map(name, later))
        return due

    def _end_lists(self, lists: ItemLoop) -> None:
        """Finish the error handling (`lists`) for the lists that this poll requested.

        If the poll could read at least one of the lists, it stores the error of a list without an answer in `failed`,
        and reports a list that the host refused as a problem. If the poll could read no list, the first error is
        raised.
        """
        if lists.went_well:
            away = {name: error for name, error in lists.failed.items() if isinstance(error, ForgeUnreachable)}
            for name, error in away.items():
                del lists.failed[name]
                self.failed = self.failed or error
        lists.finish(unless_some=True)

    def _odd(self, error: AnswerOdd) -> None:
        """Report an issue or pull request in a list that does not have the expected shape."""
        self._skipped("", str(error))

    def _skipped(self, item: str, why: str) -> None:
        said = why if not item or item in why else f"{item}: {why}"
        self._report_problem(IssueUnreadable(said), said)

    def _report_problem(self, problem: IssueUnreadable, once: str) -> None:
        """Report a problem at the first poll that finds it, and not again by this process."""
        if once not in self.forge.told:
            self.forge.told.add(once)
            self._problems.append(problem)
