"""Elects one daemon per issue among daemons of one account that do not share a ledger; the forge arbitrates.

The claim is the progress comment, which every task posts anyway.  The claim is the first write on an issue, before the
label moves.  The marker of the progress comment carries the task's uuid: the claim belongs to the task, not to a host,
and can be found after a crash.  A claim is *live* until the final comment of the same task is posted, or until the
local ledger says that the task has ended.  Among several live claims the oldest wins, in the order of the forge's
comment ids.  Every other daemon deletes its comment and gives up its row.

A forge may make an older comment visible after a younger one (two transactions).  A new claim is therefore read again
after `Forge.propagation_delay` seconds and counts only then.  A live daemon that holds a claim on a waiting issue moves
the label at its next poll.  So a claim on a waiting issue without activity for `quiet_of` belongs to a dead daemon, and
the next daemon that claims removes it.  A task that resumes later finds another claim in place of its own, and ends.

A comment that requests a new task (`started_by`) is named in a second marker, so that it starts only one task, even if
that task has ended before another daemon reads the comment.  `intake/enqueue.py` claims for the poller,
`worker/preparation.py` for the worker.
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
"""The file in base_dir with the id by which claims name the local ledger (`home_of`)."""
QUIET_SECONDS, LOOKS = 900.0, 3
"""A claim on a waiting issue expires after this many seconds without activity, but not before this many polls of an
idle daemon."""


_HOME_ID = re.compile(r"[0-9a-f]{8}")


def quiet_of(settings: Settings) -> timedelta:
    """The time without activity after which a claim on a waiting issue expires."""
    return timedelta(seconds=max(QUIET_SECONDS, LOOKS * settings.scheduling.idle_interval))


def over_in(ledger: Ledger) -> Callable[[str], bool]:
    """A function of a task's uuid, which returns True if the task is in this ledger and has ended."""

    def is_over(uuid: str) -> bool:
        row = ledger.get(uuid)
        return row is not None and row.status in CLOSED_STATUSES

    return is_over


def home_of(settings: Settings) -> str:
    """8 hexadecimal digits that identify the ledger from which a claim was made: this host and base_dir, or the shared
    database.  The digits are a digest, so they reveal no secret and no path, and they stay the same when the ledger is
    lost (`intake/orphaned_issues.py`).

    The id of a base_dir is stored there in HOME_FILE when it is first used.  So the id stays the same when the host
    gets another name, when a new container uses the same volume, and when base_dir is moved.  If the file is missing,
    the id is computed again from the host name and the path, so that a base_dir that was removed and made again has the
    same id.
    """
    address = settings.taskqueue.ledger
    if has_address(settings):
        return _digest(address.partition(":")[0], address.rpartition("@")[2])
    kept = settings.base_dir / HOME_FILE
    with suppress(OSError):
        found = kept.read_text("ascii", "replace").strip()
        if _HOME_ID.fullmatch(found):
            return found
    home = _digest(address.partition(":")[0], f"{hostname()}\0{settings.base_dir.resolve()}")
    with suppress(DiskError):  # if the write fails, the file is written at the next use
        durable_files.write_file(kept, f"{home}\n".encode())
    return home


def has_address(settings: Settings) -> bool:
    """Whether the ledger has a URL, which is the same on all hosts that share it."""
    return "://" in settings.taskqueue.ledger


def _digest(kind: str, place: str) -> str:
    return blake2b(f"{kind}\0{place}".encode(), digest_size=4).hexdigest()


def with_claim_markers(words: Public, uuid: str, started_by: str | None, home: str) -> Public:
    """A progress comment with its markers: the task, its ledger (`home_of`), and the comment that requested it."""
    asking = [marker(uuid, _asking(started_by))] if started_by is not None else []
    return with_markers(words, *asking, marker(uuid, f"{HOME}{home}"), marker(uuid, PROGRESS))


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
) -> bool:
    """Claim the issue for this task; True if it has the issue.

    If the result is True, the progress comment with the text of `words` is posted, and `take` has changed the label.
    `take` returns False if the issue no longer waits.  `is_over` returns True for the uuid of a task that is in this
    ledger and has ended, even if its end could not be posted yet.

    If the result is False, nothing of the task is left on the issue.  The call is idempotent, also across processes.
    After a ForgeError the result is unknown; call it again.
    """
    if forge.propagation_delay is None and started_by is None:
        return take()
    seen = forge.marked_comments(key)
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
        withdraw(forge, key, uuid)
        return False
    for other in dead.keys() & live.keys():
        forge.remove_comment(key, live[other].id)
    for copy in _of(seen, uuid)[1:]:  # the worker and a slow poller may both have posted the comment
        forge.remove_comment(key, copy.id)
    if not take():
        withdraw(forge, key, uuid)
        return False
    return True


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
    """The worker's first step: raise TakenElsewhere if the issue does not belong to this task, or does not belong to it
    any more.

    `posted`: an earlier attempt of this task has posted the progress comment and seen it.  `issue` is the issue as it
    was just read.
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
    """Remove the claim of the task."""
    for one in _of(forge.marked_comments(key), uuid):
        forge.remove_comment(key, one.id)


def lost_claim(marks: Iterable[MarkedComment], home: str, is_over: Callable[[str], bool]) -> str | None:
    """The uuid of the oldest live claim made from the ledger `home`; None if there is none."""
    for uuid, one in _live(marks, "", is_over).items():
        if marker(uuid, f"{HOME}{home}") in one.markers:
            return uuid
    return None


def is_claimed(marks: Iterable[MarkedComment], is_over: Callable[[str], bool]) -> bool:
    """Whether there is a live claim of any task."""
    return bool(_live(marks, "", is_over))


def is_end_shown(marks: Iterable[MarkedComment], uuid: str) -> bool:
    """Whether the final comment of this task is posted."""
    return any(marker(uuid, FINAL) in one.markers for one in marks)


def shown_end(forge: Forge, key: TaskKey, uuid: str, present: Iterable[str]) -> Status | None:
    """The end of this task according to its final comment and the label on the forge; None if they show no end.

    If comment and label show an end although the row is open, the forge is right: the row comes from a backup that was
    restored.
    """
    here = set(present) - {""}
    status = next((status for status, state in LABELS.items() if forge.labels.name(state) in here), None)
    if status is None or forge.find_comment(key, marker(uuid, FINAL)) is None:
        return None
    return status


def is_quiet(issue: IssueText, marks: Iterable[MarkedComment], quiet: timedelta) -> bool:
    """Whether neither the issue nor a marked comment has changed for `quiet`."""
    since = clock.now() - quiet
    return not any(_is_after(when, since) for when in (issue.updated_at, *(one.updated_at for one in marks)))


def is_held(forge: Forge, key: TaskKey, uuid: str, is_over: Callable[[str], bool] = lambda _uuid: False) -> bool:
    """Whether another task has the issue: it has a live claim, and the label says that somebody works.

    The claim alone does not count, since the comment of a dead daemon may remain for ever.
    """
    others = _live(forge.marked_comments(key), uuid, is_over).keys() - {uuid}
    return bool(others) and not forge.labels.can_start(forge.read_issue(key).labels)


def _may_go_on(forge: Forge, key: TaskKey) -> bool:
    """Whether a comment can start a task (`Forge.mark_taken`).

    The permission is checked before the first write, because a write changes the issue and makes every daemon read it
    again.
    """
    issue = forge.read_issue(key)
    return issue.state == "open" and forge.labels.can_start(issue.labels)


def _dead(
    forge: Forge, key: TaskKey, others: list[MarkedComment], quiet: timedelta, *, again: bool
) -> dict[str, MarkedComment]:
    """Claims of other tasks that have no living daemon, as uuid → comment.

    If a comment requested the task (`again`), the age of the issue does not count: the label shows that nobody works on
    it (`Forge.mark_taken`), and the request itself changed the issue.  The issue is read after the comments, so that a
    claim posted in between shows as a change.
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
    """Whether the label shows that the work has ended, which means that another daemon did it."""
    return not {forge.labels.done, forge.labels.failed}.isdisjoint(issue.labels)


def _whose(one: MarkedComment) -> str:
    return next(uuid for uuid, name in map(parts_of, one.markers) if name == PROGRESS)


def _live(marks: Iterable[MarkedComment], own: str, is_over: Callable[[str], bool]) -> dict[str, MarkedComment]:
    """Live claims as uuid → progress comment, the oldest first.

    The claim of the task `own` counts even after its end.
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


def _of(marks: Iterable[MarkedComment], uuid: str) -> list[MarkedComment]:
    return [one for one in marks if marker(uuid, PROGRESS) in one.markers]


def _is_answered(marks: Iterable[MarkedComment], uuid: str, started_by: str | None) -> bool:
    """Whether the comment `started_by` has started another task."""
    if started_by is None:
        return False
    name = _asking(started_by)
    return any(found[1] == name and found[0] != uuid for one in marks for found in map(parts_of, one.markers))


def _asking(started_by: str) -> str:
    return f"by-{re.sub(r'[^A-Za-z0-9._-]', '-', started_by)}"
