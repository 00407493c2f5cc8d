"""The lists of a host that did not answer, so that they hold up neither the other lists nor the poll.

A list that did not answer comes after the others at the next poll, and at most MOST of them are asked at one poll,
those first that failed longest ago.  After IN_A_ROW lists without an answer one cheap request tells an unreachable host
from projects with a fault of their own: the poll ends if the host does not answer either, and goes on otherwise.  So a
dead host costs IN_A_ROW + 1 time-outs and not one for each project.  The getters call this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.observe.item_loop import Items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MOST = 3


class UnansweredLists:
    """The state that outlives a poll.  `ask` sends one request that concerns no project."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask
        self.names: dict[str, None] = {}  # the list that failed longest ago comes first

    def loop(self, skipped: Callable[[str, str], None]) -> Items:
        """The loop over the lists of one poll."""
        return Items(skipped, refusals=(AnswerOdd, ForgeAccessRefused, ForgeRefused), is_away=self.is_away)

    def in_order(self, lists: Iterable[T], name: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """(the lists to ask at this poll, those that wait for a later one)."""
        lists = list(lists)
        known = list(self.names)
        late = sorted((one for one in lists if name(one) in self.names), key=lambda one: known.index(name(one)))
        return [*(one for one in lists if name(one) not in self.names), *late[:MOST]], late[MOST:]

    def note(self, name: str, error: Exception | None) -> None:
        """Record whether a list answered; `error` is its error, None if it has none."""
        self.names.pop(name, None)
        if isinstance(error, ForgeUnreachable):
            self.names[name] = None

    def is_away(self) -> bool:
        """Whether the host itself does not answer.  Raises ForgeLimited."""
        try:
            self.ask()
        except ForgeUnreachable:
            return True
        except ForgeLimited:
            raise
        except ForgeError:
            return False  # a refusal is an answer
        return False


def postponed(names: Iterable[str]) -> ForgeUnreachable:
    """The error of lists that wait for a later poll."""
    names = list(names)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ForgeUnreachable(f"{', '.join(names[:MOST])}{more} did not answer lately and is asked at a later poll")
