"""GitHub and GitHub Enterprise: the contract of `forge/base.py` over the REST API.

This module implements each call of the contract; the other modules of this package are its parts: the HTTP client
(`http.py`) and the shapes of its answers (`answer_shapes.py`), repositories and people (`repositories.py`), comments
(`comments.py`), pull requests (`pulls.py`), the list of waiting issues (`tasks.py`).  docs/forges.md has the facts
about GitHub on which this module relies.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from agent import clock
from agent.config.project_settings import labels_key, sections_by_labels
from agent.errors import ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.base import Comment, IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.base_branch import base_of
from agent.forge.changed_issues import changed_of, recent_of
from agent.forge.comment_cursor import CommentCursor, digest_of, edited, with_pull
from agent.forge.github import talk, token_permissions
from agent.forge.github.auth import AppToken
from agent.forge.github.checks import CheckReader
from agent.forge.github.comments import CommentReader, number_of
from agent.forge.github.config_section import instance_of, projects_of, qualifiers_of
from agent.forge.github.fork_head import head_moved
from agent.forge.github.http import GitHubWire
from agent.forge.github.pulls import MAX_BODY, Pulls, number_in, pull_ref
from agent.forge.github.repositories import Repositories, is_bot, login
from agent.forge.github.requesting_person import altered, events_of, request_review, who_asked, who_ended
from agent.forge.github.tasks import GitHubTaskGetter
from agent.forge.issue_url import on_github
from agent.forge.label_check import label_problems
from agent.forge.labels_shown import COLOURS, MEANINGS
from agent.forge.markers import hidden_in, signed
from agent.forge.post_once import post_once
from agent.forge.rate_limiter import learnt_anew
from agent.forge.task_getter import RESERVE
from agent.forge.token_account import account_in_words, agents_accounts
from agent.forge.unanswered_lists import UnansweredLists
from agent.observe import log
from agent.security.redact import masker_of
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from agent.config.forge_sections import Start
    from agent.forge.base import Act, MarkedComment
    from agent.forge.changed_issues import ChangeCursor
    from agent.forge.checks import Check, Checks
    from agent.forge.github.repositories import Project

GIT_USER = "x-access-token"
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class GitHubForge:
    """The adapter of one section `github` of the settings: a host, an account, and the projects that it serves."""

    source = "github"
    max_comment = MAX_BODY
    news_interval = 20.0
    propagation_delay: float | None = 1.0

    def __init__(self, settings: Any, section: Any) -> None:
        self.section = section
        self.watches_ci = settings.ci.fix_rounds > 0
        self.max_file: int | None = section.max_file_size
        self.instance = instance_of(str(section.base_url))
        self.labels = Labels.from_section(section)
        self.projects = projects_of(section)
        self.qualifiers = qualifiers_of(section, self.projects)
        self.searches = bool(self.qualifiers)
        names = tuple("/".join(project) for project in self.projects)
        self.wire = GitHubWire(section, settings.base_dir, self.instance, names, learn=masker_of(settings).learn)
        self.places = Repositories(self.wire, section)
        self.told: set[str] = set()  # problems that were reported, so that each problem is reported once
        # GitHub does not count this request against the rate limit
        self.unanswered = UnansweredLists(lambda: self.wire.get("/rate_limit"))
        self.askers: dict[tuple[Any, ...], Any] = {}  # state of a waiting issue → account that asked for work
        self._spelling = {name.casefold(): name for name in self.labels.names()}
        self._described: set[tuple[str, str]] = set()  # (repository, label) of each label that has got a description
        self._own_comments: set[str] = set()
        self._asked_by: dict[TaskKey, Any] = {}  # task → the account that asked for the work, None if it is unknown

    @classmethod
    def from_settings(cls, settings: Any) -> tuple[Self, ...]:
        return tuple(cls(settings, part) for section in settings.github for part in sections_by_labels(section))

    def covers(self, key: TaskKey) -> bool:
        return (key.task_source, key.instance) == (self.source, self.instance) and self.serves(key.owner, key.repo)

    def serves(self, owner: str, repo: str) -> bool:
        """Whether the adapter's section in the settings covers a repository."""
        known = {f"{one}/{name}".casefold() for one, name in self.projects}
        of_owner = self.section.owner is None or self.section.owner.casefold() == owner.casefold()
        return of_owner and (not known or f"{owner}/{repo}".casefold() in known)

    def task_getter(self) -> GitHubTaskGetter:
        return GitHubTaskGetter(self)

    def idle(self, interval: float) -> str:
        """A sentence about the number of requests that polls every `interval` seconds send in an hour in which nothing
        changes (for `doctor`)."""
        if self.searches:
            more = f"{3600 / interval:.0f} conditional lists for each repository with tasks"
            return f"{self.per_hour(interval):.0f} searches per idle hour, of a budget of their own, and {more}"
        asked = f"{self.per_hour(interval):.0f} requests per idle hour"
        return f"{asked}, all conditional: none of them counts against the budget"

    def per_hour(self, interval: float) -> float:
        """The number of requests (of searches, if the section has search terms) that polls send in an hour in which
        nothing changes.

        At each poll the adapter requests the lists of waiting issues and a list of changes per repository (as if each
        repository had ended tasks); each repository is requested again when its stored facts are too old.
        """
        looks = 3600 / interval
        start: Start = self.section.start
        lists = start.label + (start.assignee and not isinstance(self.wire.tokens, AppToken)) + start.mention
        if self.searches:
            return looks * lists
        return len(self.projects) * (looks * (lists + 1) + learnt_anew(interval))

    def rights(self) -> tuple[str, ...]:
        """Implements `ForgeReports.rights` (for `doctor`)."""
        return tuple(token_permissions.rights(self))

    def account(self) -> str:
        """Implements `ForgeReports.account`."""
        return account_in_words(self, self.places.own())

    def agents_accounts(self) -> tuple[str, ...]:
        """Implements `ForgeReports.agents_accounts`."""
        return agents_accounts(self, self.places.own())

    def label_problems(self) -> tuple[str, ...]:
        """Implements `ForgeReports.label_problems`; GitHub treats names that differ only in capitals as the same
        label."""
        with self.wire.hurried():
            there = self.places.labels(self.projects, self.serves)
        return tuple(
            label_problems(labels_key(self.section, "github"), self.labels, there, str.casefold, self.section.start)
        )

    # --- issues -----------------------------------------------------------------------------------------------

    def task_at(self, address: str) -> Task | None:
        found = on_github(address, self.instance)
        if found is None or not self.serves(found.owner, found.repo):
            return None
        key = TaskKey(self.source, found.owner, found.repo, "issue", found.number, self.instance)
        _, item = self._issue(key)
        if item.get("pull_request"):
            key = replace(key, task_type="pull_request")
        if item.get("state") != "open":
            raise IssueUnreadable(f"{key} is closed; open it again, or write a new one")
        title, labels = str(item.get("title") or ""), self.label_names(item)
        return Task(key, self, user=login(item.get("user")) or None, title=title, labels=labels)

    def read_issue(self, key: TaskKey) -> IssueText:
        project, item = self._issue(key)
        labels = self.label_names(item)
        body, base = base_of(str(item.get("body") or ""), labels)
        problems = []
        pull: PullRef | None = None
        if item.get("pull_request"):
            found = self.wire.get(f"{project.path}/pulls/{key.task_id}")
            source = str((found["head"].get("repo") or {}).get("full_name") or "a repository that is gone")
            pull = replace(pull_ref(found), fork="" if source.casefold() == project.full_name.casefold() else source)
            base = pull.base
        seen = digest_of(str(item.get("title") or ""), str(item.get("body") or ""))
        comments, cursor, left_out = self._talk(key, project).since(CommentCursor(pulls=_itself(key), text_seen=seen))
        if left_out:
            problems.append(f"{left_out} comments of people who may not write here are left out")
        return IssueText(
            key=key,
            title=str(item.get("title") or ""),
            body=body,
            author=login(item.get("user")) or "ghost",
            labels=tuple(sorted(labels)),
            state="open" if item.get("state") == "open" else "closed",
            base=base,
            comments=comments,
            url=str(item.get("html_url") or ""),
            created_at=str(item.get("created_at") or ""),
            updated_at=str(item.get("updated_at") or ""),
            cursor=cursor.text(),
            problems=tuple(problems),
            pull=pull,
        )

    def altered(self, key: TaskKey, since: str = "") -> str:
        project, item = self._issue(key)
        events = events_of(self, project, _number(key))
        self._asked_by[key] = who_asked(self, project, events)
        return altered(self, project, item, events, since)

    def head_moved(self, key: TaskKey, pull: PullRef, since: str = "") -> str:
        """Implements `ForgeReports.head_moved`."""
        return head_moved(self, self.places.project_of(key), _number(key), pull, since)

    def single_reads(self) -> AbstractContextManager[None]:
        """Implements `ForgeReports.single_reads`."""
        return self.wire.reads.scope()

    def answered_at(self) -> float | None:
        """Implements `ForgeReports.answered_at`."""
        return self.wire.answered_at

    def pull_ref(self, pull_id: str) -> str | None:
        """Implements `ForgeReports.pull_ref`."""
        return f"refs/pull/{pull_id}/head"

    def commenters_may_ask(self) -> bool:
        """Implements `ForgeReports.commenters_may_ask`: comments of people who may not ask for work are left out."""
        return True

    def author_may_ask(self, key: TaskKey) -> bool:
        """See `ForgeReports`."""
        project, item = self._issue(key)
        return self.places.may_ask(project, item.get("user"))

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        known = CommentCursor.parse(cursor)
        pulls = tuple(dict.fromkeys((*known.pulls, *_itself(key))))
        before = replace(known, pulls=pulls)
        with self.wire.hurried():
            news, after, _ = self._talk(key, self.places.project_of(key)).since(before)
            edit, seen = self._edited(key, known.text_seen)
        if seen != known.text_seen:
            after = replace(after, text_seen=seen)
        unchanged = cursor and after is before and pulls == known.pulls
        return (*news, *edit), str(cursor) if unchanged else after.text()

    def _edited(self, key: TaskKey, seen: str) -> tuple[tuple[Comment, ...], str]:
        """(an edit of the issue's title or text as a comment, if the digest of title and text is no longer `seen`; the
        digest of the present title and text).

        GitHub's REST API does not report the account that edited a text, which is the author of the issue or an account
        with write access.  So an edit is delivered only if the author of the issue has permission.
        """
        if not seen:
            return (), seen
        try:
            project, item = self._issue(key)
        except IssueUnreadable:
            return (), seen
        title, body = str(item.get("title") or ""), str(item.get("body") or "")
        if (now := digest_of(title, body)) == seen:
            return (), seen
        author = item.get("user")
        if not self.places.may_ask(project, author):
            log.get("forge").warning("edit_left_out", issue=str(key), author=login(author))
            return (), now
        return (edited(title, body, now, login(author), str(item["updated_at"])),), now

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        with self.wire.hurried(RESERVE):
            return changed_of(watched, cursor, self._changed, number_in)

    def recent_issues(self, cursor: str) -> tuple[dict[TaskKey, Comment], str]:
        """Implements `ForgeReports.recent_issues`."""
        with self.wire.hurried(RESERVE):
            return recent_of(self.projects, cursor, self._recent)

    def _recent(self, owner: str, repo: str, since: str) -> Iterator[tuple[TaskKey, Comment, str]]:
        query = {"state": "open", "sort": "updated", "direction": "asc", "since": since}
        with suppress(IssueUnreadable, ForgeRefused, ForgeAccessRefused):  # the poll for waiting issues reports it
            path = f"{self.places.project(owner, repo).path}/issues"
            for item in self.wire.pages(path, query=query, odd=lambda _error: None):
                if item.get("pull_request") or item["state"] != "open":
                    continue
                key = TaskKey(self.source, owner, repo, "issue", str(item["number"]), self.instance)
                who, made = item.get("user"), str(item.get("created_at") or "")
                title, body = str(item.get("title") or ""), str(item.get("body") or "")
                yield key, Comment("", login(who), body, made, made, is_bot(who), place=title), str(item["updated_at"])

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:
        from agent.forge.github.pictures import fetch_picture

        return fetch_picture(self.wire, key, address)

    def own_names(self) -> tuple[str, ...]:
        own = self.places.own()
        return tuple(dict.fromkeys((own, own.removesuffix("[bot]"))))

    def commit_identity(self) -> tuple[str, str] | None:
        return self.places.commit_identity()

    @property
    def poll_pause(self) -> float:
        return self.wire.pause

    def mark_taken(self, key: TaskKey, *, again: bool = False) -> bool:
        with self.wire.limiter.exclusive():
            project, item = self._issue(key)
            present = self.label_names(item)
            if again:
                waits = item.get("state") == "open" and self.labels.can_start(present)
                ours = present & self.labels.names()
                return waits and (bool(self._move(project, key, "processing")) or not ours)
            labelled = self.labels.queued in present
            assigned = any(self.places.is_own(user) for user in item.get("assignees") or ())
            if not labelled and (not assigned or present & self.labels.names()):
                return False
            gone = self._move(project, key, "processing")
            return not labelled or self.labels.queued in gone

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        with self.wire.limiter.exclusive():
            self._move(self.places.project_of(key), key, to)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        with self.wire.hurried():
            try:
                project, item = self._issue(key)
            except IssueUnreadable:
                return "stop"  # the issue was deleted or moved to another repository
            wish = self.labels.requested(self.label_names(item), str(item.get("state")))
            return wish or ("stop" if self._was_unassigned(project, key) else None)

    # --- comments ---------------------------------------------------------------------------------------------

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        return next((one.id for one in self.marked_comments(key) if marker in one.markers), None)

    def post_comment(self, key: TaskKey, body: str) -> str:
        text = self._fit(body)
        path = f"{self.places.project_of(key).path}/issues/{_number(key)}/comments"
        marker = hidden_in(text)

        def post() -> str:
            made = self._of_issue(key, "POST", path, {"body": text}, again=False)
            self._own_comments.add(str(made["id"]))
            return str(made["id"])

        return post_once(post, None if marker is None else lambda: self.find_comment(key, marker))

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        self._check(key)
        with self._about(key):
            found = tuple(self._talk(key, self.places.project_of(key)).marked())
        self._own_comments.update(one.id for one in found)
        return found

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        path = f"{self.places.project_of(key).path}/issues/comments/{number_of(comment_id)}"
        try:
            self._check_own(key, comment_id, path)
            self.wire.call("DELETE", path)
        except ForgeRefused as error:
            if error.status not in (404, 410):
                raise

    def _check_own(self, key: TaskKey, comment_id: str, path: str) -> None:
        if comment_id in self._own_comments:
            return
        found = self.wire.get(path)
        if not self.places.is_ours(found.get("user"), str(found.get("body") or "")):
            raise ForgeError(f"comment {comment_id} of {key} belongs to somebody else and is left as it is")

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        text = self._fit(body)
        path = f"{self.places.project_of(key).path}/issues/comments/{number_of(comment_id)}"
        try:
            self._check_own(key, comment_id, path)
            self.wire.call("PATCH", path, body={"body": text})
        except ForgeRefused as error:
            if error.status in (404, 410):
                raise ForgeError(f"comment {comment_id} of {key} is gone and cannot be edited") from error
            raise
        self._own_comments.add(comment_id)

    # --- pull requests ----------------------------------------------------------------------------------------

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        return self._pulls(key).find(head)

    def open_pull(self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool) -> PullRef:
        with self.wire.limiter.exclusive():
            pulls = self._pulls(key)
            there = pulls.find(head)
            asks = not draft
            if there is None or there.state != "open":
                there = pulls.open(title=title, body=body, head=head, base=base, draft=draft)
                asks = True
        if asks and not there.draft:
            self._ask_for_review(key, there.id)
        return there

    def update_pull(
        self,
        key: TaskKey,
        pull: PullRef,
        *,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        state: Literal["open", "closed"] | None = None,
    ) -> PullRef:
        project = self.places.project_of(key)
        changed = Pulls(self.wire, project).update(pull.id, title=title, body=body, draft=draft, state=state)
        if pull.draft and not changed.draft and changed.state == "open":  # the pull request is no longer a draft
            self._ask_for_review(key, changed.id)
        return changed

    def _ask_for_review(self, key: TaskKey, pull_id: str) -> None:
        """Request a review from the person who asked for the work: the person whom `altered` has found in this process,
        else the one whom the events of the issue name now."""
        project = self.places.project_of(key)
        with self._about(key):
            if key not in self._asked_by:
                self._asked_by[key] = who_asked(self, project, events_of(self, project, _number(key)))
            request_review(self, project, pull_id, self._asked_by[key])

    def with_pull(self, cursor: str | None, url: str) -> str | None:
        """Implements `ForgeReports.with_pull`."""
        return with_pull(cursor, number_in(url))

    def ask_again(self, key: TaskKey, pull: PullRef, login: str) -> None:
        """Implements `ForgeReports.ask_again`."""
        request_review(self, self.places.project_of(key), pull.id, {"login": login})

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Implements `ForgeReports.acknowledge`."""
        with self.wire.hurried():
            talk.react(self.wire, self.places.project_of(key), _number(key), comment)

    def reply(self, key: TaskKey, comment: Comment, body: str) -> str:
        """Implements `ForgeReports.reply`."""
        project = self.places.project_of(key)
        return talk.reply(self.wire, project, comment, self._fit(body), self.places.is_own)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """Implements `ForgeReports.find_reply`."""
        return talk.find_reply(self.wire, self.places.project_of(key), comment, marker, self.places.is_own)

    def branch_page(self, url: str, branch: str) -> str:
        """Implements `ForgeReports.branch_page`."""
        project, found, _ = url.rpartition("/pull/")
        return f"{project}/tree/{quote(branch)}" if found else ""

    def checks(self, key: TaskKey, commit: str, url: str = "") -> Checks:  # noqa: ARG002 - GitHub needs only the commit
        """Implements `ForgeReports.checks`."""
        with self.wire.hurried():
            return CheckReader(self.wire, self.places.project_of(key)).read(commit)

    def check_log(self, key: TaskKey, check: Check) -> str:
        """Implements `ForgeReports.check_log`."""
        return CheckReader(self.wire, self.places.project_of(key)).log(check)

    def who_ended(self, key: TaskKey, act: Act) -> str:
        """Implements `ForgeReports.who_ended`."""
        with self.wire.hurried():
            return who_ended(self, self.places.project_of(key), _number(key), act)

    # --- the repository ---------------------------------------------------------------------------------------

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:  # noqa: ARG002 - the key names the repository
        project = self.places.project_of(key)
        if project.archived:
            said = f"{project.full_name} is archived: it is read-only, so nothing can be pushed to it"
            raise IssueUnreadable(said, code="repository_archived")
        owner, _, name = project.full_name.partition("/")
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance)
        url = self.places.check_host(project.clone_url)
        head = f"refs/pull/{_number(key)}/head" if key.task_type == "pull_request" else None
        return Repository(host, owner, name, url, project.default_branch, self.wire.ca_file(), head)

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - one token serves all projects
        return GIT_USER, self.wire.tokens.current()

    def renew_login(self, key: TaskKey) -> None:  # noqa: ARG002 - one token serves all projects
        self.wire.tokens.refresh()

    def close(self) -> None:
        self.wire.close()

    # --- shared by the parts ----------------------------------------------------------------------------------

    def own_name(self, name: Any) -> str:
        """A label in the spelling of the settings; GitHub treats `Coding Agent` and `coding agent` as the same
        label."""
        text = str(name or "")
        return self._spelling.get(text.casefold(), text)

    def label_names(self, item: dict[str, Any]) -> frozenset[str]:
        """The labels of an issue; the program's own labels are in the spelling of the settings."""
        labels = (label if isinstance(label, str) else label.get("name") for label in item.get("labels") or ())
        return frozenset(self.own_name(name) for name in labels if name)

    def _issue(self, key: TaskKey) -> tuple[Project, dict[str, Any]]:
        """(the repository that the task key names, GitHub's answer about the issue).

        Raises IssueUnreadable when the issue was moved to another repository.
        """
        number = _number(key)
        for attempt in (1, 2):
            project = self.places.project_of(key)
            item = self._of_issue(key, "GET", f"{project.path}/issues/{number}")
            found = str(item["repository_url"]).rpartition("/repos/")[2]
            if found.casefold() == project.full_name.casefold():
                return project, item
            if attempt == 1:
                self.places.forget(key)  # the repository may have been renamed since its facts were stored
        raise IssueUnreadable(f"{key} was moved to {found}#{item.get('number')}; set the label there")

    def _of_issue(self, key: TaskKey, verb: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send one request about an issue.  A request about an issue is repeated after a lost answer even if it is a
        POST, because adding a label is idempotent."""
        with self._about(key):
            return self.wire.call(verb, path, body=body, **{"again": True, **more}).data

    @contextmanager
    def _about(self, key: TaskKey) -> Iterator[None]:
        """A context manager that raises IssueUnreadable if GitHub answers that the issue does not exist."""
        try:
            yield
        except ForgeRefused as error:
            if error.status == 404:
                raise IssueUnreadable(f"{key}: there is no such issue; it was deleted or never there") from error
            if error.status == 410:
                why = "; ".join(error.reasons) or "it was deleted, or issues are switched off in this repository"
                off = "issues_off" if "disabled" in why.lower() else "issue_unreadable"
                raise IssueUnreadable(f"{key} is gone: {why}", code=off) from error
            raise

    def _changed(self, owner: str, repo: str, changes: ChangeCursor) -> dict[str, str]:
        """Number → time of the last change, for the changed issues and pull requests of a repository."""
        name = f"{owner}/{repo}"
        since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
        query = {"state": "all", "sort": "updated", "direction": "asc", "since": since}
        try:
            path = f"{self.places.project(owner, repo).path}/issues"
            # the poll for tasks reports invalid items
            listed = self.wire.pages(path, query=query, odd=lambda _error: None)
            items = [(str(item["number"]), str(item["updated_at"])) for item in listed]
        except IssueUnreadable:
            return {}  # the repository is gone; the poll for waiting issues reports it
        except ForgeRefused as error:
            if error.status not in (404, 410):
                raise
            return {}  # issues are switched off in this repository
        return changes.update(name, items)

    def _check(self, key: TaskKey) -> None:
        _number(key)

    def _talk(self, key: TaskKey, project: Project) -> CommentReader:
        return CommentReader(self.wire, self.places, project, _number(key))

    def _pulls(self, key: TaskKey) -> Pulls:
        return Pulls(self.wire, self.places.project_of(key))

    def _move(self, project: Project, key: TaskKey, to: LabelState) -> set[str]:
        """Add the label of the state `to` and remove the five other labels of this program; returns the labels that
        this call removed, without the labels that another process removed first."""
        target = self.labels.name(to)
        path = f"{project.path}/issues/{_number(key)}/labels"
        if target:
            present = self._of_issue(key, "POST", path, {"labels": [target]})
            self._describe_label(project, to, present)
        else:
            present = self._of_issue(key, "GET", path)
        names = [str(label["name"]) for label in present]
        others = [name for name in names if self.own_name(name) in self.labels.names() - {target}]
        return {self.own_name(name) for name in others if self._take_label_off(path, name)}

    def _describe_label(self, project: Project, state: LabelState, present: list[dict[str, Any]]) -> None:
        """Give a label its colour and description if GitHub has just created it.

        GitHub creates an unknown label that is added to an issue, in a default colour and without a description:
        https://github.com/github/docs/issues/35718.  If GitHub refuses to set colour and description of the label, this
        is ignored, since the label works without them.
        """
        name = self.labels.name(state)
        new = any(
            self.own_name(label["name"]) == name and not label.get("description") and label.get("color") == "ededed"
            for label in present
        )
        if new and (project.full_name, name) not in self._described:
            self._described.add((project.full_name, name))
            body = {"color": COLOURS[state], "description": MEANINGS[state]}
            with suppress(ForgeRefused, ForgeAccessRefused):
                self.wire.call("PATCH", f"{project.path}/labels/{quote(name, safe='')}", body=body)

    def _take_label_off(self, path: str, name: str) -> bool:
        """Remove a label; returns whether this call removed it, False when another process removed it first.

        If the answer of one attempt was lost and the label is gone afterwards, this call counts as the one that removed
        the label: otherwise no daemon would regard the issue as its own.
        """
        unknown = False
        for attempt in (1, 2, 3):
            try:
                self.wire.call("DELETE", f"{path}/{quote(name, safe='')}", again=False)
            except ForgeRefused as error:
                if error.status != 404:
                    raise
                return unknown
            except ForgeUnreachable as error:
                if attempt == 3 or not error.maybe:
                    raise
                unknown = True
                clock.sleep(4.0 ** (attempt - 1))
            else:
                return True
        raise AssertionError  # not reached, since the third attempt returns or raises

    def _was_unassigned(self, project: Project, key: TaskKey) -> bool:
        """Whether the bot was removed from the assignees after the run began (after the processing label was set)."""
        began = taken = ""
        for event in self.wire.pages(f"{project.path}/issues/{_number(key)}/events"):
            when = str(event.get("created_at") or "")
            label = self.own_name((event.get("label") or {}).get("name"))
            if event.get("event") == "labeled" and label == self.labels.processing:
                began = when
            elif event.get("event") in ("assigned", "unassigned") and self.places.is_own(event.get("assignee")):
                taken = when if event["event"] == "unassigned" else ""
        return bool(began and taken) and taken >= began

    def _fit(self, body: str) -> str:
        if len(body) > self.max_comment:
            raise ForgeError(f"a comment has {len(body)} characters; GitHub takes {self.max_comment}, shorten it")
        text = body.encode("utf-8", "replace").decode()
        return signed(text, self.max_comment) if self.places.is_person() else text


def _itself(key: TaskKey) -> tuple[int, ...]:
    """The number of the task's pull request if the task itself is a pull request, so that its reviews are read too."""
    return (int(_number(key)),) if key.task_type == "pull_request" else ()


def _number(key: TaskKey) -> str:
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of an issue on GitHub; they are called 1, 2, 3 …")
    return key.task_id
