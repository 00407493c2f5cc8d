"""Elects one daemon per issue among daemons that use the same account but do not share a ledger: the order of comments
on the forge decides.

A claim on an issue is the progress comment of a task, which the task posts anyway. The claim is posted on an issue
before the label changes. The marker of the progress comment contains the task's uuid: so a claim belongs to a task, not
to a host, and any process can find it after a crash. A claim is *live* until the final comment of the same task is
posted, or until the local ledger says that the task has ended. Among several live claims on an issue the oldest one
wins, in the forge's order of comments. A daemon of which the claim did not win deletes its claim and gives up its row.

A forge may show an older comment later than a younger one, since two transactions write them. After a daemon has posted
a claim, it therefore waits `Forge.propagation_delay` seconds, reads the comments again, and then decides whether its
claim has won. A daemon that has a claim on a waiting issue changes the issue's label at its next poll at the latest. If
a waiting issue has a claim and nothing happened on the issue for the time `quiet_of`, the daemon of the claim is
regarded as dead, and the next daemon that claims the issue removes this claim. If the task of a removed claim resumes
later, it finds the claim of another task in place of its own, and ends.

The id of a comment that requests a new task (`started_by`) is part of a second marker in the progress comment, so that
the requesting comment starts only one task, even if that task has ended before another daemon reads the comment.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.errors import DiskError, TakenElsewhere
from agent.forge.markers import marker, parts_of, with_markers
from agent.taskqueue.row_holder import hostname
from agent.values import CLOSED_STATUSES, End, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from agent.config import Settings
    from agent.forge.base import Forge, IssueText, LabelState, MarkedComment
    from agent.taskqueue import Ledger
    from agent.values import Public, TaskKey

LABELS: dict[Status, LabelState] = {
    Status.COMPLETED: "done",
    Status.FAILED: "failed",
    Status.STOPPED: "stopped",
}
ENDS: dict[Status, End] = {
    Status.STOPPED: End.STOPPED,
    Status.FAILED: End.FAILED,
    Status.COMPLETED: End.FINISHED,
}
PROGRESS, FINAL, HOME = "progress", "final", "of-"
HOME_FILE = "home.id"
"""The name of the file in base_dir with the id of the local ledger, which is written into claims (`home_of`)."""
QUIET_SECONDS, LOOKS = 900.0, 3
"""A claim on a waiting issue expires after QUIET_SECONDS without a change of the issue, but not before an idle daemon
would have polled LOOKS times."""


_HOME_ID = re.compile(r"[0-9a-f]{8}")


def quiet_of(settings: Settings) -> timedelta:
    """The time without a change of the issue after which a claim on a waiting issue expires."""
    return timedelta(seconds=max(QUIET_SECONDS, LOOKS * settings.scheduling.idle_interval))


def over_in(ledger: Ledger) -> Callable[[str], bool]:
    """Returns a function that gets the uuid of a task and says whether the task is in `ledger` and has ended there."""

    def is_over(uuid: str) -> bool:
        row = ledger.get(uuid)
        return row is not None and row.status in CLOSED_STATUSES

    return is_over


def home_of(settings: Settings) -> str:
    """The id of a ledger in claims, 8 hexadecimal digits: a digest of the shared database's address, or of the host
    name and the path of base_dir.  Since the ledger's id is a digest, the id reveals no secret and no path.  The id of
    the ledger stays the same when the data of the ledger is lost (`intake/orphaned_issues.py`).

    For a local ledger the id is stored in base_dir, in HOME_FILE, when it is first used. Since it is stored, the id of
    a local ledger stays the same when the host gets another name, when a new container uses the same volume, and when
    base_dir is moved. If HOME_FILE is missing, the id is computed again from the host name and the path of base_dir, so
    that a base_dir that was removed and created again on the same host has the same id.
    """
    address = settings.taskqueue.ledger
    if has_address(settings):
        return _digest(address.partition(":")[0], address.rpartition("@")[2])
    kept = settings.base_dir / HOME_FILE
    home = _digest(address.partition(":")[0], f"{hostname()}\0{settings.base_dir.resolve()}")
    try:
        found = kept.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        found = ""
    except OSError:  # a file that cannot be read may have another id, and is not replaced
        return home
    if _HOME_ID.fullmatch(found):
        return found
    with suppress(DiskError):  # if HOME_FILE cannot be written, the next call tries it again
        durable_files.write_file(kept, f"{home}\n".encode())
    return home


def has_address(settings: Settings) -> bool:
    """Whether the ledger is a database with a URL, which is the same on all hosts that share the ledger."""
    return "://" in settings.taskqueue.ledger


def _digest(kind: str, place: str) -> str:
    return blake2b(f"{kind}\0{place}".encode(), digest_size=4).hexdigest()


def with_claim_markers(words: Public, uuid: str, started_by: str | None, home: str, *, ends: bool = False) -> Public:
    """A progress comment with its markers, which name the task, the task's ledger (`home_of`), and the comment that
    asked for the task.

    With `ends` the progress comment also shows the end of the task, since the task gets no other final comment on the
    issue."""
    asking = [marker(uuid, _asking(started_by))] if started_by is not None else []
    end = [marker(uuid, FINAL)] if ends else []
    return with_markers(words, *asking, *end, marker(uuid, f"{HOME}{home}"), marker(uuid, PROGRESS))


def claim(
    forge: Forge,
    key: TaskKey,
    uuid: str,
    words: Callable[[], Public],
    quiet: timedelta,
    *,
    home: str,
    started_by: str | None = None,
    take: Callable[[], bool],
    is_over: Callable[[str], bool] = lambda _uuid: False,
    is_ours: Callable[[], bool] = lambda: True,
    has_comments: bool = True,
) -> bool:
    """Claim the issue for the task `uuid`; returns True if the task has the issue now.

    If the result of `claim` is True, the task has a progress comment (unless all daemons use the same lock), and the
    caller's function `take` has returned True. The function `words` is called for the text of a new progress comment.
    `take` must return False if the issue no longer waits for work. `is_over` returns True for the uuid of a task that
    is in this ledger and has ended, even if its end could not be posted yet. `is_ours` returns False if another process
    has gone on with the task meanwhile; then the claim belongs to that process, and stays. `has_comments` is False if
    the issue had no comments when it was listed; then its comments are read after the claim is posted, and not before.

    If the result of `claim` is False, the claim of the task is not on the issue, unless `is_ours` has returned False. A
    repeated call of `claim` does no harm, even from another process. After a ForgeError it is unknown whether the task
    has the issue; the caller has to call `claim` again.
    """
    if forge.propagation_delay is None and started_by is None:
        return take()
    seen = forge.marked_comments(key) if has_comments or started_by is not None else ()
    if _is_answered(seen, uuid, started_by):
        return False
    if forge.propagation_delay is None:
        return take()
    live = _live(seen, uuid, is_over)
    dead = _dead(forge, key, [one for other, one in live.items() if other != uuid], quiet, again=started_by is not None)
    if uuid not in live:
        if live.keys() - dead.keys() or (started_by is not None and not _may_go_on(forge, key)):
            return False
        forge.post_comment(key, with_claim_markers(words(), uuid, started_by, home))
        clock.sleep(forge.propagation_delay)
        seen = forge.marked_comments(key)
        live = _live(seen, uuid, is_over)
    holders = [other for other, one in live.items() if dead.get(other) != one]
    if holders[:1] != [uuid]:
        return _give_up(forge, key, uuid, is_ours)
    for other in dead.keys() & live.keys():
        forge.remove_comment(key, live[other].id)
    # the worker and a slow poller may both have posted the task's progress comment; the oldest progress comment stays
    for copy in _marks_of_task(seen, uuid)[1:]:
        forge.remove_comment(key, copy.id)
    return take() or _give_up(forge, key, uuid, is_ours)


def _give_up(forge: Forge, key: TaskKey, uuid: str, is_ours: Callable[[], bool]) -> bool:
    """Remove the claim, unless another process of this ledger has gone on with the task: this process may have been
    suspended for long, and the comment may show the end of the task by now.  Returns False."""
    if is_ours():
        withdraw(forge, key, uuid)
    return False


def check(
    forge: Forge,
    key: TaskKey,
    uuid: str,
    words: Callable[[], Public],
    quiet: timedelta,
    *,
    home: str,
    started_by: str | None,
    issue: IssueText,
    posted: bool,
    is_over: Callable[[str], bool] = lambda _uuid: False,
) -> None:
    """Raise TakenElsewhere if another daemon's task has the issue or has ended it, and claim the issue if the worker's
    task has no claim yet. The worker calls `check` after it has read the issue, and before the first turn.

    With `posted` an earlier attempt of the task has posted the progress comment, and the task had the issue then.
    `issue` is the text of the issue, which the caller has just read.
    """
    if forge.propagation_delay is None:
        return
    if posted:
        live = _live(forge.marked_comments(key), uuid, is_over)
        lost = uuid not in live and (bool(live) or _has_ended(forge, issue))
    else:
        again = started_by is not None
        lost = not claim(
            forge,
            key,
            uuid,
            words,
            quiet,
            home=home,
            started_by=started_by,
            is_over=is_over,
            take=lambda: again or not _has_ended(forge, issue),
        )
    if lost:
        raise TakenElsewhere(
            f"{key}: another daemon of this account has taken it; give daemons that look at the same project one "
            f"ledger (docs/scaling.md), or each its own projects"
        )


def withdraw(forge: Forge, key: TaskKey, uuid: str) -> None:
    """Remove the claim of the task from the issue."""
    for one in _marks_of_task(forge.marked_comments(key), uuid):
        forge.remove_comment(key, one.id)


def lost_claim(marks: Iterable[MarkedComment], home: str, is_over: Callable[[str], bool]) -> str | None:
    """The uuid of the oldest live claim made from the ledger `home`; None if there is none."""
    for uuid, one in _live(marks, "", is_over).items():
        if marker(uuid, f"{HOME}{home}") in one.markers:
            return uuid
    return None


def is_claimed(marks: Iterable[MarkedComment], is_over: Callable[[str], bool]) -> bool:
    """Whether one of the comments `marks` is a live claim of any task."""
    return bool(_live(marks, "", is_over))


def is_end_shown(marks: Iterable[MarkedComment], uuid: str) -> bool:
    """Whether one of the comments `marks` is the final comment of the task `uuid`."""
    return any(marker(uuid, FINAL) in one.markers for one in marks)


def shown_end(forge: Forge, key: TaskKey, uuid: str, present: Iterable[str]) -> Status | None:
    """The status with which a task has ended, as its final comment and the label on the forge show it; None if the
    final comment or the label is missing.

    If the forge shows an end of a task and the task's row is open, the forge is right: the row comes from a backup that
    was restored.
    """
    here = set(present) - {""}
    status = next((status for status, state in LABELS.items() if forge.labels.name(state) in here), None)
    if status is None or forge.find_comment(key, marker(uuid, FINAL)) is None:
        return None
    return status


def is_quiet(issue: IssueText, marks: Iterable[MarkedComment], quiet: timedelta) -> bool:
    """Whether neither the issue nor a comment with a marker has changed for the time `quiet`; an unknown time of change
    counts as a change."""
    since = clock.now() - quiet
    return not any(_is_after(when, since) for when in (issue.updated_at, *(one.updated_at for one in marks)))


def is_held(forge: Forge, key: TaskKey, uuid: str, is_over: Callable[[str], bool] = lambda _uuid: False) -> bool:
    """Whether another task has the issue: the other task has a live claim, and the label of the issue says that a task
    works on it or is paused.

    A claim without the label does not count, since the comment of a dead daemon may remain for ever.
    """
    others = _live(forge.marked_comments(key), uuid, is_over).keys() - {uuid}
    return bool(others) and not forge.labels.can_start(forge.read_issue(key).labels)


def _may_go_on(forge: Forge, key: TaskKey) -> bool:
    """Whether a comment can start a task on the issue: the issue is open, and no task works on the issue (the same rule
    as in `Forge.mark_taken`).

    `_may_go_on` is called before the claim is posted, because a new comment makes every daemon read the issue again.
    """
    issue = forge.read_issue(key)
    return issue.state == "open" and forge.labels.can_start(issue.labels)


def _dead(
    forge: Forge, key: TaskKey, others: list[MarkedComment], quiet: timedelta, *, again: bool
) -> dict[str, MarkedComment]:
    """The expired claims of other tasks, of which the daemons are regarded as dead: uuid of the task → progress
    comment.

    If a comment requested the task (`again`), it does not matter when the issue last changed: the requesting comment
    itself has changed the issue, and the label shows that no task works on the issue (`Forge.mark_taken`).  The issue
    is read after its comments, so that a claim that was posted in between shows as a change of the issue.
    """
    if not others:
        return {}
    since = clock.now() - quiet
    if not again and _is_after(forge.read_issue(key).updated_at, since):
        return {}
    return {_whose(one): one for one in others if not _is_after(one.updated_at, since)}


def _is_after(when: str, moment: datetime) -> bool:
    return not when or clock.parse(when) > moment


def _has_ended(forge: Forge, issue: IssueText) -> bool:
    """Whether the issue has the done or the failed label.  If this daemon's task on the issue has not ended, one of
    these labels comes from another daemon or from a person."""
    return not {forge.labels.done, forge.labels.failed}.isdisjoint(issue.labels)


def _whose(one: MarkedComment) -> str:
    return next(uuid for uuid, name in map(parts_of, one.markers) if name == PROGRESS)


def _live(marks: Iterable[MarkedComment], own: str, is_over: Callable[[str], bool]) -> dict[str, MarkedComment]:
    """The live claims among the comments with markers: uuid of the task → progress comment, the oldest first.

    The claim of the task `own` counts as live even after the end of that task.
    """
    progress: dict[str, MarkedComment] = {}
    ended = set()
    for one in marks:
        for uuid, name in map(parts_of, one.markers):
            if name == PROGRESS:
                progress.setdefault(uuid, one)
            elif name == FINAL:
                ended.add(uuid)
    return {uuid: one for uuid, one in progress.items() if uuid == own or not (uuid in ended or is_over(uuid))}


def _marks_of_task(marks: Iterable[MarkedComment], uuid: str) -> list[MarkedComment]:
    return [one for one in marks if marker(uuid, PROGRESS) in one.markers]


def _is_answered(marks: Iterable[MarkedComment], uuid: str, started_by: str | None) -> bool:
    """Whether a marker shows that the comment `started_by` has already started another task."""
    if started_by is None:
        return False
    name = _asking(started_by)
    return any(found[1] == name and found[0] != uuid for one in marks for found in map(parts_of, one.markers))


def _asking(started_by: str) -> str:
    return f"by-{re.sub(r'[^A-Za-z0-9._-]', '-', started_by)}"
