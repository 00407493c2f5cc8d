"""GitLab, on gitlab.com or a self-managed host: the contract of `forge/base.py` over the REST API v4.

This module implements each call of the contract; the other modules of this package are its parts: the HTTP client
(`http.py`), projects and people (`projects.py`), notes and discussions (`notes.py`), merge requests
(`merge_requests.py`), an issue and its labels (`task_items.py`), the listed projects (`listed_projects.py`), the lists
of waiting issues (`tasks.py`) and of changed ones (`changed_items.py`), the person who asked for work
(`requesting_person.py`), edits of a text (`text_edits.py`), own notes (`own_notes.py`) and text without quick actions
(`outgoing_text.py`).  docs/forges.md has the facts about GitLab on which this module relies.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from agent import clock
from agent.config.commits import DEFAULT_PREFIX
from agent.config.project_settings import labels_key, sections_by_labels
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeRefused, IssueUnreadable
from agent.forge.base import Comment, IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.base_branch import base_of
from agent.forge.changed_issues import recent_of
from agent.forge.comment_cursor import CommentCursor, digest_of, with_pull
from agent.forge.gitlab import outgoing_text, reactions_and_replies, token_permissions
from agent.forge.gitlab.changed_items import changed_of, number_in, recent_in
from agent.forge.gitlab.checks import CheckReader
from agent.forge.gitlab.config_section import addresses, listed
from agent.forge.gitlab.fork_head import head_moved
from agent.forge.gitlab.http import GitLabWire, is_missing
from agent.forge.gitlab.listed_projects import ListedProjects
from agent.forge.gitlab.merge_requests import (
    BRANCH_WAITS,
    LOOK_UP_WAIT,
    BranchUnknown,
    MergeRequests,
    opened_for,
    pull_ref,
)
from agent.forge.gitlab.notes import ItemNumber, NoteReader, utc
from agent.forge.gitlab.own_notes import OwnNotes
from agent.forge.gitlab.projects import Projects, username
from agent.forge.gitlab.requesting_person import altered, reviewer_of, taken_away, who_ended
from agent.forge.gitlab.task_items import TaskItems, collection_of, is_merge, number_of, state_of
from agent.forge.gitlab.tasks import KINDS, GitLabTaskGetter, MemberProjects
from agent.forge.gitlab.text_edits import edit_of
from agent.forge.host_client import PATIENT, QUICK
from agent.forge.issue_url import on_gitlab
from agent.forge.misspelt_labels import MOST_PROJECTS, label_problems
from agent.forge.post_once import post_once
from agent.forge.rate_limiter import learnt_anew
from agent.forge.token_account import account_in_words, agents_accounts
from agent.forge.unanswered_lists import UnansweredLists
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from agent.config.forge_sections import Start
    from agent.forge.base import Act, MarkedComment
    from agent.forge.checks import Check, Checks
    from agent.forge.gitlab.projects import Project

GIT_USER = "oauth2"


class GitLabForge:
    """The adapter of one section `gitlab` of the settings: a host, an account, and the projects that it serves.

    `alone`: no other section of the settings has the same GitLab host, so this adapter serves every task key of the
    host.
    """

    source = "gitlab"
    pull_name = "merge request"
    max_comment = outgoing_text.MAX_NOTE
    news_interval = 20.0
    propagation_delay: float | None = 1.0

    def __init__(self, settings: Any, section: Any, *, alone: bool = True) -> None:
        self.section = section
        self.max_file: int | None = section.max_file_size
        self.prefixes = {DEFAULT_PREFIX, settings.branch.prefix}
        self.alone = alone
        self.base_url, self.instance = addresses(str(section.base_url))
        self.labels = Labels.from_section(section)
        self.projects = listed(section)
        self.wire = GitLabWire(section, self.base_url, settings.base_dir, self.instance)
        self.places = Projects(self.wire, section)
        self.items = TaskItems(self.wire, self.places, self.labels, section.start)
        self.told: set[str] = set()  # refusals of projects and issues that were reported already
        self.unanswered = UnansweredLists(lambda: self.wire.get("/version", patience=QUICK))
        self.listed = ListedProjects(self.projects, section.owner, self.places, self.unanswered, self.told)
        self.groups: set[str] = set()  # project owners that are groups, not people
        self.lists: list[str] = []  # API paths in which the last poll searched for issues with the label
        self.members: tuple[float, list[tuple[str, Project]]] | None = None
        self.askers: dict[tuple[Any, ...], Any] = {}  # state of an issue → who asked for work on it
        self._states: dict[TaskKey, tuple[str, bool]] = {}
        self.notes = OwnNotes(self.items)

    @classmethod
    def from_settings(cls, settings: Any) -> tuple[Self, ...]:
        sections = [part for section in settings.gitlab for part in sections_by_labels(section)]
        hosts = [addresses(str(section.base_url))[1] for section in sections]
        return tuple(
            cls(settings, section, alone=hosts.count(host) == 1) for section, host in zip(sections, hosts, strict=True)
        )

    def covers(self, key: TaskKey) -> bool:
        if (key.task_source, key.instance) != (self.source, self.instance):
            return False
        return self.alone or self.listed.may_cover(key)

    def task_getter(self) -> GitLabTaskGetter:
        return GitLabTaskGetter(self)

    def idle(self, interval: float) -> str:
        """A sentence about the number of requests that polls every `interval` seconds send in an hour in which nothing
        changes (for `doctor`)."""
        return f"{self.per_hour(interval):.0f} requests per idle hour, all conditional"

    def per_hour(self, interval: float) -> float:
        """The number of requests that polls send in an hour in which nothing changes.

        At each poll the adapter requests, for each listed project (without listed projects, for each project or group
        that the last poll searched), two lists of changes (this is counted as if each project had ended tasks), two
        lists of issues with the label and two lists in which mentions are searched for; and two lists of assignments
        for all projects together. If `start` switches off a way to ask for work, the adapter does not request the lists
        for it. Each listed project, or the list of the account's projects, is requested again when the stored facts are
        too old.
        """
        looks = 3600 / interval
        places = self.projects or self.lists
        anew = learnt_anew(interval) * (len(self.projects) if self.projects else 1)
        start: Start = self.section.start
        return looks * ((2 * start.label + 2 + 2 * start.mention) * len(places) + 2 * start.assignee) + anew

    def rights(self) -> tuple[str, ...]:
        """Implements `ForgeReports.rights` (for `doctor`)."""
        return tuple(token_permissions.rights(self))

    def account(self) -> str:
        """Implements `ForgeReports.account`."""
        return account_in_words(self, self.places.own()[1])

    def agents_accounts(self) -> tuple[str, ...]:
        """Implements `ForgeReports.agents_accounts`."""
        return agents_accounts(self, self.places.own()[1])

    def label_problems(self) -> tuple[str, ...]:
        """Implements `ForgeReports.label_problems`; GitLab treats names that differ only in capitals as different
        labels.  The labels of a project include those of its groups."""
        served = self.listed.served() if self.projects else MemberProjects(self).projects()
        there = {}
        for name, project in served[:MOST_PROJECTS]:
            with suppress(ForgeRefused, ForgeAccessRefused, AnswerOdd):
                labels = self.wire.pages(f"{project.path}/labels", patience=QUICK)
                there[name] = [str(one["name"]) for one in labels]
        return tuple(label_problems(labels_key(self.section, "gitlab"), self.labels, there, str, self.section.start))

    # --- issues and merge requests that are tasks -------------------------------------------------------------

    def task_at(self, address: str) -> Task | None:
        found = on_gitlab(address, self.instance)
        if found is None:
            return None
        key = TaskKey(self.source, found.owner, found.repo, found.kind, found.number, self.instance)
        if not self.listed.may_cover(key):
            return None
        _, item = self.items.get(key)
        if state_of(item) != "open":
            raise IssueUnreadable(f"{key} is {item.get('state')}; open it again, or write a new one")
        title, labels = str(item.get("title") or ""), self.items.label_names(item)
        return Task(key, self, user=username(item.get("author")) or None, title=title, labels=labels)

    def read_issue(self, key: TaskKey) -> IssueText:
        project, item = self.items.get(key)
        if item.get("confidential") and not project.is_private:
            raise IssueUnreadable(
                f"{key} is confidential and {project.full_name} is not private: a merge request would show what is in "
                f"it to others. Take the mark off if that may be, or give the work to a private project"
            )
        labels = self.items.label_names(item)
        body, base = base_of(str(item.get("description") or ""), labels)
        problems = []
        pull: PullRef | None = None
        if is_merge(key):
            is_own = item.get("source_project_id") == project.id
            pull = replace(pull_ref(item), fork="" if is_own else self.places.name_of(item.get("source_project_id")))
            base = pull.base
        if item.get("moved_to_id"):
            problems.append("the issue was moved to another project; ask for it there")
        talk = self._talk(key, project)
        seen = digest_of(str(item.get("title") or ""), str(item.get("description") or ""))
        read = utc(item.get("updated_at"))
        pulls = opened_for(self.items, key, project, self.prefixes, PATIENT)
        begin = CommentCursor(since=read, pulls=pulls, text_seen=seen)
        comments, cursor, left_out = talk.since(begin, with_edits=False)
        if left_out:
            problems.append(f"{left_out} comments of people who may not write here are left out")
        return IssueText(
            key=key,
            title=outgoing_text.without_draft(str(item.get("title") or ""))
            if is_merge(key)
            else str(item.get("title") or ""),
            body=body,
            author=username(item.get("author")) or "ghost",
            labels=tuple(sorted(labels)),
            state=state_of(item),
            base=base,
            comments=comments,
            url=str(item.get("web_url") or ""),
            created_at=str(item.get("created_at") or ""),
            updated_at=str(item.get("updated_at") or ""),
            cursor=cursor.text(),
            problems=tuple(problems),
            pull=pull,
            confidential=bool(item.get("confidential")),
        )

    def head_moved(self, key: TaskKey, pull: PullRef, since: str = "") -> str:
        """Implements `ForgeReports.head_moved`."""
        project = self.places.project_of(key)
        return head_moved(self.wire, self.places, project, number_of(key), pull, self.labels.queued, since)

    def single_reads(self) -> AbstractContextManager[None]:
        """Implements `ForgeReports.single_reads`."""
        return self.wire.reads.scope()

    def answered_at(self) -> float | None:
        """Implements `ForgeReports.answered_at`."""
        return self.wire.answered_at

    def pull_ref(self, pull_id: str) -> str | None:
        """Implements `ForgeReports.pull_ref`."""
        return f"refs/merge-requests/{pull_id}/head"

    def commenters_may_ask(self) -> bool:
        """Implements `ForgeReports.commenters_may_ask`: comments of people who may not ask for work are left out."""
        return True

    def author_may_ask(self, key: TaskKey) -> bool:
        """See `ForgeReports`."""
        project, item = self.items.get(key)
        return self.places.may_ask(project, item.get("author"))

    def altered(self, key: TaskKey, since: str = "") -> str:
        project, item = self.items.get(key)
        return altered(
            self.wire, self.places, project, collection_of(key), item, self.labels.queued, since=since, patience=PATIENT
        )

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        number_of(key)
        project = self.places.project_of(key, patience=QUICK)
        known = CommentCursor.parse(cursor)
        fresh = known == CommentCursor() and cursor != known.text()
        listened = opened_for(self.items, key, project, self.prefixes, QUICK) if fresh else ()
        pulls = tuple(dict.fromkeys((*known.pulls, *listened)))
        before = replace(known, pulls=pulls)
        talk = self._talk(key, project, QUICK)
        news, after, _ = talk.since(before)
        edit, seen = edit_of(self.items, key, known.text_seen, talk.editor)
        if seen != known.text_seen:
            after = replace(after, text_seen=seen)
        unchanged = cursor and after is before and pulls == known.pulls and not fresh
        return (*news, *edit), str(cursor) if unchanged else after.text()

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        return changed_of(self, watched, cursor)

    def recent_issues(self, cursor: str) -> tuple[dict[TaskKey, Comment], str]:
        """Implements `ForgeReports.recent_issues`."""
        served = {names.rpartition("/")[::2]: project for names, project in self.listed.served()}
        lists = [(*names, collection) for names in served for collection in KINDS]
        return recent_of(lists, cursor, partial(recent_in, self, served))

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:
        from agent.forge.gitlab.pictures import fetch_picture

        return fetch_picture(self.wire, self.places.project_of(key), address)

    def own_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.places.own()[1], self.section.bot_name) if name))

    def commit_identity(self) -> tuple[str, str] | None:
        return self.places.commit_identity()

    @property
    def poll_pause(self) -> float:
        return self.wire.pause

    def mark_taken(self, key: TaskKey, *, again: bool = False) -> bool:
        with self.wire.limiter.exclusive():
            return self.items.mark_taken(key, again=again)

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        with self.wire.limiter.exclusive():
            self.items.move(key, to)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        try:
            project, item = self.items.get(key, patience=QUICK)
        except IssueUnreadable:
            # GitLab shows no such issue: it was deleted or moved, or its project is gone, hidden from the account or
            # has issues switched off. A task of an issue that GitLab does not show has to stop.
            return "stop"
        if self.labels.requested(self.items.label_names(item), state_of(item)) == "stop":
            return "stop"
        if self.places.is_assigned(item):
            return None
        seen = str(item.get("updated_at") or "")
        kept = self._states.get(key)
        # the system notes of the issue report who unassigned whom; the notes are read again only after a change of the
        # issue
        if kept is None or kept[0] != seen:
            path = self.items.path(key, project)
            kept = seen, taken_away(self.wire, self.places, path, self.labels.processing)
            self._states[key] = kept
        return "stop" if kept[1] else None

    # --- comments ---------------------------------------------------------------------------------------------

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        return next((one.id for one in self.marked_comments(key) if marker in one.markers), None)

    def post_comment(self, key: TaskKey, body: str) -> str:
        note = self.notes.fit(body)
        path = f"{self.items.path(key, self.places.project_of(key))}/notes"

        def post() -> str:
            made = str(self.items.call(key, "POST", path, {"body": note}, again=False)["id"])
            self.notes.known.add(made)
            return made

        def find() -> str | None:
            clock.sleep(LOOK_UP_WAIT)
            return self.notes.written(self._talk(key, self.places.project_of(key)), note)

        return post_once(post, find)

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        number_of(key)
        with self.items.about(key):
            found = tuple(self._talk(key, self.places.project_of(key)).marked())
        self.notes.known.update(one.id for one in found)
        return found

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        try:
            self.wire.call("DELETE", self.notes.path(key, comment_id))
        except ForgeRefused as error:
            if not is_missing(error):
                raise

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        note = self.notes.fit(body)
        try:
            self.wire.call("PUT", self.notes.path(key, comment_id), body={"body": note})
            self.notes.known.add(comment_id)
        except ForgeRefused as error:
            if is_missing(error):
                raise ForgeError(f"note {comment_id} of {key} is gone and cannot be edited") from error
            raise

    # --- merge requests that are results ----------------------------------------------------------------------

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        return MergeRequests(self.wire, self.places.project_of(key)).find(head)

    def open_pull(
        self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool, is_new: bool = False
    ) -> PullRef:
        project = self.places.project_of(key)
        if not project.has_merges:
            raise ForgeError(f"merge requests are switched off in {project.full_name}; switch them on, or push by hand")
        merges = MergeRequests(self.wire, project)
        who = cache(lambda: reviewer_of(self.items, key, project))
        for pause in (*BRANCH_WAITS, None):
            try:
                with self.wire.limiter.exclusive():
                    pull = None if is_new else merges.find(head)
                    if pull is None or pull.state != "open":
                        asked = None if draft else who()
                        pull = merges.open(title=title, body=body, head=head, base=base, draft=draft, reviewer=asked)
            except BranchUnknown:
                if pause is None:
                    raise
                clock.sleep(pause)
            except ForgeAccessRefused as error:
                self.items.check_archived(key, error)
                raise
            else:
                return pull
        raise AssertionError  # not reached, since the last attempt returns or raises an error

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
        merges, reviewer = MergeRequests(self.wire, project), cache(lambda: reviewer_of(self.items, key, project))
        try:
            changed = merges.update(pull.id, title=title, body=body, draft=draft, state=state, reviewer=reviewer)
        except ForgeAccessRefused as error:
            self.items.check_archived(key, error)
            raise
        return changed

    def with_pull(self, cursor: str | None, url: str) -> str | None:
        """Implements `ForgeReports.with_pull`."""
        return with_pull(cursor, number_in(url))

    def ask_again(self, key: TaskKey, pull: PullRef, login: str) -> None:
        """Implements `ForgeReports.ask_again`."""
        # the own account is the author of the merge request, and is not asked for a review of it.
        if login.casefold() != self.places.own()[1].casefold():
            MergeRequests(self.wire, self.places.project_of(key)).ask_again(pull.id, login)

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Implements `ForgeReports.acknowledge`."""
        project = self.places.project_of(key, patience=QUICK)
        reactions_and_replies.react(self.wire, project.path, self.items.path(key, project), comment)

    def reply(self, key: TaskKey, comment: Comment, body: str) -> str:
        """Implements `ForgeReports.reply`."""
        project = self.places.project_of(key)
        return reactions_and_replies.reply(self.wire, project.path, comment, self.notes.fit(body), self.places.is_own)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """Implements `ForgeReports.find_reply`."""
        return reactions_and_replies.find_reply(
            self.wire, self.places.project_of(key).path, comment, marker, self.places.is_own
        )

    def settle_thread(self, key: TaskKey, comment: Comment) -> None:
        """Implements `ForgeReports.settle_thread`."""
        reactions_and_replies.resolve_discussion(self.wire, self.places.project_of(key).path, comment)

    def shows_whole(self, text: str) -> bool:
        """Implements `ForgeReports.shows_whole`: GitLab does not show a text unchanged if it contains lines that GitLab
        might execute as quick actions."""
        return outgoing_text.escape_quick_actions(text) == text

    def branch_page(self, url: str, branch: str) -> str:
        """Implements `ForgeReports.branch_page`."""
        project, found, _ = url.partition("/-/merge_requests/")
        return f"{project}/-/tree/{quote(branch)}" if found else ""

    def checks(self, key: TaskKey, commit: str, url: str = "") -> Checks:
        """Implements `ForgeReports.checks`."""
        with self.wire.hurried():
            return CheckReader(self.wire, self.places.project_of(key)).read(commit, number_in(url))

    def check_log(self, key: TaskKey, check: Check) -> str:
        """Implements `ForgeReports.check_log`."""
        return CheckReader(self.wire, self.places.project_of(key)).log(check)

    def who_ended(self, key: TaskKey, act: Act) -> str:
        """Implements `ForgeReports.who_ended`."""
        project, item = self.items.get(key, patience=QUICK)
        if act == "closed":
            return username(item.get("closed_by"))
        return who_ended(self.wire, self.places, self.items.path(key, project), self.labels, act)

    # --- the repository ---------------------------------------------------------------------------------------

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:  # noqa: ARG002 - the task key names the project, so `issue` is not used
        project = self.places.project_of(key)
        if project.archived:
            said = f"{project.full_name} is archived: it is read-only, so nothing can be pushed to it"
            raise IssueUnreadable(said, code="repository_archived")
        if not project.has_code or not project.has_merges:
            what = "its repository is" if not project.has_code else "merge requests are"
            raise IssueUnreadable(f"{project.full_name}: {what} switched off, so no result can be shown; switch it on")
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance)
        # The address for git is built from base_url, not from `http_url_to_repo`: the external URL of GitLab may not be
        # reachable from this machine.
        url = f"{self.base_url}/{project.full_name}.git"
        head = f"refs/merge-requests/{number_of(key)}/head" if is_merge(key) else None
        return Repository(host, project.owner, project.name, url, project.default_branch, self.wire.ca_file(), head)

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - one token serves all projects, so `key` is not used
        return GIT_USER, self.wire.token()

    def renew_login(self, key: TaskKey) -> None:
        """Does nothing: a GitLab token comes from the settings and cannot be renewed."""

    def close(self) -> None:
        self.wire.close()

    # --- shared by the parts ----------------------------------------------------------------------------------

    def is_group(self, project: Project) -> bool:
        """Whether the owner of the project is a group, as far as the list of the account's projects (`MemberProjects`)
        has shown it; False for a person and for an unknown owner."""
        return project.owner in self.groups

    def _talk(self, key: TaskKey, project: Project, patience: float = PATIENT) -> NoteReader:
        return NoteReader(
            self.wire, self.places, project, ItemNumber(collection_of(key), int(number_of(key))), patience
        )
