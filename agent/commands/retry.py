"""`retry` queues a new task that continues an ended task, or new tasks for all tasks that failed since a time.

`--failed-since TIME` queues a new task for each task that failed after TIME and is the newest task of its issue.
`--failed-since` is meant for the time after an outage of a host or a server."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import ForgeError, MakimonoError, UsageError
from agent.intake.enqueue import Intake, continue_task
from agent.values import Status
from agent.worker.earlier_task import read_parent

if TYPE_CHECKING:
    from agent.intake.enqueue import Refusal
    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhd])")


@dataclass
class RetryReport:
    """`queued` has pairs (uuid of the new task, uuid of the task that it continues); `left` maps the uuid of each
    failed task that could not be continued to the reason; `other_codes` counts the failed tasks with another error code
    than the requested one, by their code."""

    queued: list[tuple[str, str]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    other_codes: Counter[str] = field(default_factory=Counter)


def retry_task(wiring: Wiring, row: Row, priority: int | None = None) -> tuple[str | None, Refusal]:
    """Queue a task that continues the task of `row`, the newest of its issue; returns (the new task's uuid, None if no
    task was queued; the reason, or "").

    If `priority` is None, the new task gets the priority of `row`.
    """
    return continue_task(
        Intake(wiring.settings, wiring.ledger, wiring.forge_of(row.key), wiring.events),
        row,
        started_by=f"retry:{row.uuid}",
        user=row.user,
        priority=priority,
    )


def start_description(wiring: Wiring, row: Row) -> str:
    """A sentence about where a task that continues `row` will begin: with the work of `row`, or with the issue alone.
    If the forge cannot be reached, the returned sentence says only that the new task follows `row`."""
    try:
        parent = read_parent(wiring.settings, wiring.ledger, wiring.forge_of(row.key), row.uuid)
    except ForgeError as error:
        return f"follows {row.uuid}; whether its pull request is open cannot be asked now: {error}"
    if parent is not None and parent.is_gone_on_from:
        return f"goes on from {row.uuid}"
    return f"starts anew from its issue: no work of {row.uuid} is kept here or in an open pull request"


def failed_since(
    wiring: Wiring, since: datetime, code: str | None = None, *, priority: int | None = None
) -> RetryReport:
    """Queue a new task for each task that failed after `since` (only those with the error code `code`, if it is given)
    and is the newest of its issue; if `priority` is None, each new task has the priority of the task that it
    continues."""
    done = RetryReport()
    # the oldest task comes first, so that the new tasks have the order of the old ones
    for row in reversed(wiring.ledger.list(Status.FAILED)):
        if (row.completed_at or "") < clock.stamp(since):
            continue
        newest = wiring.ledger.latest(row.key)
        if newest is not None and newest.uuid != row.uuid:
            continue  # another task for this issue was started already
        if code is not None and row.error_code != code:
            done.other_codes[row.error_code or "none"] += 1
            continue
        try:
            made, refused = retry_task(wiring, row, priority)
        except MakimonoError as error:
            done.left[row.uuid] = str(error)
            continue
        if made is None:
            done.left[row.uuid] = why_not(refused)
        else:
            done.queued.append((made, row.uuid))
    return done


def why_not(refused: Refusal) -> str:
    """A sentence about the reason why no task was queued."""
    if refused == "limit":
        return "a daily limit of its repository is used up (section limits)"
    if refused == "refused":
        return "the forge refuses changes of this account there (`doctor` has the reason); it is tried again later"
    return "the issue is closed, or another daemon works on it; open it, or wait"


def parse_moment(text: str) -> datetime:
    """The time that a text means: `90m`, `12h` or `2d` ago, or a time such as `2026-01-31T09:15` (UTC).

    Raises UsageError for a text that is neither an age nor a time.
    """
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return clock.now() - timedelta(**{UNITS[ago[2]]: float(ago[1])})
    try:
        return clock.parse(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; write how long ago, as 90m, 12h or 2d, or when, as 2026-01-31T09:15 (UTC)"
        ) from None
