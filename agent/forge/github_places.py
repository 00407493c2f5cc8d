"""Repositories of one GitHub account and the people in them: which repository is meant, and who may write to it.

What is learnt is kept for ten minutes, in memory.  Called by `github.py` and its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agent import clock
from agent.errors import ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.github_auth import AppToken
from agent.forge.limiter import KEPT_SECONDS

if TYPE_CHECKING:
    from agent.forge.github_wire import GitHubWire
    from agent.values import TaskKey

WRITERS = frozenset({"admin", "maintain", "write"})


@dataclass(frozen=True, slots=True)
class Project:
    """One repository.  `path` is `/repos/{owner}/{name}` by its present name, also when it was renamed."""

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


class Places:
    """Repositories, people and the own account, as the token sees them."""

    def __init__(self, wire: GitHubWire, section: Any) -> None:
        self.wire = wire
        self.allowed = frozenset(name.casefold() for name in section.allowed_users)
        self.bot_name: str | None = section.bot_name
        self._projects: dict[str, tuple[float, Project]] = {}
        self._writers: dict[tuple[str, str], tuple[float, bool]] = {}
        self._own: str | None = None

    def project(self, owner: str, repo: str) -> Project:
        """The repository by the name that a key has.  IssueUnreadable when it is gone or not to be seen."""
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
        return project

    def of(self, key: TaskKey) -> Project:
        """The repository of a key."""
        return self.project(key.owner, key.repo)

    def forget(self, key: TaskKey) -> None:
        """What was learnt about the repository of a key may be wrong (it was moved)."""
        self._projects.pop(f"{key.owner}/{key.repo}", None)

    # --- people -----------------------------------------------------------------------------------------------

    def own(self) -> str:
        """The login that the adapter writes as."""
        if self._own is None:
            tokens = self.wire.tokens
            if self.bot_name and isinstance(tokens, AppToken):
                self._own = self.bot_name if self.bot_name.endswith("[bot]") else f"{self.bot_name}[bot]"
            elif self.bot_name:
                self._own = self.bot_name
            else:
                found = f"{tokens.slug()}[bot]" if isinstance(tokens, AppToken) else self.wire.get("/user")["login"]
                self._own = str(found)
        return self._own

    def is_own(self, user: Any) -> bool:
        """Whether an answer's `user` is the own account."""
        return login(user).casefold() == self.own().casefold()

    def may_ask(self, project: Project, user: Any) -> bool:
        """Whether this person's word counts: write access, and in `allowed_users` when that is set.  A machine's, and
        the own account's, count only when they are listed there; a deleted account's never."""
        name = login(user).casefold()
        if not name or (self.allowed and name not in self.allowed):
            return False
        if is_bot(user) or self.is_own(user):
            return name in self.allowed
        return self._may_write(project, login(user))

    def _may_write(self, project: Project, name: str) -> bool:
        asked = (project.full_name, name.casefold())
        kept = self._writers.get(asked)
        if kept is not None and clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        try:
            found = self.wire.get(f"{project.path}/collaborators/{quote(name, safe='')}/permission")
        except ForgeRefused as error:
            if error.status != 404:
                raise
            found = {}
        writes = not WRITERS.isdisjoint((found.get("permission"), found.get("role_name")))
        self._writers[asked] = (clock.monotonic(), writes)
        return writes

    def check_host(self, url: str) -> str:
        """An address for git, refused when it leads to another scheme or host: the token goes there."""
        base, found = urlsplit(self.wire.base_url), urlsplit(url)
        expected = f"{base.scheme}://{(base.hostname or '').removeprefix('api.')}"
        if f"{found.scheme}://{found.hostname or ''}" != expected or found.username is not None:
            raise ForgeError(
                f"{self.wire.host}: the repository's address {url[:200]!r} is not on {expected}, and the token goes "
                "nowhere else"
            )
        return url


def login(user: Any) -> str:
    """The login of an answer's `user`; "" for an account that was deleted (null)."""
    return str((user or {}).get("login") or "")


def is_bot(user: Any) -> bool:
    """Whether the account is a machine's."""
    return (user or {}).get("type") == "Bot" or login(user).endswith("[bot]")
