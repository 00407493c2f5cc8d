"""Removes the pushed branch of a closed task that `cleanup` is about to remove, when nobody needs it any more.

Only with `context_storage.cleanup_branches`, since what was pushed is other people's to look at; only a branch of our
own name whose pull request is merged or closed; and only while it is at the very commit that this task pushed last,
which the other side checks once more as it deletes (a lease): a commit of a person, or of a later task, keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.config.environment import network_environment
from agent.errors import (
    ForgeAccessRefused,
    ForgeLimited,
    ForgeUnreachable,
    MakimonoError,
    RemoteAway,
    RemoteRefused,
)
from agent.forge.login import login_of
from agent.run.trash import Removed
from agent.work import gitdir
from agent.work.publish import is_own
from agent.work.remote import Remote

if TYPE_CHECKING:
    from pathlib import Path

    from agent.run.wiring import Wiring
    from agent.taskqueue import Row

PASSING = (ForgeUnreachable, ForgeLimited, ForgeAccessRefused, RemoteAway, RemoteRefused)
"""What may be otherwise tomorrow: nobody there, no calls left, a token that ended.  Other errors are answers."""


@dataclass
class Branches:
    """The branches of one run of `cleanup`.  `waiting` are the tasks whose branch nobody could be asked about."""

    wiring: Wiring
    dry_run: bool
    waiting: list[str] = field(default_factory=list)
    _away: dict[tuple[str, str], MakimonoError] = field(default_factory=dict)

    def remove(self, row: Row, folder: Path) -> Removed | None:
        """Remove the branch of the task of that folder; what went, None when it stays.

        One of PASSING when that cannot be told now: the folder, which alone knows what was pushed, has to stay until
        it can.  Each instance is waited for once in a run.
        """
        place = (row.key.task_source, row.key.instance)
        try:
            state = gitdir.read_state(folder / "git")
            if state is None or state.pushed is None or not self._is_own(state.branch):
                return None
            if place in self._away:
                raise self._away[place]
            return self._remove(row, folder, state.branch, state.pushed)
        except PASSING as error:
            if place not in self._away:
                self._failed(row, error)
            self._away[place] = error
            self.waiting.append(row.uuid)
            raise
        except MakimonoError as error:
            self._failed(row, error)
            return None

    def _is_own(self, branch: str) -> bool:
        return is_own(branch, self.wiring.settings.branch.prefix)

    def _remove(self, row: Row, folder: Path, branch: str, pushed: str) -> Removed | None:
        pull = self.wiring.forge_of(row.key).find_pull(row.key, branch)
        if pull is None or pull.state == "open" or pull.fork:
            return None
        remote = self._remote(row)
        if remote.commit_of(branch) != pushed:
            return None
        if not self.dry_run:
            remote.delete(folder / "git", branch, pushed)
            self.wiring.events.emit("effect_done", uuid=row.uuid, effect=f"delete {branch}", url=pull.url)
        return Removed(branch, "branch", row.completed_at or "", 0)

    def _remote(self, row: Row) -> Remote:
        forge = self.wiring.forge_of(row.key)
        repository = forge.repository(row.key, forge.read(row.key))
        return Remote(repository.url, env=network_environment(), **login_of(forge, row.key, repository))

    def _failed(self, row: Row, error: MakimonoError) -> None:
        self.wiring.events.emit("effect_failed", uuid=row.uuid, effect="delete branch", error=str(error))
