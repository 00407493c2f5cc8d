"""Records for which lists (of the issues of a project, for example) a host did not answer, so that these lists delay
neither the other lists nor the poll.

At the next poll a list without an answer is requested after all other lists, and one poll requests at most MOST lists
that had no answer before, those first that failed longest ago. After IN_A_ROW consecutive lists without an answer the
poll sends one cheap request that concerns no project: if the host does not answer this request either, the host is
unreachable and the poll ends; otherwise only the projects of these lists are faulty, and the poll continues. An
unreachable host thus causes IN_A_ROW + 1 time-outs in a poll and not one for each project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeLimited, ForgeRefused, ForgeUnreachable
from agent.observe.error_tolerant_loop import ItemLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

MOST = 3


class UnansweredLists:
    """The lists for which the host did not answer; the object is passed from one poll to the next. `ask` sends the host
    one cheap request, which concerns no project."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask
        self.names: dict[str, None] = {}  # the list of which the last failure is the oldest comes first

    def loop(self, skipped: Callable[[str, str], None]) -> ItemLoop:
        """An error-handling loop over the lists of one poll (`ItemLoop`)."""
        return ItemLoop(skipped, refusals=(AnswerOdd, ForgeAccessRefused, ForgeRefused), is_away=self.is_away)

    def in_order(self, lists: Iterable[T], name: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """Divides `lists` into (the lists to request at this poll, the lists that wait for a later poll)."""
        lists = list(lists)
        known = list(self.names)
        late = sorted((one for one in lists if name(one) in self.names), key=lambda one: known.index(name(one)))
        return [*(one for one in lists if name(one) not in self.names), *late[:MOST]], late[MOST:]

    def note(self, name: str, error: Exception | None) -> None:
        """Record whether the host answered the request for the list `name`; `error` is the error of the request, None
        if there was none. An answer of a wrong shape (AnswerOdd) counts as no answer."""
        self.names.pop(name, None)
        if isinstance(error, ForgeUnreachable):
            self.names[name] = None

    def is_away(self) -> bool:
        """Whether the host does not answer at all, not even the request `ask`.  Raises ForgeLimited."""
        try:
            self.ask()
        except ForgeUnreachable:
            return True
        except ForgeLimited:
            raise
        except ForgeError:
            return False  # a host that refuses the request has answered it, so it is reachable
        return False


def postponed(names: Iterable[str]) -> ForgeUnreachable:
    """A ForgeUnreachable that names the lists that wait for a later poll, at most MOST of them."""
    names = list(names)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ForgeUnreachable(f"{', '.join(names[:MOST])}{more} did not answer lately and is asked at a later poll")
