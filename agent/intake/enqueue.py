"""Puts a task into the ledger, then shows on the forge that a daemon has taken the task.

If the process crashes after it has put a task into the ledger and before it has changed the label, the next poll or the
worker changes the label (docs/design/context.md, 4.6).  After the row is in the ledger and before the label changes,
the issue is claimed (`issue/claims.py`): if a daemon with another ledger has the issue, the new row is withdrawn before
a worker can take it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from agent import clock
from agent.config.project_settings import for_project
from agent.errors import DiskError, ForgeAccessRefused, ForgeError
from agent.forge.refused_changes import RefusedChanges
from agent.issue.ci_rounds import line_of
from agent.issue.claims import claim, home_of, over_in, quiet_of, withdraw
from agent.issue.comments import truncate
from agent.issue.publish_filter import PublishFilter
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row
    from agent.values import Public, TaskKey

Refusal = Literal["", "limit", "known", "taken", "refused"]
"""The reason why a task was not queued, "" if it was queued.  `limit`: a daily limit is used up, so the task has to
wait until tomorrow.

`known`: a task with this key is open, or the comment has already started a task. `taken`: the issue does not wait for
work, because it is closed or another daemon has it. `refused`: the forge refuses changes of this account in the
repository; a change is tried again later (`forge/refused_changes.py`).
"""

HELD = timedelta(seconds=30)
"""The time after its creation in which no worker may take a new row, so that the label can be changed first; if the
process crashes meanwhile, the row becomes due after this time."""


@dataclass(frozen=True, slots=True)
class Intake:
    """A forge, of which the issues become tasks, together with the ledger that stores the tasks."""

    settings: Settings
    ledger: Ledger
    forge: Forge
    events: Events


def will_start(intake: Intake, key: TaskKey, started_by: str | None = None) -> bool:
    """Whether `enqueue_task` will probably queue a task: the issue has no open task, the event `started_by` has not
    started one already, and no daily limit or refusal of the forge holds the task back."""
    settings, ledger, repository = intake.settings, intake.ledger, f"{key.owner}/{key.repo}"
    if RefusedChanges(settings.base_dir / "limits", key.instance).is_resting(repository):
        return False
    row = ledger.latest(key)
    if row is not None and row.status not in CLOSED_STATUSES:
        return False
    if row is not None and started_by is not None and any(one.started_by == started_by for one in line_of(ledger, row)):
        return False
    of_project = for_project(settings, getattr(intake.forge, "section", None), repository)
    return budget_spent(of_project, ledger, key.owner, key.repo, key.instance) is None


def enqueue_task(
    intake: Intake,
    key: TaskKey,
    *,
    user: str | None,
    title: str | None,
    priority: int = 0,
    parent_uuid: str | None = None,
    started_by: str | None = None,
    take: Callable[[], bool] | None = None,
    uuid: str | None = None,
    quiet: timedelta | None = None,
    seen: Callable[[], None] = lambda: None,
    has_comments: bool = True,
) -> tuple[str | None, Refusal]:
    """Put a task into the ledger: (the uuid of the new task, or None; the reason why no task was queued).

    `started_by`: the id of the comment or other event that asks for this task, None if the label asks for it. `take`
    shows on the forge that a daemon has taken the task (`Forge.mark_taken` by default). `uuid`: the uuid for the new
    row, if the issue has a claim of a task that has lost its row. `quiet`: the time without a change of the issue after
    which claims of other daemons expire (`quiet_of` by default). `seen` shows on the forge that the program has read
    the request for work; `seen` is called when the row is new. `has_comments` is False if the issue had no comments
    when it was listed.
    """
    settings, ledger, forge, events = intake.settings, intake.ledger, intake.forge, intake.events
    of_project = for_project(settings, getattr(forge, "section", None), f"{key.owner}/{key.repo}")
    if (spent := budget_spent(of_project, ledger, key.owner, key.repo, key.instance)) is not None:
        events.emit("budget_spent", task=str(key), limit=spent)
        return None, "limit"
    refusals = RefusedChanges(settings.base_dir / "limits", forge.instance)
    repository = f"{key.owner}/{key.repo}"
    if refusals.is_resting(repository):
        return None, "refused"
    uuid = ledger.enqueue(
        key,
        uuid=uuid or str(uuid4()),
        user=user,
        title=title,
        priority=priority,
        not_before=ledger.now() + HELD,
        parent_uuid=parent_uuid,
        provider=settings.llm.provider,
        model=settings.provider().model,
        started_by=started_by,
    )
    if uuid is None and (started_by is not None or not adopt_open_task(ledger, key)):
        return None, "known"
    if take is None:
        take = partial(forge.mark_taken, key, again=started_by is not None)
    taken = True
    if uuid is not None:
        seen()
    try:
        if uuid is None:
            take()
        else:
            taken = claim_issue(intake, key, uuid, started_by, take, quiet, has_comments)
        refusals.clear(repository)
    except ForgeAccessRefused as error:
        if refusals.note(repository, str(key), str(error)) is None:
            place = {"source": forge.source, "instance": forge.instance}
            events.emit("issue_unwritable", **place, task=str(key), why=str(error))
        if uuid is not None and ledger.withdraw(uuid):
            with suppress(ForgeError):  # a part of the claim may be on the issue after the error, so it is withdrawn
                withdraw(forge, key, uuid)
            return None, "refused"
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


def continue_task(
    intake: Intake,
    row: Row,
    *,
    started_by: str,
    user: str | None,
    priority: int | None = None,
    seen: Callable[[], None] = lambda: None,
) -> tuple[str | None, Refusal]:
    """Queue a task that continues the ended task of `row`; the other arguments and the result are those of
    `enqueue_task`.

    If `priority` is None, the new task gets the priority of `row`.
    """
    return enqueue_task(
        intake,
        row.key,
        user=user,
        title=row.title,
        priority=row.priority if priority is None else priority,
        parent_uuid=row.uuid,
        started_by=started_by,
        seen=seen,
    )


def claim_issue(
    intake: Intake,
    key: TaskKey,
    uuid: str,
    started_by: str | None,
    take: Callable[[], bool],
    quiet: timedelta | None,
    has_comments: bool = True,
) -> bool:
    """Claim the issue for the task (`claims.claim`) and then call `take`; returns False when another task has the
    issue, or when `take` returns False.  Raises ForgeError."""

    def words() -> Public:
        door = PublishFilter.for_task(intake.settings, intake.events, intake.forge.instance, uuid)
        text = door.render("progress", state="queued", uuid=uuid, plan=[], last="", facts={})
        return truncate(text, intake.forge, uuid)

    return claim(
        intake.forge,
        key,
        uuid,
        words,
        quiet_of(intake.settings) if quiet is None else quiet,
        home=home_of(intake.settings),
        started_by=started_by,
        take=take,
        is_over=over_in(intake.ledger),
        is_ours=lambda: (row := intake.ledger.get(uuid)) is None or _is_held(row),
        has_comments=has_comments,
    )


def priority_of(settings: Settings, labels: Iterable[str]) -> int:
    """The priority of an issue with the labels `labels`: the highest value in `scheduling.priorities` for one of the
    labels, 0 if the setting names none of them. Upper and lower case of labels are treated as equal, as on GitHub."""
    known = {label.casefold(): number for label, number in settings.scheduling.priorities.items()}
    return max((known[label.casefold()] for label in labels if label.casefold() in known), default=0)


def adopt_open_task(ledger: Ledger, key: TaskKey) -> bool:
    """Whether this process may set the processing label for a task that already has a row.

    `adopt_open_task` returns False while the process that added the row is about to set the label (HELD), since that
    process would withdraw the row if it found the label already changed. After the time HELD the process that added the
    row may have died, and this process may set the label: `adopt_open_task` first offers the row to workers, so that
    nobody can withdraw the row any more.
    """
    row = ledger.latest(key)
    if row is None or not _is_held(row) or row.not_before is None:
        return True
    return clock.parse(row.not_before) <= ledger.now() and ledger.offer(row.uuid)


def _is_held(row: Row) -> bool:
    """Whether no worker may take the row yet: the process that added it has not offered it to workers."""
    return row.status is Status.QUEUED and row.attempt == 0 and row.not_before is not None


def budget_spent(settings: Settings, ledger: Ledger, owner: str, repo: str, instance: str) -> str | None:
    """The configuration key of a daily limit that the repository has used up; None if no limit is used up."""
    limits = settings.limits
    if limits.runs is None and limits.repository_cost is None:
        return None
    runs, cost = ledger.usage_today(owner=owner, repo=repo, instance=instance)
    if limits.runs is not None and runs >= limits.runs:
        return "limits.runs"
    if limits.repository_cost is not None and cost >= limits.repository_cost:
        return "limits.repository_cost"
    return None
