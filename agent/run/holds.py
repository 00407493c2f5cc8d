"""Starts that are held: where three different tasks failed alike, the next ones would too.

A failure counts for a place: the model's server, the repository, or this very host.  At the first two the failures are
alike by their code; a host falls ill in many ways, so that three different tasks in a row which got nowhere by anything
that may be of the host are alike: the host pauses itself, and others of a shared ledger have the tasks.  After MANY
different tasks in a row that ended there with the same code, no more are started there for a while; then one task is
let go as a probe.  When the model answers the probe, the place is free; when the probe fails alike, the place is held
for twice as long.  What is known is in `holds.json`, where the next daemon finds it: that one begins with a
probe.  `Supervisor` writes it; `tasks` and `doctor` read it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, disk
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
    SurroundingsError,
)
from agent.taskqueue.identity import hostname
from agent.values import Status

if TYPE_CHECKING:
    from pathlib import Path

    from agent.config import Settings
    from agent.observe.events import Events
    from agent.taskqueue import Ledger, Row

NAME = "holds.json"
MANY = 3
FIRST_SECONDS, LONGEST_SECONDS = 60.0, 1800.0

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
"""Codes of what lies in the place and not in the task."""

NO_SANDBOX = "no_sandbox"
"""Of a task whose every command was refused (`report.py`): it lies in this host, however far the model came."""
DIED = "died"
"""Stands for a worker that died, or ended before it owned its task."""
HOST = frozenset(
    (
        *(one.code for one in (GitError, GitKilled, GitStarved, SurroundingsError, SandboxUnavailable, LockHeld)),
        *("host", "bug", NO_SANDBOX, DIED),
    )
)
"""Codes of what may lie in this host: its memory, processes and files, its sandbox, its git, its installation."""


@dataclass
class Hold:
    """What is known of one place.  `tasks`: keys of those that failed in a row with `code`; `until`: no start before,
    "" while nothing is held; `tries`: probes that failed; `probe`: the uuid of the task that is let go."""

    place: str
    code: str
    tasks: list[str] = field(default_factory=list)
    until: str = ""
    tries: int = 0
    probe: str = ""

    @property
    def is_of_one_repository(self) -> bool:
        """Whether the tasks of all other repositories are started all the same."""
        return self.place.startswith("the repository ")

    @property
    def text(self) -> str:
        """The line for people."""
        if self.place.startswith("this host "):
            return (
                f"{self.place} starts nothing: {len(self.tasks)} different tasks in a row failed here (the newest: "
                f"{self.code}); one is tried after {self.until[:16].replace('T', ' ')} UTC, or when the daemon is "
                f"started again"
            )
        return (
            f"no new task of {self.place} is started: {len(self.tasks)} different ones failed alike ({self.code}); "
            f"one is tried after {self.until[:16].replace('T', ' ')} UTC, or when the daemon is started again"
        )


class Holds:
    """The holds of one base_dir."""

    def __init__(self, settings: Settings, ledger: Ledger, events: Events) -> None:
        self.settings = settings
        self.ledger = ledger
        self.events = events
        self.path = settings.base_dir / NAME
        self.known = {one.place: one for one in read(settings.base_dir)}
        for one in self.known.values():  # whoever starts the daemon again has mended something, perhaps
            one.until, one.probe = (clock.stamp() if one.until else ""), ""

    def note(self, uuid: str) -> None:
        """Take in what became of a task whose worker has ended."""
        row = self.ledger.get(uuid)
        if row is None:
            return
        code = row.error_code or ""
        places = {self._server(): SERVER, self._repository(row): REPOSITORY, self._host(): HOST}
        failed = row.status in (Status.FAILED, Status.QUEUED)
        if not code and row.deaths:
            code = DIED
        before = [asdict(one) for one in self.known.values()]
        for place, codes in places.items():
            if failed and code in codes and not (codes is HOST and _has_got_on(row) and code != NO_SANDBOX):
                self._failed(place, code, row)
            elif _has_got_on(row) or (codes is not SERVER and row.status is Status.COMPLETED):
                self._free(place)
            elif (hold := self.known.get(place)) is not None and hold.probe == uuid:
                hold.probe = ""  # it ended in another way, and says nothing of the place
        if before != [asdict(one) for one in self.known.values()]:
            self._write()

    def note_unclaimed(self, uuid: str) -> None:
        """A worker ended before it owned its task."""
        if (row := self.ledger.get(uuid)) is not None:
            self._failed(self._host(), DIED, row)
            self._write()

    def look(self) -> None:
        """Whether a probe that runs has got on."""
        for hold in list(self.known.values()):
            if hold.code == NO_SANDBOX:
                continue  # that the model answers says nothing of it
            if hold.probe and (row := self.ledger.get(hold.probe)) is not None and _has_got_on(row):
                self._free(hold.place)
                self._write()

    def holds(self, row: Row) -> bool:
        """Whether the task must wait.  The first that may start when the time is over becomes the probe."""
        held = [
            one
            for place in (self._server(), self._repository(row), self._host())
            if (one := self._held(place)) is not None
        ]
        now = clock.stamp()
        held = [one for one in held if one.probe != row.uuid]
        if any(one.until > now or self._is_probed(one) for one in held):
            return True
        for one in held:
            one.probe = row.uuid
        if held:
            self._write()
        return False

    def is_shut(self) -> bool:
        """Whether no task at all may start: the model's server is held, and it is no time for a probe yet."""
        hold = self._held(self._server())
        return hold is not None and hold.until > clock.stamp()

    def _held(self, place: str) -> Hold | None:
        hold = self.known.get(place)
        return hold if hold is not None and hold.until else None

    def _is_probed(self, hold: Hold) -> bool:
        row = self.ledger.get(hold.probe) if hold.probe else None
        if row is None:
            return False
        due = row.not_before is None or row.not_before <= clock.stamp()
        return row.status is Status.RUNNING or (row.status is Status.QUEUED and due)

    def _failed(self, place: str, code: str, row: Row) -> None:
        hold = self.known.get(place)
        if hold is None or (hold.code != code and place != self._host()):
            hold = self.known[place] = Hold(place, code)
        hold.code = code
        hold.tasks = [*(one for one in hold.tasks if one != str(row.key)), str(row.key)][-MANY:]
        if len(hold.tasks) < MANY:
            return
        if not hold.until:
            hold.until = _after(FIRST_SECONDS)
            self.events.emit("starts_held", place=place, code=code, tasks=hold.tasks, until=hold.until)
        elif hold.probe == row.uuid:
            hold.tries, hold.probe = hold.tries + 1, ""
            hold.until = _after(min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**hold.tries))

    def _free(self, place: str) -> None:
        hold = self.known.pop(place, None)
        if hold is not None and hold.until:
            self.events.emit("starts_go_on", place=place)

    def _server(self) -> str:
        provider = self.settings.provider()
        return f"the model's server {provider.name} {provider.base_url or ''}".strip()

    def _repository(self, row: Row) -> str:
        return f"the repository {row.task_source} {row.instance} {row.owner}/{row.repo}"

    def _host(self) -> str:
        return f"this host {hostname()}"

    def _write(self) -> None:
        try:
            disk.write_file(self.path, orjson.dumps([asdict(one) for one in self.known.values()]), sync=False)
        except DiskError:
            pass  # this daemon knows; no task is lost by it


def read(base_dir: Path) -> list[Hold]:
    """What is known of every place; nothing when the file is not there or cannot be read."""
    try:
        found: list[dict[str, Any]] = orjson.loads((base_dir / NAME).read_bytes())
        return [Hold(**one) for one in found]
    except (OSError, orjson.JSONDecodeError, TypeError):
        return []


def lines(base_dir: Path) -> list[str]:
    """A line for each place whose starts are held."""
    return [one.text for one in read(base_dir) if one.until]


def _has_got_on(row: Row) -> bool:
    """Whether the newest attempt had an answer of the model."""
    return row.llm_call_count + row.tool_call_count > row.progress_at_claim


def _after(seconds: float) -> str:
    return clock.stamp(clock.now() + timedelta(seconds=seconds))
