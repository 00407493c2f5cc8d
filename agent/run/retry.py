"""`retry`: a new task that goes on from one that has ended, and new tasks for all that failed since a time.

Called by the command line.  After a host or a server was ill for a night, `--failed-since` puts everything back that
failed meanwhile, once for each issue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import MakimonoError, UsageError
from agent.run.starting import start
from agent.values import Status

if TYPE_CHECKING:
    from agent.run.starting import Refusal
    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhd])")


@dataclass
class Retried:
    """`queued`: (uuid of the new task, uuid that it goes on from); `left`: uuid → why there is none."""

    queued: list[tuple[str, str]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def again(wiring: Wiring, row: Row) -> tuple[str | None, Refusal]:
    """Queue a task that goes on from `row`, the newest of its issue; as `starting.start`."""
    return start(
        wiring.settings,
        wiring.ledger,
        wiring.forge_of(row.key),
        row.key,
        wiring.events,
        user=row.user,
        title=row.title,
        parent_uuid=row.uuid,
        started_by=f"retry:{row.uuid}",
    )


def failed_since(wiring: Wiring, since: datetime, code: str | None = None) -> Retried:
    """Queue again whatever failed since then (with this code) and is the newest task of its issue."""
    done = Retried()
    for row in reversed(wiring.ledger.list(Status.FAILED)):  # the oldest first, as they were asked for
        if (row.completed_at or "") < clock.stamp(since) or (code is not None and row.error_code != code):
            continue
        newest = wiring.ledger.latest(row.key)
        if newest is not None and newest.uuid != row.uuid:
            continue  # somebody has had it tried again
        try:
            made, refused = again(wiring, row)
        except MakimonoError as error:
            done.left[row.uuid] = str(error)
            continue
        if made is None:
            done.left[row.uuid] = why_not(refused)
        else:
            done.queued.append((made, row.uuid))
    return done


def why_not(refused: Refusal) -> str:
    """Why no task was queued, in words."""
    if refused == "limit":
        return "a daily limit of its repository is used up (section limits)"
    return "the issue is closed, or another daemon works on it; open it, or wait"


def moment(text: str) -> datetime:
    """`90m`, `12h` or `2d` ago, or a time as `2026-01-31T09:15` (UTC).  UsageError for anything else."""
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return clock.now() - timedelta(**{UNITS[ago[2]]: float(ago[1])})
    try:
        return clock.parse(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; write how long ago, as 90m, 12h or 2d, or when, as 2026-01-31T09:15 (UTC)"
        ) from None
