"""Finds out facts about repositories and people for one GitHub account: which repository a task key means, and who may
write to it.

Facts about repositories are stored in memory for ten minutes; those that a task needs, and facts about people, are in
`HostFactsCache` too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agent import clock
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeRefused, IssueUnreadable
from agent.forge import http
from agent.forge.github.auth import AppToken
from agent.forge.markers import is_signed
from agent.forge.misspelt_labels import MOST_PROJECTS
from agent.forge.rate_limiter import KEPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent.forge.github.http import GitHubWire
    from agent.values import TaskKey

WRITERS = frozenset({"admin", "maintain", "write"})


@dataclass(frozen=True, slots=True)
class Project:
    """One repository.

    `path` is `/repos/{owner}/{name}` with the present name, even after the repository was renamed.
    """

    path: str
    full_name: str
    clone_url: str
    default_branch: str | None
    archived: bool
    has_issues: bool
    may_push: bool | None

    @property
    def owner(self) -> str:
        return self.full_name.split("/", maxsplit=1)[0]


class Repositories:
    """Reads facts about repositories, people and the own account, as far as the token can see them."""

    def __init__(self, wire: GitHubWire, section: Any) -> None:
        self.wire = wire
        self.allowed = frozenset(name.casefold() for name in section.allowed_users)
        self.bot_name: str | None = section.bot_name
        self._projects: dict[str, tuple[float, Project]] = {}
        self._own: str | None = None
        # GitHub's answer about the account of the token, None before it was read
        self._account: dict[str, Any] | None = None

    def project(self, owner: str, repo: str) -> Project:
        """The repository that a task key names.

        Raises IssueUnreadable when the repository is gone or blocked (451), or the token may not see it.
        """
        name = f"{owner}/{repo}"
        kept = self._projects.get(name)
        if kept is not None and clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        try:
            found = self.wire.get(f"/repos/{quote(owner, safe='')}/{quote(repo, safe='')}")
        except ForgeRefused as error:
            if error.status not in (404, 451):
                raise
            raise IssueUnreadable(
                f"{self.wire.host}: there is no repository {name}, or the token may not see it; correct the name in "
                f"projects, or give the token access"
            ) from error
        project = Project(
            f"/repos/{found['full_name']}",
            str(found["full_name"]),
            str(found.get("clone_url") or ""),
            found.get("default_branch"),
            bool(found.get("archived")),
            bool(found.get("has_issues", True)),
            (found.get("permissions") or {}).get("push"),
        )
        self._projects[name] = (clock.monotonic(), project)
        if project.has_issues and not project.archived and project.may_push is not False:
            # a fact that makes the work impossible is not stored for other processes: each reads it itself
            self.wire.facts.put(_fact(name), asdict(project))
        else:
            self.wire.facts.drop(_fact(name))
        return project

    def labels(self, listed: Sequence[tuple[str, str]], serves: Callable[[str, str], bool]) -> Mapping[str, list[str]]:
        """Repository → names of its labels, for at most MOST_PROJECTS repositories: the repositories that the section
        lists, or, if the section lists none, those that the token can see and `serves` accepts. Repositories whose
        labels cannot be read are left out, since a poll reports the error."""
        found = {}
        for owner, repo in islice(listed or (one for one in self._seen() if serves(*one)), MOST_PROJECTS):
            with suppress(IssueUnreadable, ForgeRefused, ForgeAccessRefused, AnswerOdd):
                project = self.project(owner, repo)
                found[project.full_name] = [str(one["name"]) for one in self.wire.pages(f"{project.path}/labels")]
        return found

    def _seen(self) -> Iterator[tuple[str, str]]:
        """(owner, repository) of at most 100 repositories that the token can see; for a token of a user the last pushed
        repository is first."""
        if isinstance(self.wire.tokens, AppToken):
            found = self.wire.get("/installation/repositories", query={"per_page": 100})["repositories"]
        else:
            found = self.wire.get("/user/repos", query={"per_page": 100, "sort": "pushed"})
        for one in found:
            owner, _, repo = one["full_name"].partition("/")
            yield owner, repo

    def project_of(self, key: TaskKey) -> Project:
        """The repository of a task key, also one that another process of this machine has read (`HostFactsCache`)."""
        name = f"{key.owner}/{key.repo}"
        if name not in self._projects and (known := self.wire.facts.find(_fact(name))) is not None:
            with suppress(TypeError):  # a fact in the form of another version of this program is not used
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
            tokens = self.wire.tokens
            if self.bot_name and isinstance(tokens, AppToken):
                self._own = self.bot_name if self.bot_name.endswith("[bot]") else f"{self.bot_name}[bot]"
            elif self.bot_name:
                self._own = self.bot_name
            else:
                self._own = f"{tokens.slug()}[bot]" if isinstance(tokens, AppToken) else str(self._user()["login"])
        return self._own

    def _user(self) -> dict[str, Any]:
        """GitHub's facts about the account of the token; a GitHub App has a user account with an id of its own."""
        if self._account is None:
            tokens = self.wire.tokens
            path = f"/users/{quote(self.own(), safe='')}" if isinstance(tokens, AppToken) else "/user"
            found = self.wire.facts.find(path)
            if found is None:
                answer = self.wire.get(path)
                found = {name: answer[name] for name in ("login", "id", "name", "type") if name in answer}
                self.wire.facts.put(path, found)
            self._account = dict(found)
        return self._account

    def commit_identity(self) -> tuple[str, str] | None:
        """The (name, no-reply mail address) with which a commit is attributed to the account by the host; None if
        GitHub's answer has no id for the account.

        Source: https://docs.github.com/en/account-and-profile/reference/email-addresses-reference ("Your noreply email
        address": `ID+USERNAME@users.noreply.github.com`).  In the no-reply addresses of an Enterprise host its own name
        takes the place of `github.com`.
        """
        user = self._user()
        login, number = user.get("login"), user.get("id")
        if not isinstance(login, str) or not isinstance(number, int):
            return None
        host = str(urlsplit(f"//{self.wire.host}").hostname).removeprefix("api.")
        return str(user.get("name") or login), f"{number}+{login}@users.noreply.{host}"

    def is_own(self, user: Any) -> bool:
        """Whether the account in the field `user` of GitHub's answer is the own account."""
        return login(user).casefold() == self.own().casefold()

    def is_assigned(self, item: dict[str, Any]) -> bool:
        """Whether the own account is an assignee of the issue or pull request."""
        return any(self.is_own(user) for user in item.get("assignees") or ())

    def is_person(self) -> bool:
        """Whether the own account may be the account of a person: the account is no GitHub App, GitHub does not mark it
        as a machine, and the setting `bot_name`, with which a person says that the account is the agent's, is not set.

        A text of an account that may be a person's counts as the person's text if it has no sign of this program
        (`markers.is_signed`)."""
        if self.bot_name or isinstance(self.wire.tokens, AppToken):
            return False
        return not is_bot(self._user())

    def is_ours(self, user: Any, body: str) -> bool:
        """Whether this program has written the text `body` of the account `user`."""
        return self.is_own(user) and (not self.is_person() or is_signed(body))

    def is_self_assignment(self, user: Any) -> bool:
        """Whether `user` is a person who uses the own account and assigned that account, and so themselves, to the
        issue; this asks for no work unless `allowed_users` lists the person."""
        return self.is_own(user) and self.is_person() and login(user).casefold() not in self.allowed

    def may_ask(self, project: Project, user: Any) -> bool:
        """Whether an account has permission to ask for work. A person must have write access, and must be in the
        setting `allowed_users` when the setting is not empty. A machine account, and an own account that is no
        person's, have permission exactly when `allowed_users` lists them. A deleted account never has permission."""
        name = login(user).casefold()
        if not name or (self.allowed and name not in self.allowed):
            return False
        if is_bot(user) or (self.is_own(user) and not self.is_person()):
            return name in self.allowed
        return self._may_write(project, login(user))

    def _may_write(self, project: Project, name: str) -> bool:
        fact = f"{project.full_name} is written by {name.casefold()}"
        if (known := self.wire.facts.find(fact)) is not None:
            return bool(known)
        try:
            found = self.wire.get(f"{project.path}/collaborators/{quote(name, safe='')}/permission")
        except ForgeRefused as error:
            if error.status != 404:
                raise
            found = {}
        writes = not WRITERS.isdisjoint((found.get("permission"), found.get("role_name")))
        self.wire.facts.put(fact, writes)
        return writes

    def check_host(self, url: str) -> str:
        """Check that an address for git is on the configured host, because git sends the token to that address.

        Raises ForgeError when the address has another scheme, host or port.
        """
        scheme, host, port = http.origin_of(self.wire.base_url, "base_url")
        wanted = (scheme, host.removeprefix("api."), port)
        if http.origin_of(url, f"{self.wire.host}: clone_url") != wanted:
            raise ForgeError(
                f"{self.wire.host}: the repository's address {url[:200]!r} is not on {scheme}://{wanted[1]}:{port}, "
                "and the token goes nowhere else; set base_url to the scheme, host and port at which git is served"
            )
        return url


def _fact(name: str) -> str:
    return f"repository {name}"


def login(user: Any) -> str:
    """The login of the account in the field `user` of an answer; "" for a deleted account (null)."""
    return str((user or {}).get("login") or "")


def is_bot(user: Any) -> bool:
    """Whether GitHub marks the account as a machine."""
    return (user or {}).get("type") == "Bot" or login(user).endswith("[bot]")
