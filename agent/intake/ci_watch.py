"""Watches CI of the pull requests of tasks that have ended, and starts a task that continues the ended task when CI is
red.

The checks of the commit that the task pushed last are read at each poll until QUIET_SECONDS after they have ended, and
then twice an hour, since people may run a job again; one day after the end of the task the program stops reading them.
Red (failed) checks start a task that continues the last task, at most `ci.fix_rounds` times for a pull request; after
that, a comment on the issue lists the attempts to repair CI. No task is started for a commit that somebody else has
pushed, for checks that are red on the base too, and for a pull request that is not open any more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from agent import clock
from agent.intake.enqueue import Intake, continue_task
from agent.issue.ci_rounds import red_checks, rounds_of, started_by
from agent.issue.comments import post_once, truncate
from agent.issue.publish_filter import PublishFilter
from agent.observe.error_tolerant_loop import ItemLoop
from agent.values import Public, Status
from agent.worker.earlier_task import summary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from agent.config import Settings
    from agent.forge.checks import Check
    from agent.issue.ci_rounds import CiRounds
    from agent.taskqueue import Row

LONGEST = timedelta(days=1)
"""The time after the end of a task during which the checks of its pull request are read."""
QUIET_SECONDS = 600.0
"""Seconds for which the checks of a commit are read at each poll after all of them have ended and none is red, since
further checks may begin."""
AGAIN_SECONDS = 1800.0
"""Seconds between two reads of a commit's checks after QUIET_SECONDS."""
NONE_SECONDS = 3600.0
"""Seconds for which a commit without checks is read again at each poll; after that it counts as a commit without CI."""
TRIED = "ci-tried"
LONGEST_SUMMARY = 1500
"""Maximum characters of the summary of one task in the comment about all tasks that red CI has started."""


class CiWatch:
    """Watches CI of the pull requests on one forge. A CiWatch may lose its state without harm, since the state only
    saves requests and repeated events; for example, it records which tasks need no further look at their checks."""

    def __init__(self, intake: Intake, skipped: Callable[[str, str], None]) -> None:
        self.intake = intake
        self.items = ItemLoop(skipped)
        self.settled: set[str] = set()  # uuids of tasks of which the checks are not read any more
        # uuid of a task → its pull request, which does not change after the end of the task
        self.rounds: dict[str, CiRounds | None] = {}
        # uuid of a task → time of the monotonic clock when a poll found that all its checks had ended
        self.ended_at: dict[str, float] = {}
        # Uuid of a task → time of the monotonic clock at which its checks are read next.
        self.again_at: dict[str, float] = {}
        self.told: set[str] = set()

    def poll(self, rows: Iterable[Row], started: list[str]) -> None:
        """Read the CI checks of the pull request of each task in `rows`.  Red checks queue a new task that continues
        the task of the pull request; the uuid of the new task is added to `started`.  Raises ForgeError when the forge
        does not answer."""
        if not hasattr(self.intake.forge, "checks"):
            return
        closed = {row.uuid: row for row in rows if watched_until(self.intake.settings, row) is not None}
        self.settled &= closed.keys()
        self.rounds = {uuid: one for uuid, one in self.rounds.items() if uuid in closed}
        self.ended_at = {uuid: at for uuid, at in self.ended_at.items() if uuid in closed}
        self.again_at = {uuid: at for uuid, at in self.again_at.items() if uuid in closed}
        for uuid, row in closed.items():
            if uuid in self.settled or clock.monotonic() < self.again_at.get(uuid, 0.0):
                continue
            with self.items.handling(f"CI of {row.key}"):
                if self._read_checks(row, started):
                    self.settled.add(uuid)
        self.items.finish()

    def _read_checks(self, row: Row, started: list[str]) -> bool:
        """Read the checks of one task's pull request; returns whether these checks need not be read again."""
        if row.uuid not in self.rounds:
            self.rounds[row.uuid] = rounds_of(self.intake.ledger, row)
        if (rounds := self.rounds[row.uuid]) is None:
            return True
        checks, red = red_checks(self.intake.forge, row.key, rounds)
        self._tell_unread(checks.unread)
        if checks.is_pending:
            self.ended_at.pop(row.uuid, None)
            return False
        if not red:
            now = clock.monotonic()
            quiet = now - self.ended_at.setdefault(row.uuid, now)
            if checks.items and quiet >= QUIET_SECONDS:
                self.again_at[row.uuid] = now + AGAIN_SECONDS
            return not checks.items and quiet >= NONE_SECONDS
        pull = self.intake.forge.find_pull(row.key, rounds.branch)
        if pull is None or pull.state != "open" or pull.commit != rounds.head:
            return True
        if rounds.is_tried or len(rounds.made) >= self.intake.settings.ci.fix_rounds:
            self._say_tried(row, rounds, red)
            return True
        uuid, refused = continue_task(
            self.intake,
            row,
            started_by=started_by(rounds.head),
            user=row.user,
        )
        if uuid is not None:
            started.append(uuid)
            names = [one.name for one in red]
            self.intake.events.emit("ci_red", uuid=uuid, url=rounds.url, commit=rounds.head, jobs=names)
        return refused not in ("limit", "refused")

    def _tell_unread(self, unread: Iterable[str]) -> None:
        for said in unread:
            if said not in self.told:
                self.told.add(said)
                self.intake.events.emit(
                    "ci_unread", source=self.intake.forge.source, instance=self.intake.forge.instance, why=said
                )

    def _say_tried(self, row: Row, rounds: CiRounds, red: tuple[Check, ...]) -> None:
        """Post one comment on the issue of a pull request with CI that is still red after the last fix round: it lists
        the summaries of the tasks that tried to repair it."""
        folders = self.intake.settings.base_dir / "completed"
        tried = [summary_of(folders / one.uuid, one)[:LONGEST_SUMMARY] for one in reversed(rounds.made)]
        door = PublishFilter.for_task(self.intake.settings, self.intake.events, self.intake.forge.instance, row.uuid)

        def words() -> Public:
            names = self.intake.forge.own_names()
            jobs = [one.name for one in red]
            values = {"url": rounds.url, "jobs": jobs, "tried": tried, "mention": f"@{names[-1]}", "uuid": row.uuid}
            return truncate(door.render("ci_tried", **values), self.intake.forge, row.uuid)

        post_once(self.intake.forge, row.key, rounds.first.uuid, TRIED, words, None)
        self.intake.events.emit("effect_done", uuid=row.uuid, effect=TRIED)


def watched_until(settings: Settings, row: Row) -> datetime | None:
    """The time until which the checks of an ended task's pull request are read; None if they are not read, or not any
    longer."""
    if settings.ci.fix_rounds < 1 or row.status is not Status.COMPLETED or not row.completed_at:
        return None
    until = clock.parse(row.completed_at) + LONGEST
    return until if clock.now() < until else None
