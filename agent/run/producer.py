"""Poll the forges and put what they hold into the ledger.

The row first, the label second: a crash between them leaves a queued row and an unmoved label, and the next poll
moves it (seed 002, 4.6, with the order of design section 2).  A task that somebody else took in between (a daemon with
a ledger of its own) is withdrawn before anybody can claim it.  Called by the daemon each `scheduling.interval`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from agent import clock
from agent.errors import DiskError, ForgeError, IssueUnreadable
from agent.run.parent import parent_of
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.config import Settings
    from agent.forge import Task
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Row
    from agent.taskqueue.ledger import Ledger

HELD = timedelta(seconds=30)
"""A row is held back until the label has moved; after a crash in between it is due all the same."""


def fetch_and_enqueue_tasks(settings: Settings, ledger: Ledger, forges: Iterable[Forge], events: Events) -> list[str]:
    """One poll of every forge; returns the uuids that are new in the ledger.  A forge that fails does not stop the
    others; its error is an event."""
    new: list[str] = []
    for forge in forges:
        try:
            getter = forge.getter()
            tasks = getter.get_task_list()
            for problem in getter.problems:
                events.emit("issue_skipped", source=forge.source, instance=forge.instance, why=str(problem))
            new += [uuid for task in tasks if (uuid := enqueue(settings, ledger, task, events)) is not None]
            wake_paused(ledger, forge, events)
        except ForgeError as error:
            events.emit("poll_failed", source=forge.source, instance=forge.instance, error=str(error))
        else:
            events.emit("poll_finished", source=forge.source, instance=forge.instance, found=len(tasks))
    return new


def enqueue(settings: Settings, ledger: Ledger, task: Task, events: Events) -> str | None:
    """Insert the row, then move the label; None when a task of that key is open already or its budget is spent."""
    key = task.get_task_key()
    if (spent := budget_spent(settings, ledger, key.owner, key.repo, key.instance)) is not None:
        events.emit("budget_spent", task=str(key), limit=spent)
        return None
    uuid = ledger.put(
        key,
        uuid=str(uuid4()),
        user=task.get_user(),
        title=task.title,
        not_before=clock.now() + HELD,
        parent_uuid=parent_of(settings, ledger, key),
        provider=settings.llm.provider,
        model=settings.provider().model,
    )
    task.uuid = uuid
    taken = True
    try:
        taken = task.prepare()
    except (ForgeError, DiskError) as error:  # the next poll moves the label; the other issues go on
        events.emit("effect_failed", uuid=uuid, effect="label", error=str(error))
    if uuid is not None and not taken and ledger.withdraw(uuid):
        return None  # another daemon, with a ledger of its own, was quicker
    if uuid is not None:
        ledger.offer(uuid)
        events.emit("task_queued", uuid=uuid, task=str(key))
    if uuid is None and (waiting := ledger.latest(key)) is not None and waiting.status is Status.PAUSED:
        ledger.request(waiting.uuid, "resume")  # the bot label on a task that waits means: go on
        events.emit("task_resumed", uuid=waiting.uuid)
    return uuid


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


def wake_paused(ledger: Ledger, forge: Forge, events: Events) -> None:
    """A task that asked a question goes back to the queue when a person wrote something since; one whose issue is
    closed or gone, or whose label was taken away, is stopped."""
    for row in ledger.list(status="paused"):
        if not forge.covers(row.key):
            continue
        try:
            word = _word(forge, row)
        except IssueUnreadable as error:
            events.emit("issue_skipped", source=forge.source, instance=forge.instance, why=str(error))
            continue
        if word is not None:
            ledger.request(row.uuid, word)
        if word == "resume":
            events.emit("task_resumed", uuid=row.uuid)


def _word(forge: Forge, row: Row) -> Literal["stop", "resume"] | None:
    if forge.control(row.key) == "stop":
        return "stop"
    if row.outcome != "asked":
        return None
    comments, _ = forge.comments_since(row.key, row.cursor)
    return "resume" if any(not comment.is_bot for comment in comments) else None
