"""Removes the pushed branch of a closed task that `cleanup` is about to remove, if the branch is not needed any more.

The module removes branches only if `context_storage.cleanup_branches` is set, because other people may use pushed
branches.  A branch is removed only if its name has the prefix of this program, its pull request is merged or closed,
and its last commit is the one that the closed task pushed last.  The deletion is a push with a lease: the remote
refuses it if the branch has a newer commit of a person or of a later task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.commands.removed_items import Removed
from agent.config.environment import network_environment
from agent.errors import (
    ForgeAccessRefused,
    ForgeLimited,
    ForgeUnreachable,
    MakimonoError,
    RemoteAway,
    RemoteRefused,
)
from agent.forge.git_credentials import login_of
from agent.work import gitdir
from agent.work.publish import is_own
from agent.work.remote import Remote

if TYPE_CHECKING:
    from pathlib import Path

    from agent.taskqueue import Row
    from agent.wiring.wiring import Wiring

PASSING = (ForgeUnreachable, ForgeLimited, ForgeAccessRefused, RemoteAway, RemoteRefused)
"""Errors of a forge or a remote that may be temporary: for example an unreachable host, a rate limit, or an expired
token.

After any other error the branch is never removed, since the cleanup removes the task's folder, which has the record of
the pushed commit.
"""


@dataclass
class Branches:
    """The pushed branches that one run of `cleanup` removes.

    `waiting` are the uuids of the tasks that keep their branch for now, because of an error that may be temporary
    (PASSING).
    """

    wiring: Wiring
    dry_run: bool
    waiting: list[str] = field(default_factory=list)
    _away: dict[tuple[str, str], MakimonoError] = field(default_factory=dict)

    def remove(self, row: Row, folder: Path) -> Removed | None:
        """Remove the branch of the task that owns the folder; returns the removed branch, None when the branch stays.

        Raises an error of PASSING when the forge or the remote does not answer now, or refuses: the folder has the only
        record of the pushed commit, so the folder must stay until they answer. After an error of PASSING the same run
        of `cleanup` does not ask the same instance of the forge about other tasks.
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
                self._report_failure(row, error)
            self._away[place] = error
            self.waiting.append(row.uuid)
            raise
        except MakimonoError as error:
            self._report_failure(row, error)
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
        repository = forge.repository(row.key, forge.read_issue(row.key))
        return Remote(repository.url, env=network_environment(), **login_of(forge, row.key, repository))

    def _report_failure(self, row: Row, error: MakimonoError) -> None:
        self.wiring.events.emit("effect_failed", uuid=row.uuid, effect="delete branch", error=str(error))
