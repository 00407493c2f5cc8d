"""GitHub and GitHub Enterprise: the contract of `forge/base.py` over GitHub's REST API and, for a few changes, its
GraphQL API.

This module implements each call of the contract; the other modules of this package are its parts: the HTTP client
(`http.py`) and the shapes of its answers (`answer_shapes.py`), repositories and people (`repositories.py`), comments
(`comments.py`), pull requests (`pulls.py`), an issue and its labels (`task_items.py`), the lists of waiting issues
(`tasks.py`) and of changed ones (`changed_items.py`).  docs/forges.md has the facts about GitHub on which this module
relies.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from agent.config.project_settings import labels_key, sections_by_labels
from agent.errors import ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment, IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.base_branch import base_of
from agent.forge.changed_issues import changed_of, recent_of
from agent.forge.comment_cursor import CommentCursor, digest_of, edited, with_pull
from agent.forge.github import reactions_and_replies, token_permissions
from agent.forge.github.auth import AppToken
from agent.forge.github.changed_items import changed_in, recent_in
from agent.forge.github.checks import CheckReader
from agent.forge.github.comments import CommentReader, number_of
from agent.forge.github.config_section import instance_of, projects_of, qualifiers_of, signs_commits
from agent.forge.github.fork_head import head_moved
from agent.forge.github.http import GitHubWire
from agent.forge.github.pulls import MAX_BODY, Pulls, number_in, pull_ref
from agent.forge.github.repositories import Repositories, login
from agent.forge.github.requesting_person import (
    altered,
    ask_for_review,
    node_of_reviewer,
    request_review,
    was_unassigned,
    who_ended,
)
from agent.forge.github.signed_commits import SignedCommits
from agent.forge.github.task_items import TaskItems, issue_number
from agent.forge.github.tasks import GitHubTaskGetter
from agent.forge.issue_url import on_github
from agent.forge.markers import hidden_in, signed
from agent.forge.misspelt_labels import label_problems
from agent.forge.post_once import post_once
from agent.forge.rate_limiter import learnt_anew
from agent.forge.task_getter import RESERVE
from agent.forge.token_account import account_in_words, agents_accounts
from agent.forge.unanswered_lists import UnansweredLists
from agent.observe import log
from agent.security.redact import masker_of
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from agent.config.forge_sections import Start
    from agent.forge.base import Act, MarkedComment
    from agent.forge.checks import Check, Checks
    from agent.forge.github.repositories import Project

GIT_USER = "x-access-token"


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
        self.signs_commits = signs_commits(section, settings.commit.signing)
        self.searches = bool(self.qualifiers)
        names = tuple("/".join(project) for project in self.projects)
        self.wire = GitHubWire(section, settings.base_dir, self.instance, names, learn=masker_of(settings).learn)
        self.places = Repositories(self.wire, section)
        self.items = TaskItems(self.wire, self.places, self.labels)
        self.told: set[str] = set()  # refusals of issues and other problems that were reported already
        # GitHub does not count a request for `/rate_limit` against the rate limit
        self.unanswered = UnansweredLists(lambda: self.wire.get("/rate_limit"))
        self.askers: dict[tuple[Any, ...], Any] = {}  # state of an issue → who asked for work on it
        self._own_comments: set[str] = set()
        self.states: dict[TaskKey, tuple[str, bool]] = {}  # task → time of change, whether the bot was unassigned
        self.asked_by: dict[TaskKey, Any] = {}  # task → the account that asked for the work, None if it is unknown

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
        _, item = self.items.get(key)
        if item.get("pull_request"):
            key = replace(key, task_type="pull_request")
        if item.get("state") != "open":
            raise IssueUnreadable(f"{key} is closed; open it again, or write a new one")
        title, labels = str(item.get("title") or ""), self.items.label_names(item)
        return Task(key, self, user=login(item.get("user")) or None, title=title, labels=labels)

    def read_issue(self, key: TaskKey) -> IssueText:
        project, item = self.items.get(key)
        labels = self.items.label_names(item)
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
        return altered(self, key, since)

    def head_moved(self, key: TaskKey, pull: PullRef, since: str = "") -> str:
        """Implements `ForgeReports.head_moved`."""
        return head_moved(self, self.places.project_of(key), issue_number(key), pull, since)

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
        project, item = self.items.get(key)
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
        digest of the present title and text). If `seen` is "", the issue is not read.

        GitHub's REST API does not report the account that edited a text, which is the author of the issue or an account
        with write access. Since the editor is unknown, an edit is delivered only if the author of the issue has
        permission.
        """
        if not seen:
            return (), seen
        try:
            project, item = self.items.get(key)
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
            return changed_of(watched, cursor, partial(changed_in, self), number_in)

    def recent_issues(self, cursor: str) -> tuple[dict[TaskKey, Comment], str]:
        """Implements `ForgeReports.recent_issues`."""
        with self.wire.hurried(RESERVE):
            return recent_of(self.projects, cursor, partial(recent_in, self))

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
            project, item = self.items.get(key)
            present = self.items.label_names(item)
            if again:
                waits = item.get("state") == "open" and self.labels.can_start(present)
                ours = present & self.labels.names()
                return waits and (bool(self.items.move(project, key, "processing")) or not ours)
            assigned = self.places.is_assigned(item)
            if not self.labels.waits(present, self.section.start, assigned=assigned):
                return False
            gone = self.items.move(project, key, "processing")
            return self.labels.queued in gone or self.labels.queued not in present

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        with self.wire.limiter.exclusive():
            self.items.move(self.places.project_of(key), key, to)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        with self.wire.hurried():
            try:
                project, item = self.items.get(key)
            except IssueUnreadable:
                return "stop"  # the issue cannot be read (deleted, moved or hidden), so its task has to stop
            wish = self.labels.requested(self.items.label_names(item), str(item.get("state")))
            return wish or ("stop" if was_unassigned(self, key, project, item) else None)

    # --- comments ---------------------------------------------------------------------------------------------

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        return next((one.id for one in self.marked_comments(key) if marker in one.markers), None)

    def post_comment(self, key: TaskKey, body: str) -> str:
        text = self._fit(body)
        path = f"{self.places.project_of(key).path}/issues/{issue_number(key)}/comments"
        marker = hidden_in(text)

        def post() -> str:
            made = self.items.call(key, "POST", path, {"body": text}, again=False)
            self._own_comments.add(str(made["id"]))
            return str(made["id"])

        return post_once(post, None if marker is None else lambda: self.find_comment(key, marker))

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        self._check(key)
        with self.items.about(key):
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

    def open_pull(
        self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool, is_new: bool = False
    ) -> PullRef:
        with self.wire.limiter.exclusive():
            pulls = self._pulls(key)
            there = None if is_new else pulls.find(head)
            asks = not draft
            if there is None or there.state != "open":
                there = pulls.open(title=title, body=body, head=head, base=base, draft=draft)
                asks = True
        if asks and not there.draft:
            ask_for_review(self, key, there.id)
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
        def reviewer() -> str | None:
            return node_of_reviewer(self, key)

        changed, is_asked = self._pulls(key).update(
            pull.id, title=title, body=body, draft=draft, state=state, reviewer=reviewer
        )
        # the pull request has just become ready, and the update itself has not asked for a review
        if pull.draft and not changed.draft and changed.state == "open" and not is_asked:
            ask_for_review(self, key, changed.id)
        return changed

    def with_pull(self, cursor: str | None, url: str) -> str | None:
        """Implements `ForgeReports.with_pull`."""
        return with_pull(cursor, number_in(url))

    def ask_again(self, key: TaskKey, pull: PullRef, login: str) -> None:
        """Implements `ForgeReports.ask_again`."""
        request_review(self, self.places.project_of(key), pull.id, {"login": login})

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Implements `ForgeReports.acknowledge`."""
        with self.wire.hurried():
            reactions_and_replies.react(self.wire, self.places.project_of(key), issue_number(key), comment)

    def reply(self, key: TaskKey, comment: Comment, body: str) -> str:
        """Implements `ForgeReports.reply`."""
        project = self.places.project_of(key)
        return reactions_and_replies.reply(self.wire, project, comment, self._fit(body), self.places.is_own)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """Implements `ForgeReports.find_reply`."""
        return reactions_and_replies.find_reply(
            self.wire, self.places.project_of(key), comment, marker, self.places.is_own
        )

    def branch_page(self, url: str, branch: str) -> str:
        """Implements `ForgeReports.branch_page`."""
        project, found, _ = url.rpartition("/pull/")
        return f"{project}/tree/{quote(branch)}" if found else ""

    def checks(self, key: TaskKey, commit: str, url: str = "") -> Checks:  # noqa: ARG002 - GitHub needs only the commit, so `url` is not used
        """Implements `ForgeReports.checks`."""
        with self.wire.hurried():
            return CheckReader(self.wire, self.places.project_of(key)).read(commit)

    def check_log(self, key: TaskKey, check: Check) -> str:
        """Implements `ForgeReports.check_log`."""
        return CheckReader(self.wire, self.places.project_of(key)).log(check)

    def who_ended(self, key: TaskKey, act: Act) -> str:
        """Implements `ForgeReports.who_ended`."""
        with self.wire.hurried():
            return who_ended(self, self.places.project_of(key), issue_number(key), act)

    # --- the repository ---------------------------------------------------------------------------------------

    def commit_maker(self, key: TaskKey) -> SignedCommits | None:
        """Implements `ForgeReports.commit_maker`."""
        return SignedCommits(self.wire, self.places.project_of(key)) if self.signs_commits else None

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:  # noqa: ARG002 - the task key names the repository, so `issue` is not used
        project = self.places.project_of(key)
        if project.archived:
            said = f"{project.full_name} is archived: it is read-only, so nothing can be pushed to it"
            raise IssueUnreadable(said, code="repository_archived")
        owner, _, name = project.full_name.partition("/")
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance)
        url = self.places.check_host(project.clone_url)
        head = f"refs/pull/{issue_number(key)}/head" if key.task_type == "pull_request" else None
        return Repository(host, owner, name, url, project.default_branch, self.wire.ca_file(), head)

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - one token serves all projects, so `key` is not used
        return GIT_USER, self.wire.tokens.current()

    def renew_login(self, key: TaskKey) -> None:  # noqa: ARG002 - one token serves all projects, so `key` is not used
        self.wire.tokens.refresh()

    def close(self) -> None:
        self.wire.close()

    # --- shared by the parts ----------------------------------------------------------------------------------

    def _check(self, key: TaskKey) -> None:
        issue_number(key)

    def _talk(self, key: TaskKey, project: Project) -> CommentReader:
        return CommentReader(self.wire, self.places, project, issue_number(key))

    def _pulls(self, key: TaskKey) -> Pulls:
        return Pulls(self.wire, self.places.project_of(key))

    def _fit(self, body: str) -> str:
        if len(body) > self.max_comment:
            raise ForgeError(f"a comment has {len(body)} characters; GitHub takes {self.max_comment}, shorten it")
        text = body.encode("utf-8", "replace").decode()
        return signed(text, self.max_comment) if self.places.is_person() else text


def _itself(key: TaskKey) -> tuple[int, ...]:
    """The number of the task's pull request if the task itself is a pull request, so that its reviews are read too."""
    return (int(issue_number(key)),) if key.task_type == "pull_request" else ()
