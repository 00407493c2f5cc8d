"""Of daemons that know nothing of each other (one account, a ledger each) one works on an issue: the forge arbitrates.

The claim is the progress comment, which every task posts anyway: the first thing that is written on an issue, before
the label moves.  Its marker has the task's uuid, so the claim is the task's, whichever host that shares the ledger
takes it up, and after a crash it is found again.  A claim is *live* from then on until the final comment of the same
task stands there, or the ledger here knows that it has ended.  Of several live ones the oldest has the issue, by the
order in which the forge numbered them; who is not the oldest removes his comment and gives the row up.

A forge may show a comment a moment after a younger one (two transactions); so a new claim is looked at once more after
`Forge.settle` seconds, and only then counts.  Who holds one and finds the issue still waiting moves the label at his
next look; so a claim that stands on an issue which waits, with nothing stirring there for `quiet_of`, is one of a
daemon that is no more: whoever claims then removes it.  A task that comes back after that finds its comment gone and
another's there, and ends.

A comment that asks for more (`started_by`) is named in a second marker, so that it starts one task, also when that has
ended before somebody else reads it.  Called by `starting.py` for the poller, by `task_run.py` for the worker.
"""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from agent import clock
from agent.errors import TakenElsewhere
from agent.forge.marks import marked, marker, parts_of
from agent.taskqueue.identity import hostname
from agent.values import CLOSED_STATUSES, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from agent.config import Settings
    from agent.forge.base import Forge, IssueText, LabelState, Marked
    from agent.taskqueue import Ledger
    from agent.values import Public, TaskKey

LABELS: dict[Status, LabelState] = {
    Status.COMPLETED: "done",
    Status.FAILED: "failed",
    Status.STOPPED: "stopped",
}
PROGRESS, FINAL, HOME = "progress", "final", "of-"
QUIET_SECONDS, LOOKS = 900.0, 3
"""How long an issue waits at least, with a claim on it and nothing stirring, before the claim counts for nothing; and
how many looks of an idle daemon must fit in."""


def quiet_of(settings: Settings) -> timedelta:
    """How long nothing may stir on an issue that waits before the claim on it counts for nothing."""
    return timedelta(seconds=max(QUIET_SECONDS, LOOKS * settings.scheduling.idle_interval))


def over_in(ledger: Ledger) -> Callable[[str], bool]:
    """Whether a task of this ledger has ended; of any other nothing is known."""

    def is_over(uuid: str) -> bool:
        row = ledger.get(uuid)
        return row is not None and row.status in CLOSED_STATUSES

    return is_over


def home_of(settings: Settings) -> str:
    """8 hex digits that say whose ledger a claim was made from: this host and base_dir, or the shared database.  No
    secret and no path can be read from them, and they outlive the ledger itself (`run/left.py`)."""
    address = settings.taskqueue.ledger
    place = address.rpartition("@")[2] if "://" in address else f"{hostname()}\0{settings.base_dir.resolve()}"
    return blake2b(f"{address.partition(':')[0]}\0{place}".encode(), digest_size=4).hexdigest()


def signed(words: Public, uuid: str, started_by: str | None, home: str) -> Public:
    """A progress comment with its markers: whose it is, of which ledger (`home_of`), and which comment asked for it."""
    asking = [marker(uuid, _asking(started_by))] if started_by is not None else []
    return marked(words, *asking, marker(uuid, f"{HOME}{home}"), marker(uuid, PROGRESS))


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
    """Whether the issue is this task's; then its progress comment, with `words`, is there, and `take` (move the label;
    False: it does not wait any more) has been done.  `is_over`: whether the task of a uuid is known here and has ended;
    perhaps it could not be told yet.

    Else nothing of the task is left on the issue.  May be called again, and by another process.  ForgeError: it is not
    known; call it again.
    """
    if forge.settle is None and started_by is None:
        return take()
    seen = forge.marked_comments(key)
    if _is_answered(seen, uuid, started_by):
        return False
    if forge.settle is None:
        return take()
    live = _live(seen, uuid, is_over)
    dead = _dead(forge, key, [one for other, one in live.items() if other != uuid], quiet, again=started_by is not None)
    if uuid not in live:
        if live.keys() - dead.keys() or (started_by is not None and not _may_go_on(forge, key)):
            return False
        forge.post_comment(key, signed(words(), uuid, started_by, home))
        clock.sleep(forge.settle)
        seen = forge.marked_comments(key)
        live = _live(seen, uuid, is_over)
    holders = [other for other, one in live.items() if dead.get(other) != one]
    if holders[:1] != [uuid]:
        withdraw(forge, key, uuid)
        return False
    for other in dead.keys() & live.keys():
        forge.remove_comment(key, live[other].id)
    for copy in _of(seen, uuid)[1:]:  # a worker, and a poller that was slow, may both have posted it
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
    """What a worker does before anything else: TakenElsewhere when the issue is not this task's (any more).

    `posted`: an attempt of this task has seen its progress comment before.  `issue` as it was read just now.
    """
    if forge.settle is None:
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
    """Take the task's claim back."""
    for one in _of(forge.marked_comments(key), uuid):
        forge.remove_comment(key, one.id)


def lost(marks: Iterable[Marked], home: str, is_over: Callable[[str], bool]) -> str | None:
    """The uuid of the oldest live claim that was made from this ledger's home, None when there is none."""
    for uuid, one in _live(marks, "", is_over).items():
        if marker(uuid, f"{HOME}{home}") in one.markers:
            return uuid
    return None


def is_claimed(marks: Iterable[Marked], is_over: Callable[[str], bool]) -> bool:
    """Whether there is a live claim, whosever."""
    return bool(_live(marks, "", is_over))


def told_end(forge: Forge, key: TaskKey, uuid: str, present: Iterable[str]) -> Status | None:
    """The end of this very task as the forge shows it, by its final comment and the label: newer than a row that is
    open, and than any backup.  None when it shows none."""
    here = set(present) - {""}
    status = next((status for status, state in LABELS.items() if forge.labels.name(state) in here), None)
    if status is None or forge.find_comment(key, marker(uuid, FINAL)) is None:
        return None
    return status


def is_quiet(issue: IssueText, marks: Iterable[Marked], quiet: timedelta) -> bool:
    """Whether nothing of ours has stirred on the issue for so long."""
    since = clock.now() - quiet
    return not any(_is_after(when, since) for when in (issue.updated_at, *(one.updated_at for one in marks)))


def is_held(forge: Forge, key: TaskKey, uuid: str, is_over: Callable[[str], bool] = lambda _uuid: False) -> bool:
    """Whether a task that this one knows nothing of has the issue: by its claim, and by the label, since what is left
    of a claim may stand there for ever."""
    others = _live(forge.marked_comments(key), uuid, is_over).keys() - {uuid}
    return bool(others) and not forge.labels.can_start(forge.read(key).labels)


def _may_go_on(forge: Forge, key: TaskKey) -> bool:
    """Whether a comment can start a task (`Forge.take`): looked at before anything is written, since what is written
    stirs the issue, and whoever watches it looks again."""
    issue = forge.read(key)
    return issue.state == "open" and forge.labels.can_start(issue.labels)


def _dead(forge: Forge, key: TaskKey, others: list[Marked], quiet: timedelta, *, again: bool) -> dict[str, Marked]:
    """Those of the claims of others whose holders are gone: uuid → the comment as it is.

    Where a comment asks for more, the label says that nobody works (`Forge.take`), and the comment itself has stirred.
    The issue is read after the comments: whoever has claimed since has stirred it.
    """
    if not others:
        return {}
    since = clock.now() - quiet
    if not again and _is_after(forge.read(key).updated_at, since):
        return {}
    return {_whose(one): one for one in others if not _is_after(one.updated_at, since)}


def _is_after(when: str, moment: datetime) -> bool:
    return not when or clock.parse(when) > moment


def _has_ended(forge: Forge, issue: IssueText) -> bool:
    """Whether the label says that the work is done: somebody else has done it then."""
    return not {forge.labels.done, forge.labels.failed}.isdisjoint(issue.labels)


def _whose(one: Marked) -> str:
    return next(uuid for uuid, name in map(parts_of, one.markers) if name == PROGRESS)


def _live(marks: Iterable[Marked], own: str, is_over: Callable[[str], bool]) -> dict[str, Marked]:
    """Live claims: uuid → its progress comment, the oldest first.  That of `own` is one also after its end."""
    progress: dict[str, Marked] = {}
    ended = set()
    for one in marks:
        for uuid, name in map(parts_of, one.markers):
            if name == PROGRESS:
                progress.setdefault(uuid, one)
            elif name == FINAL:
                ended.add(uuid)
    return {uuid: one for uuid, one in progress.items() if uuid == own or not (uuid in ended or is_over(uuid))}


def _of(marks: Iterable[Marked], uuid: str) -> list[Marked]:
    return [one for one in marks if marker(uuid, PROGRESS) in one.markers]


def _is_answered(marks: Iterable[Marked], uuid: str, started_by: str | None) -> bool:
    """Whether another task was started by this comment."""
    if started_by is None:
        return False
    name = _asking(started_by)
    return any(found[1] == name and found[0] != uuid for one in marks for found in map(parts_of, one.markers))


def _asking(started_by: str) -> str:
    return f"by-{re.sub(r'[^A-Za-z0-9._-]', '-', started_by)}"
