"""Forgejo and Gitea: the contract of `forge/base.py` over the REST API v1.

This module implements each call of the contract; the other modules of this package are its parts: the HTTP client
(`http.py`) and the shapes of its answers (`answer_shapes.py`), repositories and people (`repositories.py`), labels
(`labels.py`), comments (`comments.py`), pull requests (`pulls.py`), the list of waiting issues (`tasks.py`) and the
person who asked for work (`requesting_person.py`).  docs/forges.md has the facts about Forgejo on which this module
relies.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from agent.config.commits import DEFAULT_PREFIX
from agent.config.project_settings import labels_key, sections_by_labels
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment, IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.base_branch import base_of
from agent.forge.changed_issues import changed_of, recent_of
from agent.forge.comment_cursor import CommentCursor, digest_of, edited, with_pull
from agent.forge.forgejo import token_permissions
from agent.forge.forgejo.checks import read_checks
from agent.forge.forgejo.comments import CommentReader, number_of, utc
from agent.forge.forgejo.commit_identity import commit_identity
from agent.forge.forgejo.config_section import addresses, projects_of
from agent.forge.forgejo.fork_head import head_moved
from agent.forge.forgejo.http import ForgejoWire
from agent.forge.forgejo.labels import LabelMover, label_names
from agent.forge.forgejo.pulls import MAX_BODY, Pulls, number_in, pull_ref, without_draft
from agent.forge.forgejo.repositories import Repositories, is_bot, login
from agent.forge.forgejo.requesting_person import (
    altered,
    ask_for_review,
    request_review,
    was_unassigned,
    who_ended,
)
from agent.forge.forgejo.tasks import ForgejoTaskGetter
from agent.forge.issue_url import on_forgejo
from agent.forge.markers import hidden_in, signed
from agent.forge.misspelt_labels import MOST_PROJECTS, label_problems
from agent.forge.post_once import post_once
from agent.forge.rate_limiter import learnt_anew
from agent.forge.task_getter import RESERVE
from agent.forge.token_account import account_in_words, agents_accounts
from agent.forge.unanswered_lists import UnansweredLists
from agent.observe import log
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from agent.config.forge_sections import Start
    from agent.forge.base import Act, MarkedComment
    from agent.forge.changed_issues import ChangeCursor
    from agent.forge.checks import Checks
    from agent.forge.forgejo.repositories import Project

GIT_USER = "oauth2"
"""The user name for git; any name is accepted, since Forgejo identifies the account by the token
(services/auth/basic.go)."""
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class ForgejoForge:
    """The adapter of one section `forgejo` of the settings: a host, an account, and the repositories that it serves."""

    source = "forgejo"
    max_comment = MAX_BODY
    news_interval = 20.0
    propagation_delay: float | None = 1.0

    def __init__(self, settings: Any, section: Any) -> None:
        self.section = section
        self.max_file: int | None = section.max_file_size
        self.prefixes = {DEFAULT_PREFIX, settings.branch.prefix}
        self.projects = projects_of(section)
        self.base_url, self.instance = addresses(section)
        self.labels = Labels.from_section(section)
        self.wire = ForgejoWire(section, self.base_url, settings.base_dir, self.instance)
        self.places = Repositories(self.wire, section)
        self.mover = LabelMover(self.wire, self.labels)
        self.told: set[str] = set()  # refusals of issues and other problems that were reported already
        self.unanswered = UnansweredLists(lambda: self.wire.get("/version"))
        self.askers: dict[tuple[Any, ...], Any] = {}  # state of an issue → who asked for work on it
        self._own_comments: set[str] = set()
        # task key → (time of the issue's last change, whether the bot was removed from the issue's assignees during the
        # run)
        self._states: dict[TaskKey, tuple[str, bool]] = {}
        # (repository, number of a pull request) → branch of the pull request, which never changes
        self._heads: dict[tuple[str, int], str] = {}

    @classmethod
    def from_settings(cls, settings: Any) -> tuple[Self, ...]:
        return tuple(cls(settings, part) for section in settings.forgejo for part in sections_by_labels(section))

    def covers(self, key: TaskKey) -> bool:
        return (key.task_source, key.instance) == (self.source, self.instance) and self.serves(key.owner, key.repo)

    def serves(self, owner: str, repo: str) -> bool:
        """Whether the adapter's section in the settings covers a repository."""
        known = {f"{one}/{name}".casefold() for one, name in self.projects}
        of_owner = self.section.owner is None or self.section.owner.casefold() == owner.casefold()
        return of_owner and (not known or f"{owner}/{repo}".casefold() in known)

    def task_getter(self) -> ForgejoTaskGetter:
        return ForgejoTaskGetter(self)

    def idle(self, interval: float) -> str:
        """A sentence about the number of requests that polls every `interval` seconds send in an hour in which nothing
        changes (for `doctor`)."""
        return f"{self.per_hour(interval):.0f} requests per idle hour"

    def per_hour(self, interval: float) -> float:
        """The number of requests that polls send in an hour in which nothing changes.

        At each poll the adapter requests one search for the label per owner (with `start.label`), one search for
        assignments (with `start.assignee`), and per repository one list of changes (as if each had ended tasks) and one
        of recent issues (with `start.mention`); each repository is requested again when its stored facts are too old.
        """
        owners = {owner.casefold() for owner, _ in self.projects} or {self.section.owner}
        looks = 3600 / interval
        start: Start = self.section.start
        lists = len(owners) * start.label + start.assignee + len(self.projects) * (1 + start.mention)
        return looks * lists + len(self.projects) * learnt_anew(interval)

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
        """Implements `ForgeReports.label_problems`; Forgejo treats names that differ only in capitals as different
        labels."""
        there = {}
        with self.wire.hurried():
            for owner, repo in self.projects[:MOST_PROJECTS] or self.places.seen(self.serves, MOST_PROJECTS):
                with suppress(IssueUnreadable, ForgeRefused, ForgeAccessRefused, AnswerOdd):
                    project = self.places.project(owner, repo)
                    there[project.full_name] = self.mover.names_in(project)
        return tuple(label_problems(labels_key(self.section, "forgejo"), self.labels, there, str, self.section.start))

    # --- issues -----------------------------------------------------------------------------------------------

    def task_at(self, address: str) -> Task | None:
        found = on_forgejo(address, self.instance)
        if found is None or not self.serves(found.owner, found.repo):
            return None
        key = TaskKey(self.source, found.owner, found.repo, "issue", found.number, self.instance)
        _, item = self._issue(key)
        if item.get("pull_request"):
            key = replace(key, task_type="pull_request")
        if item["state"] != "open":
            raise IssueUnreadable(f"{key} is closed; open it again, or write a new one")
        user = login(item.get("user")) or None
        return Task(key, self, user=user, title=str(item["title"]), labels=label_names(item))

    def read_issue(self, key: TaskKey) -> IssueText:
        project, item = self._issue(key)
        labels = label_names(item)
        body, base = base_of(str(item.get("body") or ""), labels)
        title, problems = str(item["title"]), []
        pull: PullRef | None = None
        if item.get("pull_request"):
            found = self.wire.get(f"{project.path}/pulls/{key.task_id}")
            pull = replace(pull_ref(found), fork=_fork_of(found))
            title, base = without_draft(title), pull.base
        seen = digest_of(str(item["title"]), str(item.get("body") or ""))
        begin = CommentCursor(pulls=self._itself(key), text_seen=seen)
        comments, cursor, left_out = self._talk(key, project).since(begin)
        if left_out:
            problems.append(f"{left_out} comments of people who may not write here are left out")
        return IssueText(
            key=key,
            title=title,
            body=body,
            author=login(item.get("user")) or "ghost",
            labels=tuple(sorted(labels)),
            state="open" if item["state"] == "open" else "closed",
            base=base,
            comments=comments,
            url=str(item.get("html_url") or ""),
            created_at=utc(item.get("created_at")),
            updated_at=utc(item["updated_at"]),
            cursor=cursor.text(),
            problems=tuple(problems),
            pull=pull,
        )

    def altered(self, key: TaskKey, since: str = "") -> str:
        project, item = self._issue(key)
        return altered(self, project, item, since)

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
        """Implements `ForgeReports.author_may_ask`."""
        project, item = self._issue(key)
        return self.places.may_ask(project, item.get("user"))

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        known = CommentCursor.parse(cursor)
        before = replace(known, pulls=tuple(dict.fromkeys((*known.pulls, *self._itself(key)))))
        with self.wire.hurried():
            with self._about(key):
                news, after, _ = self._talk(key, self.places.project_of(key)).since(before)
            edit, seen = self._edited(key, known.text_seen)
        if seen != known.text_seen:
            after = replace(after, text_seen=seen)
        return (*news, *edit), str(cursor) if cursor and after == known else after.text()

    def _edited(self, key: TaskKey, seen: str) -> tuple[tuple[Comment, ...], str]:
        """(an edit of the issue's title or text as a comment, if the digest of title and text is no longer `seen`; the
        digest of the present title and text).

        Forgejo does not report the account that edited a text, which is the author of the issue or an account with
        write access. Since the editor is unknown, an edit is delivered only if the author of the issue has permission.
        """
        if not seen:
            return (), seen
        try:
            project, item = self._issue(key)
        except IssueUnreadable:
            return (), seen
        title, body = str(item["title"]), str(item.get("body") or "")
        if (now := digest_of(title, body)) == seen:
            return (), seen
        author = item.get("user")
        if not self.places.may_ask(project, author):
            log.get("forge").warning("edit_left_out", issue=str(key), author=login(author))
            return (), now
        return (edited(title, body, now, login(author), utc(item["updated_at"])),), now

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        with self.wire.hurried(RESERVE):
            return changed_of(watched, cursor, self._changed, number_in)

    def recent_issues(self, cursor: str) -> tuple[dict[TaskKey, Comment], str]:
        """Implements `ForgeReports.recent_issues`."""
        with self.wire.hurried(RESERVE):
            return recent_of(self.projects, cursor, self._recent)

    def _recent(self, owner: str, repo: str, since: str) -> Iterator[tuple[TaskKey, Comment, str]]:
        query = {"state": "open", "since": since}
        # A repository that cannot be read is left out; the poll for waiting issues reports it.
        with suppress(IssueUnreadable, ForgeRefused, ForgeAccessRefused):
            path = f"{self.places.project(owner, repo).path}/issues"
            for item in self.wire.pages(path, query=query, odd=lambda _error: None):
                who, made = item.get("user"), utc(item.get("created_at"))
                title, body = str(item.get("title") or ""), str(item.get("body") or "")
                kind = "pull_request" if item.get("pull_request") else "issue"
                if item["state"] != "open" or (kind != "issue" and self.places.is_own(who) and hidden_in(body)):
                    continue
                key = TaskKey(self.source, owner, repo, kind, str(item["number"]), self.instance)
                yield key, Comment("", login(who), body, made, made, is_bot(who), place=title), str(item["updated_at"])

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:  # noqa: ARG002 - the picture's address suffices, so `key` is not used
        from agent.forge.forgejo.pictures import fetch_picture

        return fetch_picture(self.wire, address)

    def own_names(self) -> tuple[str, ...]:
        return (self.places.own(),)

    def commit_identity(self) -> tuple[str, str] | None:
        """Implements `ForgeReports.commit_identity`."""
        return commit_identity(self.wire, self.places.own())

    @property
    def poll_pause(self) -> float:
        return self.wire.pause

    def mark_taken(self, key: TaskKey, *, again: bool = False) -> bool:
        with self.wire.limiter.exclusive():
            project, item = self._issue(key)
            present = label_names(item)
            if again:
                waits = item["state"] == "open" and self.labels.can_start(present)
            else:
                assigned = self.places.is_assigned(item)
                waits = self.labels.waits(present, self.section.start, assigned=assigned)
            if waits:
                self._move(project, key, "processing")
            return waits

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        with self.wire.limiter.exclusive():
            self._move(self.places.project_of(key), key, to)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        with self.wire.hurried():
            try:
                project, item = self._issue(key)
            except IssueUnreadable:
                return "stop"  # the issue is gone or hidden from the token, so its task has to stop
            if self.labels.requested(label_names(item), str(item["state"])) == "stop":
                return "stop"
            if self.places.is_assigned(item):
                return None
            kept = self._states.get(key)
            # the timeline is read again only after a change of the issue
            if kept is None or kept[0] != item["updated_at"]:
                kept = str(item["updated_at"]), was_unassigned(self, project, _number(key))
                self._states[key] = kept
        return "stop" if kept[1] else None

    # --- comments ---------------------------------------------------------------------------------------------

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        return next((one.id for one in self.marked_comments(key) if marker in one.markers), None)

    def post_comment(self, key: TaskKey, body: str) -> str:
        text = self._fit(body)
        path = f"{self.places.project_of(key).path}/issues/{_number(key)}/comments"
        marker = hidden_in(text)

        def post() -> str:
            with self._about(key):
                made = self.wire.call("POST", path, body={"body": text}).data
            self._own_comments.add(str(made["id"]))
            return str(made["id"])

        return post_once(post, None if marker is None else lambda: self.find_comment(key, marker))

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        _number(key)
        with self._about(key):
            found = tuple(self._talk(key, self.places.project_of(key)).marked())
        self._own_comments.update(one.id for one in found)
        return found

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        try:
            self.wire.call("DELETE", self._own_comment(key, comment_id))
        except ForgeRefused as error:
            if error.status != 404:
                raise

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        text = self._fit(body)
        try:
            self.wire.call("PATCH", self._own_comment(key, comment_id), body={"body": text})
        except ForgeRefused as error:
            if error.status == 404:
                raise ForgeError(f"comment {comment_id} of {key} is gone and cannot be edited") from error
            raise
        self._own_comments.add(comment_id)

    def _own_comment(self, key: TaskKey, comment_id: str) -> str:
        """The path in Forgejo's API of a comment that the own account wrote; raises ForgeError for a comment of another
        account, since Forgejo would let the own account edit any comment."""
        path = f"{self.places.project_of(key).path}/issues/comments/{number_of(comment_id)}"
        if comment_id not in self._own_comments:
            found = self.wire.get(path)
            if not self.places.is_ours(found.get("user"), str(found.get("body") or "")):
                raise ForgeError(f"comment {comment_id} of {key} belongs to somebody else and is left as it is")
        return path

    # --- pull requests ----------------------------------------------------------------------------------------

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        return self._pulls(self.places.project_of(key)).find(head)

    def open_pull(
        self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool, is_new: bool = False
    ) -> PullRef:
        project = self.places.project_of(key)
        if not project.has_pulls:
            raise ForgeError(f"pull requests are switched off in {project.full_name}; switch them on, or push by hand")
        with self.wire.limiter.exclusive():
            pulls = self._pulls(project)
            there = None if is_new else pulls.find(head)
            if there is None or there.state != "open":
                there = pulls.open(title=title, body=body, head=head, base=base, draft=draft)
        if not (draft or there.draft):
            with self._about(key):
                ask_for_review(self, project, _number(key), there.id)
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
        changed = self._pulls(project).update(pull.id, title=title, body=body, draft=draft, state=state)
        # if the update has made the draft ready, request a review by the person who asked for the work
        if pull.draft and not changed.draft and changed.state == "open":
            with self._about(key):
                ask_for_review(self, project, _number(key), changed.id)
        return changed

    def with_pull(self, cursor: str | None, url: str) -> str | None:
        """Implements `ForgeReports.with_pull`."""
        return with_pull(cursor, number_in(url))

    def ask_again(self, key: TaskKey, pull: PullRef, login: str) -> None:
        """Implements `ForgeReports.ask_again`."""
        request_review(self, self.places.project_of(key), pull.id, {"login": login})

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Implements `ForgeReports.acknowledge`; Forgejo has no reactions to the text of a review."""
        if comment is not None and comment.id.startswith("v"):
            return
        with self.wire.hurried():
            place = f"issues/{_number(key)}" if comment is None else f"issues/comments/{comment.id.removeprefix('r')}"
            path = f"{self.places.project_of(key).path}/{place}/reactions"
            self.wire.call("POST", path, body={"content": "eyes"}, again=False)

    def branch_page(self, url: str, branch: str) -> str:
        """Implements `ForgeReports.branch_page`."""
        project, found, _ = url.rpartition("/pulls/")
        return f"{project}/src/branch/{quote(branch)}" if found else ""

    def checks(self, key: TaskKey, commit: str, url: str = "") -> Checks:  # noqa: ARG002 - the commit suffices, so `url` is not used
        """Implements `ForgeReports.checks`."""
        with self.wire.hurried():
            return read_checks(self.wire, self.places.project_of(key), commit)

    def reply(self, key: TaskKey, comment: Comment, body: str) -> str:
        """Implements `ForgeReports.reply`: the answer is a comment in the conversation of the issue or pull request."""
        return self.post_comment(replace(key, task_id=comment.address), body)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """Implements `ForgeReports.find_reply`."""
        return self.find_comment(replace(key, task_id=comment.address), marker)

    def who_ended(self, key: TaskKey, act: Act) -> str:
        """Implements `ForgeReports.who_ended`."""
        with self.wire.hurried():
            return who_ended(self, self.places.project_of(key), _number(key), act)

    # --- the repository ---------------------------------------------------------------------------------------

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:  # noqa: ARG002 - the task key names the repository, so `issue` is not used
        project = self.places.project_of(key)
        if project.archived:
            said = f"{project.full_name} is archived: it is read-only, so nothing can be pushed to it"
            raise IssueUnreadable(said, code="repository_archived")
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance)
        # The address for git is built from base_url, not from `clone_url`: the address that Forgejo has for itself
        # (ROOT_URL) may not be reachable from this machine.
        url = f"{self.base_url}/{project.full_name}.git"
        head = f"refs/pull/{_number(key)}/head" if key.task_type == "pull_request" else None
        return Repository(host, project.owner, project.name, url, project.default_branch, self.wire.ca_file(), head)

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - one token serves all projects, so `key` is not used
        return GIT_USER, self.wire.token()

    def renew_login(self, key: TaskKey) -> None:
        """Does nothing: the token of Forgejo comes from the settings and cannot be renewed."""

    def close(self) -> None:
        self.wire.close()

    # --- shared by the parts ----------------------------------------------------------------------------------

    def _issue(self, key: TaskKey) -> tuple[Project, dict[str, Any]]:
        """(the repository that the task key names, Forgejo's answer about the issue).

        If the repository was renamed, Forgejo redirects the request for the issue, and the stored facts about the
        repository are read again.
        """
        number = _number(key)
        project = self.places.project_of(key)
        with self._about(key, project):
            item = self.wire.get(f"{project.path}/issues/{number}")
        found = (item.get("repository") or {}).get("full_name")
        if found and found != project.full_name:
            self.places.forget(key)
            project = self.places.project_of(key)
        return project, item

    @contextmanager
    def _about(self, key: TaskKey, project: Project | None = None) -> Iterator[None]:
        """A context manager that raises IssueUnreadable if Forgejo answers 404: the issue does not exist, or is hidden
        from the token.

        Forgejo also answers 404 where issues are switched off; then IssueUnreadable has the code `issues_off`.
        """
        try:
            yield
        except ForgeRefused as error:
            if error.status != 404:
                raise
            self.places.forget(key)
            project = self.places.project_of(key)
            switched_on = project.has_pulls if key.task_type == "pull_request" else project.has_issues
            if not switched_on:
                what = "pull requests" if key.task_type == "pull_request" else "issues"
                said = f"{key} is gone: {what} are switched off in {project.full_name}"
                raise IssueUnreadable(said, code="issues_off") from error
            raise IssueUnreadable(f"{key}: there is no such issue; it was deleted or never there") from error

    def _changed(self, owner: str, repo: str, changes: ChangeCursor) -> dict[str, str]:
        """Number → time of the last change, for the changed issues and pull requests of a repository."""
        name = f"{owner}/{repo}"
        since = changes.since(name).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            path = f"{self.places.project(owner, repo).path}/issues"
            # invalid items of the list are left out; the poll for waiting issues reports them
            listed = self.wire.pages(path, query={"state": "all", "since": since}, odd=lambda _error: None)
            items = [(str(item["number"]), str(item["updated_at"])) for item in listed]
        except IssueUnreadable:
            return {}  # the repository is gone or hidden from the token, which the poll for waiting issues reports
        except ForgeRefused as error:
            if error.status != 404:
                raise
            return {}  # issues and pull requests are switched off, or the repository is gone or hidden from the token
        return changes.update(name, items)

    def _talk(self, key: TaskKey, project: Project) -> CommentReader:
        def is_ours(number: int) -> bool:
            return self._head(project, number).startswith(tuple(f"{prefix}{key.task_id}-" for prefix in self.prefixes))

        return CommentReader(self.wire, self.places, project, _number(key), is_ours)

    def _head(self, project: Project, number: int) -> str:
        """The branch of a pull request; "" if the branch is in another repository or the pull request is gone."""
        place = project.full_name, number
        if place not in self._heads:
            try:
                self._heads[place] = self._pulls(project).head_of(number)
            except ForgeRefused as error:
                if error.status != 404:
                    raise
                return ""
        return self._heads[place]

    def _itself(self, key: TaskKey) -> tuple[int, ...]:
        """The number of the task's pull request if the task itself is a pull request, so that its reviews are read
        too."""
        return (int(_number(key)),) if key.task_type == "pull_request" else ()

    def _pulls(self, project: Project) -> Pulls:
        return Pulls(self.wire, self.places, project)

    def _move(self, project: Project, key: TaskKey, to: LabelState) -> None:
        with self._about(key):
            self.mover.move(project, _number(key), to)

    def _fit(self, body: str) -> str:
        if len(body) > self.max_comment:
            raise ForgeError(f"a comment has {len(body)} characters; the most is {self.max_comment}, shorten it")
        text = body.encode("utf-8", "replace").decode()
        return signed(text, self.max_comment) if self.places.is_person() else text


def _fork_of(item: dict[str, Any]) -> str:
    """The repository in which a pull request's branch is, if the pull request is from a fork; otherwise ""."""
    if item["head"].get("repo_id") == item["base"].get("repo_id"):
        return ""
    return str((item["head"].get("repo") or {}).get("full_name") or "a repository that is gone")


def _number(key: TaskKey) -> str:
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of an issue on Forgejo; they are called 1, 2, 3 …")
    return key.task_id
