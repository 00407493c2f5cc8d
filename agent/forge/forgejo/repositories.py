"""Finds out facts about repositories and people for one Forgejo account: which repository a task key means, and who may
write to it.

Facts about repositories are stored in memory for ten minutes; those that a task needs, and facts about people, are in
`HostFactsCache` too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.markers import is_signed
from agent.forge.rate_limiter import KEPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.forge.forgejo.http import ForgejoWire
    from agent.values import TaskKey

WRITERS = frozenset({"write", "admin", "owner"})


@dataclass(frozen=True, slots=True)
class Project:
    """One repository.

    `path` is the API path `/repos/{owner}/{name}` of a Forgejo repository with its present name, even after the
    repository was renamed.
    """

    full_name: str
    default_branch: str | None
    archived: bool
    has_issues: bool
    has_pulls: bool
    may_push: bool | None

    @property
    def path(self) -> str:
        owner, _, name = self.full_name.partition("/")
        return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"

    @property
    def owner(self) -> str:
        return self.full_name.partition("/")[0]

    @property
    def name(self) -> str:
        return self.full_name.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Assignees:
    """The accounts that may be assigned to issues of a repository.

    `all_write`: each account that may be assigned to an issue may also write code. `all_write` is False in an
    organisation with a team that may write only to other parts (the wiki, say) or may only read pull requests, since
    the members of such a team may be assigned too.
    """

    names: frozenset[str]
    all_write: bool


class Repositories:
    """Reads facts about repositories, people and the own account, as far as the token can see them."""

    def __init__(self, wire: ForgejoWire, section: Any) -> None:
        self.wire = wire
        self.allowed = frozenset(name.casefold() for name in section.allowed_users)
        self.bot_name: str | None = section.bot_name
        self._projects: dict[str, tuple[float, Project]] = {}
        self._assignees: dict[str, tuple[float, Assignees]] = {}
        self._own: str | None = None

    def project(self, owner: str, repo: str) -> Project:
        """The repository that a task key names.

        Raises IssueUnreadable when the repository is gone or the token may not see it.
        """
        name = f"{owner}/{repo}"
        kept = self._projects.get(name)
        if kept is not None and clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        try:
            found = self.wire.get(f"/repos/{quote(owner, safe='')}/{quote(repo, safe='')}")
        except ForgeRefused as error:
            if error.status != 404:
                raise
            raise IssueUnreadable(
                f"{self.wire.host}: there is no repository {name}, or the token may not see it; correct the name in "
                f"forgejo.projects, or make the account a collaborator"
            ) from error
        project = Project(
            str(found["full_name"]),
            found.get("default_branch") or None,
            bool(found.get("archived")),
            bool(found.get("has_issues", True)),
            bool(found.get("has_pull_requests", True)),
            (found.get("permissions") or {}).get("push"),
        )
        self._projects[name] = (clock.monotonic(), project)
        if project.has_issues and project.has_pulls and not project.archived and project.may_push is not False:
            # a fact that makes the work impossible is not stored for other processes: each reads it itself
            self.wire.facts.put(_fact(name), asdict(project))
        else:
            self.wire.facts.drop(_fact(name))
        return project

    def seen(self, serves: Callable[[str, str], bool], most: int) -> list[tuple[str, str]]:
        """(owner, repository) of at most `most` repositories that the account's own list (`/user/repos`) contains and
        `serves` accepts."""
        found = (str(one["full_name"]).partition("/")[::2] for one in self.wire.pages("/user/repos"))
        return list(islice(((owner, name) for owner, name in found if serves(owner, name)), most))

    def project_of(self, key: TaskKey) -> Project:
        """The repository of a task key, also one that another process of this machine has read (`HostFactsCache`)."""
        name = f"{key.owner}/{key.repo}"
        if name not in self._projects and (known := self.wire.facts.find(_fact(name))) is not None:
            # another version of this program has written the fact, so it is read from Forgejo
            with suppress(TypeError):
                return Project(**known)
        return self.project(key.owner, key.repo)

    def forget(self, key: TaskKey) -> None:
        """Remove the stored facts about the repository of a task key, because the repository may have been renamed."""
        self._projects.pop(f"{key.owner}/{key.repo}", None)
        self.wire.facts.drop(_fact(f"{key.owner}/{key.repo}"))

    # --- people -----------------------------------------------------------------------------------------------

    def own(self) -> str:
        """The login of the own account."""
        if self._own is None:
            found = self.bot_name or self.wire.facts.find("/user")
            if found is None:
                found = str(self.wire.get("/user")["login"])
                self.wire.facts.put("/user", found)
            self._own = str(found)
        return self._own

    def is_own(self, user: Any) -> bool:
        """Whether the account in the field `user` of Forgejo's answer is the own account."""
        return login(user).casefold() == self.own().casefold()

    def is_assigned(self, item: dict[str, Any]) -> bool:
        """Whether the own account is an assignee of the issue or pull request."""
        return any(self.is_own(user) for user in item.get("assignees") or ())

    def is_person(self) -> bool:
        """Whether the own account may be the account of a person: Forgejo does not mark the accounts of machines, so
        the own account counts as a person's unless `bot_name` names it as the agent's.

        A text of an account that may be a person's counts as the person's text if it has no sign of this program
        (`markers.is_signed`)."""
        return not self.bot_name

    def is_ours(self, user: Any, body: str) -> bool:
        """Whether this program has written the text `body` of the account `user`."""
        return self.is_own(user) and (not self.is_person() or is_signed(body))

    def is_self_assignment(self, user: Any) -> bool:
        """Whether `user` is a person who uses the own account and assigned that account, and so themselves, to the
        issue; this asks for no work unless `allowed_users` lists the person."""
        return self.is_own(user) and self.is_person() and login(user).casefold() not in self.allowed

    def may_ask(self, project: Project, user: Any) -> bool:
        """Whether a person has permission to ask for work: that person must have write access, and must be in the
        setting `allowed_users` when the setting is not empty.  The server's own account for CI runners, and an own
        account that is no person's, have permission only when `allowed_users` lists them; a deleted account never has
        permission."""
        name = login(user).casefold()
        if not name or (self.allowed and name not in self.allowed):
            return False
        if is_bot(user) or (self.is_own(user) and not self.is_person()):
            return name in self.allowed
        return self._may_write(project, login(user))

    def _may_write(self, project: Project, name: str) -> bool:
        is_allowed = name.casefold() in self.allowed
        fact = f"{project.full_name} is written by {name.casefold()}{', who is in allowed_users' if is_allowed else ''}"
        if (known := self.wire.facts.find(fact)) is not None:
            return bool(known)
        try:
            found = self.wire.get(f"{project.path}/collaborators/{quote(name, safe='')}/permission")
            writes = found["permission"] in WRITERS
        except ForgeRefused as error:
            if error.status != 404:
                raise
            writes = False
        # only an administrator of the repository may read the permission of another account, so the list of the
        # accounts that may be assigned is used
        except ForgeAccessRefused:
            assignees = self._who_may_be_assigned(project)
            writes = (assignees.all_write or is_allowed) and name.casefold() in assignees.names
        self.wire.facts.put(fact, writes)
        return writes

    def knows_writers(self, project: Project) -> bool:
        """Whether the account can find out who may write to a repository, without `allowed_users`."""
        try:
            self.wire.get(f"{project.path}/collaborators/{quote(project.owner, safe='')}/permission")
        except ForgeAccessRefused:
            return self._who_may_be_assigned(project).all_write
        except ForgeRefused as error:
            if error.status != 404:
                raise
        return True

    def _who_may_be_assigned(self, project: Project) -> Assignees:
        kept = self._assignees.get(project.full_name)
        if kept is not None and clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        names = frozenset(login(user).casefold() for user in self.wire.get(f"{project.path}/assignees"))
        try:
            teams = self.wire.get(f"{project.path}/teams")
            all_write = all(_writes_code(team) for team in teams)
        except ForgeRefused as error:
            all_write = error.status == 405  # 405: the repository belongs to a person, and has no teams
        except ForgeAccessRefused:
            all_write = False
        found = Assignees(names, all_write)
        self._assignees[project.full_name] = (clock.monotonic(), found)
        return found


def _fact(name: str) -> str:
    return f"repository {name}"


def _writes_code(team: dict[str, Any]) -> bool:
    """Whether all members of a team that may be assigned to issues may write code; also True if no member of the team
    may be assigned."""
    units = team.get("units_map") or {}
    if units.get("repo.code") in WRITERS or team.get("permission") in ("admin", "owner"):
        return True
    return "repo.code" in units and not WRITERS & set(units.values()) and units.get("repo.pulls") != "read"


def login(user: Any) -> str:
    """The login of the account in the field `user` of an answer; "" for a deleted account, which Forgejo reports as
    Ghost with the id -1."""
    return "" if user is None or user.get("id") == -1 else str(user.get("login") or "")


def is_bot(user: Any) -> bool:
    """Whether an account is the Forgejo server's own account for CI runners, which has an id below -1."""
    return int((user or {}).get("id") or 0) < -1
