"""Holds back the start of tasks: when MANY different tasks failed in the same way, the next ones would probably fail
too.

A failure counts at each place that may have caused it, by its error code: the model's server, the repository, this
host; a failure with any other error code counts at no place. Failures at the model's server or at a repository are of
one kind when they have the same error code. A host can fail in many ways, so all failures without progress that a host
may have caused are of one kind: the host then pauses itself, and other hosts of a shared ledger take the tasks.

After failures of one kind of MANY different tasks in a row, no more tasks are started at the place of the failures for
a while; then one task starts as a probe.  When the probe makes progress, tasks start again at the place of the
failures; when the probe fails in the same way, the wait is twice as long, up to LONGEST_SECONDS. The state of the holds
is in `holds.json`, where the next daemon finds it; that daemon begins with a probe. `Supervisor` changes the state;
`tasks` and `doctor` read it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

import orjson

from agent import clock, durable_files
from agent.daemon.start_limits import server_of
from agent.errors import (
    AccessRefused,
    AnswerUnreadable,
    BaseMissing,
    DiskError,
    ForgeAccessRefused,
    ForgeLimited,
    ForgeUnreachable,
    GitError,
    GitKilled,
    GitStarved,
    HostError,
    LockHeld,
    ModelNotFound,
    ModelStalled,
    ModelUnreachable,
    QuotaExhausted,
    RateLimited,
    RemoteAway,
    RemoteRefused,
    RepositoryMissing,
    RequestRefused,
    SandboxUnavailable,
    SetupFailed,
)
from agent.store.storable_text import dumps
from agent.taskqueue.row_holder import hostname
from agent.values import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row

NAME = "holds.json"
MANY = 3
FIRST_SECONDS, LONGEST_SECONDS = 60.0, 1800.0

Kind = Literal["server", "repository", "host"]
"""The kinds of places: the model's server, which all tasks use; one repository; this host."""

SERVER = frozenset(
    one.code
    for one in (
        *(ModelUnreachable, ModelStalled, RateLimited, QuotaExhausted, AccessRefused, ModelNotFound),
        *(AnswerUnreadable, RequestRefused),
    )
)
REPOSITORY = frozenset(
    one.code
    for one in (
        *(SetupFailed, BaseMissing, RepositoryMissing, RemoteAway, RemoteRefused, GitKilled),
        *(ForgeAccessRefused, ForgeUnreachable, ForgeLimited),
    )
)
"""SERVER and REPOSITORY are the error codes of failures that the model's server or the repository causes, not the
task."""

NO_SANDBOX = "no_sandbox"
"""The error code of a task of which all commands were refused (`worker/delivery_report.py`): the host is the cause,
even if the model made progress."""
DIED = "died"
"""The error code of a worker that died, or ended before it owned its task."""
HOST = frozenset(
    (
        *(one.code for one in (GitError, GitKilled, GitStarved, HostError, SandboxUnavailable, LockHeld)),
        *("host", "bug", NO_SANDBOX, DIED),
    )
)
"""Error codes of failures that this host may cause: its memory, processes and files, its sandbox, git, the
installation."""

CODES: dict[Kind, frozenset[str]] = {"server": SERVER, "repository": REPOSITORY, "host": HOST}


@dataclass
class StartHold:
    """The failures at one place (the model's server, a repository or a host) and, after MANY of them, its hold.

    `place`: the name of the place, for people. `code`: the error code of the newest failure. `tasks`: keys of the
    newest tasks that failed in a row at the place, at most MANY. `until`: the time before which no held task starts; ""
    while tasks start normally. `tries`: the number of probes (single tasks started as a test) that failed. `probe`: the
    uuid of the task that is the probe, "" without a probe."""

    kind: Kind
    place: str
    code: str
    tasks: list[str] = field(default_factory=list)
    until: str = ""
    tries: int = 0
    probe: str = ""

    @property
    def is_of_one_repository(self) -> bool:
        """Whether the hold concerns only tasks of one repository."""
        return self.kind == "repository"

    @property
    def text(self) -> str:
        """A line about the hold for people."""
        count = f"{len(self.tasks)} different"
        if self.kind == "host":
            said = f"{self.place} starts nothing: {count} tasks in a row failed here (the newest: {self.code})"
        else:
            said = f"no new task of {self.place} is started: {count} ones failed alike ({self.code})"
        return f"{said}; one is tried after {minute(self.until)}, or when the daemon is started again"


class StartHolds:
    """The failures and holds of one base_dir, by place; `ended` is called after a hold has ended."""

    def __init__(
        self, settings: Settings, ledger: Ledger, events: Events, ended: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.events = events
        self.ended = ended
        self.path = settings.base_dir / NAME
        self.known = {one.place: one for one in read(settings.base_dir)}
        # When a daemon starts, the next task at the place of each hold becomes a probe at once, since a person who
        # restarted the daemon may have removed the cause of the failures.
        for one in self.known.values():
            one.until, one.probe = (clock.stamp() if one.until else ""), ""

    def record_end(self, uuid: str) -> None:
        """Record the result of a task after its worker has ended."""
        row = self.ledger.get(uuid)
        if row is None:
            return
        code = row.error_code or ""
        failed = row.status in (Status.FAILED, Status.QUEUED)
        if not code and row.deaths:
            code = DIED
        before = [asdict(one) for one in self.known.values()]
        for kind, place in resources_of(self.settings, row).items():
            if failed and code in CODES[kind] and not (kind == "host" and _has_got_on(row) and code != NO_SANDBOX):
                self._count_failure(kind, code, row)
            elif _has_got_on(row) or (kind != "server" and row.status is Status.COMPLETED):
                self._release_hold(place)
            elif (hold := self.known.get(place)) is not None and hold.probe == uuid:
                hold.probe = ""  # the probe's end shows nothing about the place; the next task becomes the probe
        if before != [asdict(one) for one in self.known.values()]:
            self._write()

    def note_unclaimed(self, uuid: str) -> None:
        """Record that a worker ended before it owned its task, which may be a failure of this host."""
        if (row := self.ledger.get(uuid)) is not None:
            self._count_failure("host", DIED, row)
            self._write()

    def check_probe(self) -> None:
        """Remove the holds of which the probe has made progress, except a hold for refused commands (NO_SANDBOX)."""
        for hold in list(self.known.values()):
            if hold.code == NO_SANDBOX:
                continue  # the hold stays, since an answer of the model does not prove that the sandbox works
            if hold.probe and (row := self.ledger.get(hold.probe)) is not None and _has_got_on(row):
                self._release_hold(hold.place)
                self._write()

    def is_held(self, row: Row) -> bool:
        """Whether the task must wait because a hold applies to it.

        The first task that may start when the wait of a hold is over becomes the probe of the hold.
        """
        held = holds_of(self.settings, row, self.known.values())
        if any(is_closed(self.ledger, one) for one in held):
            return True
        for one in held:
            one.probe = row.uuid
        if held:
            self._write()
        return False

    def is_shut(self) -> bool:
        """Whether a hold for the model's server lets no task start, because the hold's next probe is not due yet."""
        hold = self.known.get(_server_of(self.settings))
        return hold is not None and bool(hold.until) and _lasts(hold, clock.stamp())

    def _count_failure(self, kind: Kind, code: str, row: Row) -> None:
        place = resources_of(self.settings, row)[kind]
        hold = self.known.get(place)
        if hold is None or (hold.code != code and kind != "host"):
            hold = self.known[place] = StartHold(kind, place, code)
        hold.code = code
        hold.tasks = [*(one for one in hold.tasks if one != str(row.key)), str(row.key)][-MANY:]
        if len(hold.tasks) < MANY:
            return
        if not hold.until:
            hold.until = _time_after(FIRST_SECONDS)
            self.events.emit("starts_held", place=place, code=code, tasks=hold.tasks, until=hold.until)
        elif hold.probe == row.uuid:
            hold.tries, hold.probe = hold.tries + 1, ""
            hold.until = _time_after(min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**hold.tries))

    def _release_hold(self, place: str) -> None:
        hold = self.known.pop(place, None)
        if hold is not None and hold.until:
            self.events.emit("starts_go_on", place=place)
            self.ended()

    def _write(self) -> None:
        try:
            durable_files.write_file(self.path, dumps([asdict(one) for one in self.known.values()]), sync=False)
        except DiskError:
            pass  # the error is ignored: this daemon has the holds in memory, and only the next daemon lacks them


def resources_of(settings: Settings, row: Row) -> dict[Kind, str]:
    """The model server, the repository and the host that the task uses, by the kind of place that a start hold
    names."""
    return {
        "server": _server_of(settings),
        "repository": f"the repository {row.task_source} {row.instance} {row.owner}/{row.repo}",
        "host": f"this host {hostname()}",
    }


def _server_of(settings: Settings) -> str:
    return f"the model's server {server_of(settings)}"


def holds_of(settings: Settings, row: Row, known: Iterable[StartHold]) -> list[StartHold]:
    """The holds among `known` that apply to the task, except a hold of which the task is the probe."""
    held = [one for one in known if one.until and one.probe != row.uuid]
    places = resources_of(settings, row).values() if held else ()
    return [one for one in held if one.place in places]


def is_closed(ledger: Ledger, hold: StartHold) -> bool:
    """Whether no task may start now at the place of the hold: no probe is due yet, or a probe runs or waits to run."""
    if _lasts(hold, clock.stamp()):
        return True
    row = ledger.get(hold.probe) if hold.probe else None
    if row is None:
        return False
    due = row.not_before is None or row.not_before <= clock.stamp()
    return row.status is Status.RUNNING or (row.status is Status.QUEUED and due)


def read(base_dir: Path) -> list[StartHold]:
    """The recorded failures and holds of every place; an empty list when the file of holds is missing, unreadable, or
    of an older version."""
    try:
        found: list[dict[str, Any]] = orjson.loads((base_dir / NAME).read_bytes())
        return [StartHold(**one) for one in found if one["kind"] in get_args(Kind)]
    except (OSError, orjson.JSONDecodeError, TypeError, KeyError):
        return []


def minute(stamp: str) -> str:
    """A time stamp as `2026-01-31 09:15 UTC`."""
    return f"{stamp[:16].replace('T', ' ')} UTC"


def lines(base_dir: Path) -> list[str]:
    """A line for people about each place at which tasks are held back."""
    return [one.text for one in read(base_dir) if one.until]


def _lasts(hold: StartHold, now: str) -> bool:
    """Whether a hold still lasts, that is, whether its next probe is not due yet.

    The end of a hold that is further away than the longest hold was written before the clock was set back, and is
    ignored: otherwise a hold of minutes would last for years.
    """
    return now < hold.until <= _time_after(LONGEST_SECONDS)


def _has_got_on(row: Row) -> bool:
    """Whether the newest attempt of the task got an answer from the model or ran a tool."""
    return row.llm_call_count + row.tool_call_count > row.progress_at_claim


def _time_after(seconds: float) -> str:
    return clock.stamp(clock.now() + timedelta(seconds=seconds))
