"""Put a task into the ledger, then show on the forge that it is taken.

The row first, the label second: a crash between them leaves a queued row and an unmoved label, and the next look, or
the worker, moves it (seed 002, 4.6, with the order of design section 2).  Between the two the issue is claimed
(`claims.py`): a task that somebody else has (a daemon with a ledger of its own) is withdrawn before anybody can claim
it.  Called by `producer.py`, `attention.py` and the command `retry`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from agent import clock
from agent.errors import DiskError, ForgeError
from agent.run.claims import claim, home_of, over_in, quiet_of
from agent.run.comments import fit
from agent.run.publishable import Door
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger
    from agent.values import Public, TaskKey

Refusal = Literal["", "limit", "known", "taken"]
"""A daily limit holds it back until tomorrow; a task of that key is open, or this comment has started one before; the
issue does not wait (any more): it is closed, or another daemon has it."""

HELD = timedelta(seconds=30)
"""A row is held back until the label has moved; after a crash in between it is due all the same."""


def start(
    settings: Settings,
    ledger: Ledger,
    forge: Forge,
    key: TaskKey,
    events: Events,
    *,
    user: str | None,
    title: str | None,
    parent_uuid: str | None = None,
    started_by: str | None = None,
    take: Callable[[], bool] | None = None,
    uuid: str | None = None,
    quiet: timedelta | None = None,
) -> tuple[str | None, Refusal]:
    """(the uuid of the new task, None when there is none; why there is none).

    `started_by`: the comment that asks for it, on an issue whose task has ended.  `take` shows that it is taken
    (`Forge.take` by default).  `uuid`: of a task that was lost and whose claim stands on the issue.  `quiet`: after how
    long without a stir the claims of others count for nothing (`quiet_of` by default).
    """
    if (spent := budget_spent(settings, ledger, key.owner, key.repo, key.instance)) is not None:
        events.emit("budget_spent", task=str(key), limit=spent)
        return None, "limit"
    uuid = ledger.put(
        key,
        uuid=uuid or str(uuid4()),
        user=user,
        title=title,
        not_before=ledger.now() + HELD,
        parent_uuid=parent_uuid,
        provider=settings.llm.provider,
        model=settings.provider().model,
        started_by=started_by,
    )
    if uuid is None and (started_by is not None or not adopted(ledger, key)):
        return None, "known"
    if take is None:
        take = partial(forge.take, key, again=started_by is not None)
    taken = True
    try:
        taken = take() if uuid is None else _claim(settings, ledger, forge, key, events, uuid, started_by, take, quiet)
    except (ForgeError, DiskError) as error:
        events.emit("effect_failed", uuid=uuid, effect="label", error=str(error))
    if uuid is None:
        return None, "known"
    if not taken and ledger.withdraw(uuid):
        wish = "a comment asks for more, and the issue is closed" if started_by is not None else "it waits no more"
        why = f"{key}: {wish}, or another daemon works on it"
        events.emit("issue_skipped", source=forge.source, instance=forge.instance, why=why)
        return None, "taken"
    ledger.offer(uuid)
    events.emit("task_queued", uuid=uuid, task=str(key))
    return uuid, ""


def _claim(
    settings: Settings,
    ledger: Ledger,
    forge: Forge,
    key: TaskKey,
    events: Events,
    uuid: str,
    started_by: str | None,
    take: Callable[[], bool],
    quiet: timedelta | None,
) -> bool:
    def words() -> Public:
        door = Door.of(settings, events, forge.instance, uuid)
        text = door.render("progress", state="queued", uuid=uuid, plan=[], last="", facts={})
        return fit(text, forge, uuid)

    return claim(
        forge,
        key,
        uuid,
        words,
        quiet_of(settings) if quiet is None else quiet,
        home=home_of(settings),
        started_by=started_by,
        take=take,
        is_over=over_in(ledger),
    )


def adopted(ledger: Ledger, key: TaskKey) -> bool:
    """Whether the label of a task that is open already may be moved here.

    Not while another producer holds its new row back and is about to move it: who finds the label moved takes a daemon
    with a ledger of its own for the cause, and withdraws the row.  One that died in between is stood in for when its
    hold is over; then the row is offered first, and cannot be withdrawn any more.
    """
    row = ledger.latest(key)
    if row is None or row.status is not Status.QUEUED or row.attempt > 0 or row.not_before is None:
        return True
    return clock.parse(row.not_before) <= ledger.now() and ledger.offer(row.uuid)


def budget_spent(settings: Settings, ledger: Ledger, owner: str, repo: str, instance: str) -> str | None:
    """The key of the daily limit of this repository that is used up, else None."""
    limits = settings.limits
    if limits.runs is None and limits.repository_cost is None:
        return None
    runs, cost = ledger.today(owner=owner, repo=repo, instance=instance)
    if limits.runs is not None and runs >= limits.runs:
        return "limits.runs"
    if limits.repository_cost is not None and cost >= limits.repository_cost:
        return "limits.repository_cost"
    return None
