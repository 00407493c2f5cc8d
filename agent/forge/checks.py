"""The results of CI for one commit: check runs, commit statuses and the jobs of pipelines, in one form for all forges.

An adapter reads the checks (`ForgeReports.checks`); `intake/ci_watch.py` and `worker/ci_failures.py` decide what
follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CheckState = Literal["pending", "passed", "failed", "neutral"]
"""The state `neutral` means that a check neither runs nor passed nor failed: for example it was skipped or cancelled,
or waits for a person."""

LONGEST_LOG = 64_000
"""Maximum characters of the end of a log that an adapter returns."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a commit.

    `name` is the name of the check that people see.  `said`: what the CI service reports about the result, "" for
    nothing.  `log`: a text by which the adapter finds the log of the check (`ForgeReports.check_log`), "" if the check
    has no log.
    """

    name: str
    state: CheckState
    said: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one commit.  `unread`: sentences about checks that the token may not read, with the remedy."""

    items: tuple[Check, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Whether at least one check of the commit has the state `pending`."""
        return any(one.state == "pending" for one in self.items)

    def failed(self, base: Checks | None = None) -> tuple[Check, ...]:
        """The failed CI checks of the commit. If `base` (the checks of the base commit) is given, a check is left out
        if `base` has a failed check of the same name."""
        red = {one.name for one in base.items if one.state == "failed"} if base is not None else set()
        return tuple(one for one in self.items if one.state == "failed" and one.name not in red)


def end_of(log: str) -> str:
    """The last LONGEST_LOG characters of a CI log, from the beginning of a line; a shorter log as a whole."""
    if len(log) <= LONGEST_LOG:
        return log
    end = log[-LONGEST_LOG:]
    return end.partition("\n")[2] or end
