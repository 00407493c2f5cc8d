"""Finds out facts about projects and people for one GitLab account: which project a task key means, who may ask for
work, and which accounts are machines.

Facts about GitLab's projects are stored in memory for ten minutes. Facts about people, and about each project in which
nothing prevents the work, are in `HostFactsCache` too, which the daemon and the workers share.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agent import clock
from agent.errors import ForgeAccessRefused, ForgeRefused, IssueUnreadable
from agent.forge.host_client import PATIENT
from agent.forge.markers import is_signed
from agent.forge.rate_limiter import KEPT_SECONDS

if TYPE_CHECKING:
    from agent.forge.gitlab.http import GitLabWire
    from agent.values import TaskKey

DEVELOPER = 30
_MACHINE = re.compile(
    r"(project|group)_\d+_bot(_\w+)?|service_account_\w+|(alert|support|security|migration)-bot|ghost"
)

ASKED_AGAIN = re.compile(r"/(request_review|assign_reviewer) @[A-Za-z0-9_.-]+")
"""Matches the quick actions by which this program asks for a review (`merge_requests.ask_again`)."""


@dataclass(frozen=True, slots=True)
class Project:
    """One project.  `path` is the API path `/projects/{number}`, which stays valid when the project is renamed."""

    id: int
    full_name: str
    default_branch: str | None
    archived: bool
    has_issues: bool
    has_merges: bool
    has_code: bool
    is_private: bool
    access: int

    @property
    def path(self) -> str:
        return f"/projects/{self.id}"

    @property
    def owner(self) -> str:
        """The path of the group (with all groups above it) or person that owns the project: `a/b` for the project
        `a/b/c`."""
        return self.full_name.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.full_name.rpartition("/")[2]


class Projects:
    """Reads facts about projects, people and the own account, as far as the token can see them."""

    def __init__(self, wire: GitLabWire, section: Any) -> None:
        self.wire = wire
        self.allowed = frozenset(name.casefold() for name in section.allowed_users)
        self.bot_name = str(section.bot_name or "").casefold()
        self._projects: dict[str, tuple[float, Project]] = {}
        self._machines: dict[int, bool] = {}
        self._own: tuple[int, str] | None = None
        self._account: dict[str, Any] = {}

    def project(self, name: str, *, patience: float = PATIENT) -> Project:
        """Find a project by its path `a/b/c` or its number.

        Raises IssueUnreadable when the project is gone or the token may not see it.

        GitLab redirects a request for the old path of a moved project, so `full_name` of the result may differ from
        `name`.
        """
        kept = self._projects.get(name)
        if kept is not None and clock.monotonic() - kept[0] < KEPT_SECONDS:
            return kept[1]
        try:
            found = self.wire.get(f"/projects/{quote(name, safe='')}", patience=patience)
        except ForgeRefused as error:
            if error.status != 404:
                raise
            raise IssueUnreadable(
                f"{self.wire.host}: there is no project {name}, or the token may not see it; correct the name in "
                f"gitlab.projects, or make the account a member (Developer)"
            ) from error
        project = self.learn(found)
        self._projects[name] = (clock.monotonic(), project)
        is_whole = project.has_issues and project.has_merges and project.has_code
        fact = _fact(project.full_name if name.isdigit() else name)
        if is_whole and not project.archived and not 0 < project.access < DEVELOPER:
            # A project that gives a reason to refuse work is not shared, so that each process requests it from GitLab.
            self.wire.facts.put(fact, asdict(project))
        else:
            self.wire.facts.drop(fact)
        return project

    def project_of(self, key: TaskKey, *, patience: float = PATIENT) -> Project:
        """The project of a task key, also one that another process of this machine has read (`HostFactsCache`)."""
        name = f"{key.owner}/{key.repo}"
        if name not in self._projects and (known := self.wire.facts.find(_fact(name))) is not None:
            # Another version of this program may have stored the fact with other fields; then the project is requested
            # from GitLab.
            with suppress(TypeError):
                return Project(**known)
        return self.project(name, patience=patience)

    def name_of(self, project_id: int | None) -> str:
        """The path of a project, for example of a forked one; `project 7` if the token may not see the project, `a
        project that is gone` if GitLab reports no number."""
        try:
            return self.project(str(project_id)).full_name if project_id is not None else "a project that is gone"
        except (IssueUnreadable, ForgeAccessRefused):
            return f"project {project_id}"

    def forget(self, key: TaskKey) -> None:
        """Remove the stored facts about the project of a task key, because these facts may be outdated."""
        self._projects.pop(f"{key.owner}/{key.repo}", None)
        self.wire.facts.drop(_fact(f"{key.owner}/{key.repo}"))

    def learn(self, found: dict[str, Any]) -> Project:
        """Make a `Project` from GitLab's answer, and store it in memory under its number and its path."""
        rights = found.get("permissions") or {}
        levels = [(rights.get(kind) or {}).get("access_level") or 0 for kind in ("project_access", "group_access")]
        project = Project(
            int(found["id"]),
            str(found["path_with_namespace"]),
            found.get("default_branch") or None,
            bool(found.get("archived")),
            _is_on(found, "issues"),
            _is_on(found, "merge_requests"),
            found.get("repository_access_level") != "disabled",
            found.get("visibility") == "private",
            max(levels),
        )
        self._projects[str(project.id)] = self._projects[project.full_name] = (clock.monotonic(), project)
        return project

    # --- people -----------------------------------------------------------------------------------------------

    def own(self) -> tuple[int, str]:
        """(number, username) of the account to which the token belongs."""
        if self._own is None:
            found = self.wire.facts.find("/user")
            if found is None:
                answer = self.wire.get("/user")
                names = ("id", "username", "name", "commit_email", "bot")
                found = {name: answer[name] for name in names if name in answer}
                self.wire.facts.put("/user", found)
            self._own = int(found["id"]), str(found["username"])
            self._account = found
        return self._own

    def commit_identity(self) -> tuple[str, str]:
        """(name, mail address for commits) of the own account: the mail address is the one that is set in the account's
        profile, or else its no-reply address.

        Source: https://docs.gitlab.com/api/users/ ("Retrieve the current user": `commit_email`) and
        https://docs.gitlab.com/user/profile/ ("Use an automatically generated private commit email":
        `ID-username@users.noreply.HOST`).
        """
        number, username = self.own()
        host = urlsplit(f"//{self.wire.host}").hostname
        mail = self._account.get("commit_email") or f"{number}-{username}@users.noreply.{host}"
        return str(self._account.get("name") or username), str(mail)

    def is_own(self, user: Any) -> bool:
        """Whether the account in the field `user` of GitLab's answer is the own account."""
        return number(user) == self.own()[0]

    def is_assigned(self, item: dict[str, Any]) -> bool:
        """Whether the own account is an assignee of the issue or merge request."""
        return any(self.is_own(user) for user in item.get("assignees") or ())

    def is_person(self) -> bool:
        """Whether the own account may be the account of a person: GitLab does not mark the account as a bot (as it
        marks the users of project and group access tokens, and service accounts), and `bot_name` is not set.

        A text of an account that may be a person's counts as the person's text if it has no sign of this program
        (`markers.is_signed`)."""
        if self.bot_name:
            return False
        self.own()
        return not self.is_machine(self._account)

    def is_agents(self, user: Any) -> bool:
        """Whether the user is an account of the agent: the own account if no person uses it, or the account that
        `bot_name` names. An account of the agent has permission to ask for work only when `allowed_users` lists it."""
        if self.is_own(user):
            return not self.is_person()
        return bool(self.bot_name) and username(user).casefold() == self.bot_name

    def is_ours(self, user: Any, body: str) -> bool:
        """Whether the note with the text `body` is hidden from a run, since this program or an account of the agent has
        written it."""
        return self.is_agents(user) or self.is_written_by_us(user, body)

    def is_written_by_us(self, user: Any, body: str) -> bool:
        """Whether this program has written the note with the text `body`. A note that contains only a request for a
        review is a quick action of this program (`ask_again`), which GitLab has stored as a note instead of executing
        it."""
        if not self.is_own(user):
            return False
        return not self.is_person() or is_signed(body) or ASKED_AGAIN.fullmatch(body.strip()) is not None

    def is_self_assignment(self, user: Any) -> bool:
        """Whether `user` is a person who uses the own account and assigned that account, and so themselves, to the
        issue; this asks for no work unless `allowed_users` lists the person."""
        return self.is_own(user) and self.is_person() and username(user).casefold() not in self.allowed

    def may_ask(self, project: Project, user: Any, *, patience: float = PATIENT) -> bool:
        """Whether an account has permission to ask for work: it must have the Developer role or a higher one, which may
        be inherited, and must be in the setting `allowed_users` when the setting is not empty. For a machine account
        and an account of the agent (`is_agents`) an empty setting is not enough: `allowed_users` must list them."""
        name = username(user).casefold()
        if not name or (self.allowed and name not in self.allowed):
            return False
        if name not in self.allowed and (self.is_agents(user) or self.is_machine(user, patience=patience)):
            return False
        return self.access_of(project, number(user), patience) >= DEVELOPER

    def is_machine(self, user: Any, *, patience: float = PATIENT) -> bool:
        """Whether the account belongs to a machine: its username is one that GitLab gives to bots, or GitLab marks the
        account as a bot. If `user` has no field `bot`, the field is read from `/users/{id}`, by each process at most
        once for an account."""
        name, who = username(user), number(user)
        if _MACHINE.fullmatch(name):
            return True
        if "bot" in (user or {}):
            return bool(user["bot"])
        if who not in self._machines:
            fact = f"/users/{who} is a bot"
            found = self.wire.facts.find(fact)
            if found is None:
                try:
                    found = bool(self.wire.get(f"/users/{who}", patience=patience).get("bot"))
                # GitLab refuses the account's data (no right, or gone): the account does not count as a machine.
                except (ForgeRefused, ForgeAccessRefused):
                    found = False
                self.wire.facts.put(fact, found)
            self._machines[who] = bool(found)
        return self._machines[who]

    def access_of(self, project: Project, who: int, patience: float, *, anew: bool = False) -> int:
        """The access level of an account in a project, which may be inherited; 0 if the account has no access. `anew`:
        the access level is requested from GitLab even if it is known."""
        fact = f"{project.id} access of {who}"
        if not anew and (known := self.wire.facts.find(fact)) is not None:
            return int(known)
        try:
            found = self.wire.get(f"{project.path}/members/all/{who}", patience=patience)
            level = int(found.get("access_level") or 0)
        except ForgeRefused as error:
            if error.status != 404:
                raise
            level = 0
        self.wire.facts.put(fact, level)
        return level


def _fact(name: str) -> str:
    return f"project {name}"


def username(user: Any) -> str:
    """The username of an account in GitLab's answer; "" if the answer names no account.

    The display name of the account is not used, since the display name may be empty.
    """
    return str((user or {}).get("username") or "")


def number(user: Any) -> int:
    """The number of an account in GitLab's answer; 0 if the answer names no account."""
    return int((user or {}).get("id") or 0)


def _is_on(found: dict[str, Any], feature: str) -> bool:
    return bool(found.get(f"{feature}_enabled", True)) and found.get(f"{feature}_access_level") != "disabled"
