"""Records the repositories of one host in which the forge refuses changes of this account, and when a change is tried
again.

A token may have the right to read issues and no right to write to them. Without a record of the refusal, each poll
would find the same issue and the forge would refuse the change again. So a refusal is recorded: the repository rests
(no change is tried in it) for some time, twice as long after each further refusal up to LONGEST_SECONDS, and a change
that succeeds removes the record. The daemon and `doctor` share the file of refusals,
`{base_dir}/limits/{host}.refused.json`. An unreadable file of refusals counts as empty. Times in the file of refusals
are Unix seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from agent import clock, durable_files
from agent.errors import DiskError
from agent.forge.rate_limiter import file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FIRST_SECONDS, LONGEST_SECONDS = 300.0, 3600.0
"""The shortest and the longest time after a refusal for which no change is tried in the repository."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The forge's last refusal of a change in one repository: the issue that was to be changed, the reason, the number
    of refusals in a row, and the time before which no change is tried again."""

    issue: str
    why: str
    tries: int
    again_at: float

    def is_resting(self) -> bool:
        """Whether it is too early to try a change in the repository again."""
        return clock.now().timestamp() < self.again_at


class RefusedChanges:
    """The refused changes on one host, stored in a file. `folder` is created when the file of refusals is first
    written."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.path = folder / f"{file_name(host)}.refused.json"
        self._unwritten: dict[str, Refusal] | None = None

    def all(self) -> Mapping[str, Refusal]:
        """Repository → the last refusal of a change in that repository."""
        if self._unwritten is not None:
            return self._unwritten
        try:
            found = orjson.loads(self.path.read_bytes())
            return {
                str(name): Refusal(str(one["issue"]), str(one["why"]), int(one["tries"]), float(one["again_at"]))
                for name, one in found.items()
            }
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}

    def is_resting(self, repository: str) -> bool:
        """Whether the forge refused a change in the repository and it is too early to try again."""
        found = self.all().get(repository)
        return found is not None and found.is_resting()

    def note(self, repository: str, issue: str, why: str) -> Refusal | None:
        """Record a refusal of a change; returns the previous refusal in the repository, None for the first refusal in a
        row."""
        before = self.all().get(repository)
        tries = (before.tries if before is not None else 0) + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** (tries - 1))
        made = Refusal(issue, why, tries, clock.now().timestamp() + pause)
        self._update_file(lambda refusals: refusals.update({repository: made}))
        return before

    def clear(self, repository: str) -> None:
        """Record that a change in the repository has succeeded: the record of its refusal is removed."""
        if repository in self.all():
            self._update_file(lambda refusals: refusals.pop(repository, None))

    def _update_file(self, change: Callable[[dict[str, Refusal]], object]) -> None:
        """Apply `change` to the content of the file of refusals; if the file cannot be written, the content stays in
        the memory of this process."""
        refusals = dict(self.all())
        try:
            durable_files.make_dir(self.folder)
            with durable_files.locked(self.path.with_suffix(".lock")):
                refusals = dict(self.all())
                change(refusals)
                text = orjson.dumps({name: asdict(one) for name, one in refusals.items()})
                durable_files.write_file(self.path, text, sync=False)
        except DiskError:
            change(refusals)
            self._unwritten = refusals
        else:
            self._unwritten = None
