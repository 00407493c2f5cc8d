"""GitLab, on gitlab.com or a self-managed host: the contract of `forge/base.py` over the REST API v4.

This module implements each call of the contract; the other modules of this package are its parts: the HTTP client
(`http.py`), projects and people (`projects.py`), notes and discussions (`notes.py`), merge requests
(`merge_requests.py`), the list of waiting issues (`tasks.py`), the person who asked for work (`requesting_person.py`)
and text without quick actions (`outgoing_text.py`).  docs/forges.md has the facts about GitLab on which this module
relies.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from agent import clock
from agent.config.commits import DEFAULT_PREFIX
from agent.config.project_settings import labels_key, sections_by_labels
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.base import Comment, IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.base_branch import base_of
from agent.forge.changed_issues import recent_of
from agent.forge.comment_cursor import CommentCursor, digest_of, edited, with_pull
from agent.forge.gitlab import outgoing_text, talk, token_permissions
from agent.forge.gitlab.changed_items import changed_of, number_in
from agent.forge.gitlab.checks import CheckReader
from agent.forge.gitlab.config_section import addresses, listed
from agent.forge.gitlab.fork_head import head_moved
from agent.forge.gitlab.http import PATIENT, QUICK, GitLabWire, is_missing
from agent.forge.gitlab.merge_requests import BRANCH_WAITS, LOOK_UP_WAIT, BranchUnknown, MergeRequests, pull_ref
from agent.forge.gitlab.notes import ItemNumber, NoteReader, utc
from agent.forge.gitlab.projects import DEVELOPER, Projects, number, username
from agent.forge.gitlab.requesting_person import altered, taken_away, who_ended, who_labelled
from agent.forge.gitlab.task_items import Items, collection_of, is_merge, number_of, state_of
from agent.forge.gitlab.tasks import GitLabTaskGetter, MemberProjects
from agent.forge.issue_url import on_gitlab
from agent.forge.label_check import MOST_PROJECTS, label_problems
from agent.forge.markers import hidden_in, signed
from agent.forge.post_once import post_once
from agent.forge.rate_limiter import learnt_anew
from agent.forge.task_getter import RESERVE
from agent.forge.token_account import account_in_words, agents_accounts
from agent.forge.unanswered_lists import UnansweredLists, postponed
from agent.observe import log
from agent.observe.item_loop import IN_A_ROW
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
        self.items = Items(self.wire, self.places, self.labels, section.start)
        self.told: set[str] = set()  # problems that were reported, so that each problem is reported once
        self.unanswered = UnansweredLists(lambda: self.wire.get("/version", patience=QUICK))
        self.groups: set[str] = set()  # project owners that are groups, not people
        self.lists: list[str] = []  # API paths in which the last poll searched for issues with the label
        self.members: tuple[float, list[tuple[str, Project]]] | None = None
        self.askers: dict[tuple[Any, ...], Any] = {}  # state of a waiting issue → account that asked for work
        self._problems: list[ForgeError] = []
        self._states: dict[TaskKey, tuple[str, bool]] = {}
        self._own_notes: set[str] = set()

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
        return self.alone or self._may_cover(key)

    def _may_cover(self, key: TaskKey) -> bool:
        """Whether this section of the settings covers the project of a key, given that the key belongs to this GitLab
        host."""
        name = f"{key.owner}/{key.repo}".casefold()
        if self.projects:
            return any(name == self._names(one).casefold() for one in self.projects)
        return self.section.owner is None or name.startswith(f"{self.section.owner}/".casefold())

    def task_getter(self) -> GitLabTaskGetter:
        return GitLabTaskGetter(self)

    def idle(self, interval: float) -> str:
        """A sentence about the number of requests that polls every `interval` seconds send in an hour in which nothing
        changes (for `doctor`)."""
        return f"{self.per_hour(interval):.0f} requests per idle hour, all conditional"

    def per_hour(self, interval: float) -> float:
        """The number of requests that polls send in an hour in which nothing changes.

        At each poll the adapter requests two lists of waiting issues and two lists of changes (as if each project had
        ended tasks) per project or group, and two lists of assignments; each project is requested again when its stored
        facts are too old.
        """
        looks = 3600 / interval
        places = self.projects or self.lists
        anew = learnt_anew(interval) * (len(self.projects) if self.projects else 1)
        start: Start = self.section.start
        return looks * ((2 * start.label + 2 + start.mention) * len(places) + 2 * start.assignee) + anew

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
        served = self.served() if self.projects else MemberProjects(self).projects()
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
        if not self._may_cover(key):
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
            problems.append("the issue was moved to another project; set the label there")
        talk = self._talk(key, project)
        seen = digest_of(str(item.get("title") or ""), str(item.get("description") or ""))
        read = utc(item.get("updated_at"))
        begin = CommentCursor(since=read, pulls=self._listened(key, project, PATIENT), text_seen=seen)
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
        listened = self._listened(key, project, QUICK) if fresh else ()
        pulls = tuple(dict.fromkeys((*known.pulls, *listened)))
        before = replace(known, pulls=pulls)
        talk = self._talk(key, project, QUICK)
        news, after, _ = talk.since(before)
        edit, seen = self._edited(key, known.text_seen, talk.editor)
        if seen != known.text_seen:
            after = replace(after, text_seen=seen)
        unchanged = cursor and after is before and pulls == known.pulls and not fresh
        return (*news, *edit), str(cursor) if unchanged else after.text()

    def _edited(self, key: TaskKey, seen: str, who: dict[str, Any] | None) -> tuple[tuple[Comment, ...], str]:
        """(an edit of the issue's title or text as a comment, if the digest of title and text is no longer `seen`; the
        digest of the present title and text); an edit by an account without permission is left out.  `who` is the
        author of GitLab's system note about the edit; if it is None, there was no edit, and no request is sent."""
        if not seen or who is None:
            return (), seen
        try:
            project, item = self.items.get(key, patience=QUICK)
        except IssueUnreadable:
            return (), seen
        title, body = str(item.get("title") or ""), str(item.get("description") or "")
        if (now := digest_of(title, body)) == seen:
            return (), seen
        if not self.places.may_ask(project, who, patience=QUICK):
            log.get("forge").warning("edit_left_out", issue=str(key), author=username(who))
            return (), now
        is_bot = self.places.is_machine(who, patience=QUICK)
        return (edited(title, body, now, username(who), str(item["updated_at"]), is_bot=is_bot),), now

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        return changed_of(self, watched, cursor)

    def recent_issues(self, cursor: str) -> tuple[dict[TaskKey, Comment], str]:
        """Implements `ForgeReports.recent_issues`."""
        served = {names.rpartition("/")[::2]: project for names, project in self.served()}

        def listed(owner: str, repo: str, since: str) -> Iterator[tuple[TaskKey, Comment, str]]:
            query = {"scope": "all", "state": "opened", "order_by": "updated_at", "sort": "asc", "updated_after": since}
            path = f"{served[owner, repo].path}/issues"
            with suppress(ForgeRefused, ForgeAccessRefused):  # the poll for waiting issues reports it
                for item in self.wire.pages(path, query=query, patience=QUICK, reserve=RESERVE, odd=lambda _: None):
                    if item.get("confidential") or item.get("state") != "opened":
                        continue
                    key = TaskKey(self.source, owner, repo, "issue", str(item["iid"]), self.instance)
                    who, made = item.get("author"), utc(item.get("created_at"))
                    title, body = str(item.get("title") or ""), str(item.get("description") or "")
                    text = Comment("", username(who), body, made, made, place=title)
                    yield key, text, str(item["updated_at"])

        return recent_of(served, cursor, listed)

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
            _, item = self.items.get(key)
            waits = self.items.waits(item)
            if again:
                waits = state_of(item) == "open" and self.labels.can_start(self.items.label_names(item))
            if not waits:
                return False
            self.items.move(key, "processing", self.items.label_names(item))
            return True

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        with self.wire.limiter.exclusive():
            self.items.move(key, to)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        try:
            project, item = self.items.get(key, patience=QUICK)
        except IssueUnreadable:
            return "stop"  # the issue was deleted, or moved to a project that the account cannot see
        if self.labels.requested(self.items.label_names(item), state_of(item)) == "stop":
            return "stop"
        if any(self.places.is_own(user) for user in item.get("assignees") or ()):
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
        note = self._fit(body)
        path = f"{self.items.path(key, self.places.project_of(key))}/notes"

        def post() -> str:
            made = str(self.items.call(key, "POST", path, {"body": note}, again=False)["id"])
            self._own_notes.add(made)
            return made

        def find() -> str | None:
            clock.sleep(LOOK_UP_WAIT)
            return self._written(key, note)

        return post_once(post, find)

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        number_of(key)
        with self.items.about(key):
            found = tuple(self._talk(key, self.places.project_of(key)).marked())
        self._own_notes.update(one.id for one in found)
        return found

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        try:
            self.wire.call("DELETE", self._own_note(key, comment_id))
        except ForgeRefused as error:
            if not is_missing(error):
                raise

    def _own_note(self, key: TaskKey, comment_id: str) -> str:
        """The API path of a note of the own account; raises ForgeError for a note of another account."""
        if not comment_id.isascii() or not comment_id.isdigit():
            raise ForgeError(f"{comment_id!r} is not the number of a note")
        path = f"{self.items.path(key, self.places.project_of(key))}/notes/{comment_id}"
        if comment_id not in self._own_notes:
            found = self.wire.get(path)
            if not self.places.is_written_by_us(found.get("author"), str(found.get("body") or "")):
                raise ForgeError(f"note {comment_id} of {key} belongs to somebody else and is left as it is")
        return path

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        note = self._fit(body)
        try:
            self.wire.call("PUT", self._own_note(key, comment_id), body={"body": note})
            self._own_notes.add(comment_id)
        except ForgeRefused as error:
            if is_missing(error):
                raise ForgeError(f"note {comment_id} of {key} is gone and cannot be edited") from error
            raise

    # --- merge requests that are results ----------------------------------------------------------------------

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        return MergeRequests(self.wire, self.places.project_of(key)).find(head)

    def open_pull(self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool) -> PullRef:
        project = self.places.project_of(key)
        if not project.has_merges:
            raise ForgeError(f"merge requests are switched off in {project.full_name}; switch them on, or push by hand")
        merges = MergeRequests(self.wire, project)
        who = cache(lambda: self._reviewer(key, project))
        for pause in (*BRANCH_WAITS, None):
            try:
                with self.wire.limiter.exclusive():
                    pull = merges.find(head)
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
        raise AssertionError  # not reached, since the last attempt returns or raises

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
        merges, reviewer = MergeRequests(self.wire, project), cache(lambda: self._reviewer(key, project))
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
        if login.casefold() != self.places.own()[1].casefold():  # the author of the merge request
            MergeRequests(self.wire, self.places.project_of(key)).ask_again(pull.id, login)

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Implements `ForgeReports.acknowledge`."""
        project = self.places.project_of(key, patience=QUICK)
        talk.react(self.wire, project.path, self.items.path(key, project), comment)

    def reply(self, key: TaskKey, comment: Comment, body: str) -> str:
        """Implements `ForgeReports.reply`."""
        project = self.places.project_of(key)
        return talk.reply(self.wire, project.path, comment, self._fit(body), self.places.is_own)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """Implements `ForgeReports.find_reply`."""
        return talk.find_reply(self.wire, self.places.project_of(key).path, comment, marker, self.places.is_own)

    def settle_thread(self, key: TaskKey, comment: Comment) -> None:
        """Implements `ForgeReports.settle_thread`."""
        talk.settle(self.wire, self.places.project_of(key).path, comment)

    def shows_whole(self, text: str) -> bool:
        """Implements `ForgeReports.shows_whole`: the text is not shown unchanged if it contains lines that GitLab might
        execute as quick actions."""
        return outgoing_text.plain(text) == text

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

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:  # noqa: ARG002 - the key names the repository
        project = self.places.project_of(key)
        if project.archived:
            said = f"{project.full_name} is archived: it is read-only, so nothing can be pushed to it"
            raise IssueUnreadable(said, code="repository_archived")
        if not project.has_code or not project.has_merges:
            what = "its repository is" if not project.has_code else "merge requests are"
            raise IssueUnreadable(f"{project.full_name}: {what} switched off, so no result can be shown; switch it on")
        host = re.sub(r"[^A-Za-z0-9.-]", "_", self.instance)
        # The address is built from base_url, not from `http_url_to_repo`: the external URL of GitLab may not be
        # reachable from this machine.
        url = f"{self.base_url}/{project.full_name}.git"
        head = f"refs/merge-requests/{number_of(key)}/head" if is_merge(key) else None
        return Repository(host, project.owner, project.name, url, project.default_branch, self.wire.ca_file(), head)

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - one token serves all projects
        return GIT_USER, self.wire.token()

    def renew_login(self, key: TaskKey) -> None:
        """Does nothing: a GitLab token comes from the settings and cannot be renewed."""

    def close(self) -> None:
        self.wire.close()

    # --- shared by the parts ----------------------------------------------------------------------------------

    def served(self) -> list[tuple[str, Project]]:
        """(path as in task keys, project) of each listed project that can have tasks; for every other listed project a
        problem is stored (`take_problems`)."""
        found: list[tuple[str, Project]] = []
        refused: ForgeError | None = None
        in_a_row = 0
        due, later = self.unanswered.in_order(self.projects, str)
        if later:
            self._problems.append(postponed(later))
        for one in due:
            try:
                project = self.places.project(one, patience=QUICK)
                self.unanswered.note(one, None)
                in_a_row = 0
                if (why := _unfit(project)) is not None:
                    raise IssueUnreadable(f"{project.full_name}: {why}")  # noqa: TRY301
            except ForgeUnreachable as error:
                in_a_row += 1
                if in_a_row >= IN_A_ROW:
                    if self.unanswered.is_away():
                        raise
                    in_a_row = 0
                self.unanswered.note(one, error)
                self._problems.append(error)
                refused = error
                continue
            except (IssueUnreadable, ForgeRefused, ForgeAccessRefused) as error:
                if (said := f"{one}: {error}" if one not in str(error) else str(error)) not in self.told:
                    self.told.add(said)
                    self._problems.append(IssueUnreadable(said))
                refused = error if not isinstance(error, IssueUnreadable) else refused
                continue
            found.append((project.full_name if one.isdigit() else one, project))
        if refused is not None and not found:  # no listed project is accessible
            raise refused
        return found

    def take_problems(self) -> tuple[ForgeError, ...]:
        """The problems that `served` found since the last call of this method: IssueUnreadable for a project that
        cannot have tasks, ForgeUnreachable for one that did not answer."""
        problems, self._problems = tuple(self._problems), []
        return problems

    def is_group(self, project: Project) -> bool:
        """Whether the owner of the project is a group, not a person."""
        return project.owner in self.groups

    def _names(self, one: str) -> str:
        """The path of a project that the section lists; if the section lists the project by its number, the path is
        requested from GitLab; "" if GitLab does not report it."""
        if not one.isdigit():
            return one
        try:
            return self.places.project(one, patience=QUICK).full_name
        except ForgeError:
            return ""

    def _talk(self, key: TaskKey, project: Project, patience: float = PATIENT) -> NoteReader:
        return NoteReader(
            self.wire, self.places, project, ItemNumber(collection_of(key), int(number_of(key))), patience
        )

    def _listened(self, key: TaskKey, project: Project, patience: float) -> tuple[int, ...]:
        """The numbers of the merge requests that the bot opened for the task of an issue; the comments on them belong
        to the task."""
        if is_merge(key):
            return ()
        path = f"{self.items.path(key, project)}/related_merge_requests"
        starts = tuple(f"{prefix}{key.task_id}-" for prefix in self.prefixes)
        found = set()
        for item in self.wire.pages(path, patience=patience):
            ours = self.places.is_own(item.get("author")) and item.get("project_id") == project.id
            if ours and str(item.get("source_branch")).startswith(starts):
                found.add(int(item["iid"]))
        return tuple(sorted(found))

    def _reviewer(self, key: TaskKey, project: Project) -> int | None:
        """The id of the person who asked for the work, if that person has permission.

        The bot label that started the task is no longer on the issue, but GitLab still lists the event of its addition.
        """
        who = who_labelled(self.wire, self.items.path(key, project), self.labels.queued, patience=PATIENT)
        if who is None:
            who = self.items.get(key)[1].get("author")
        return number(who) if not self.places.is_own(who) and self.places.may_ask(project, who) else None

    def _written(self, key: TaskKey, note: str) -> str | None:
        """The id of the note that a POST without an answer may have written; the note is found by its marker or, if it
        has none, by its text."""
        marker = hidden_in(note)
        talk = self._talk(key, self.places.project_of(key))
        if marker is not None:
            return talk.find(marker)
        return next((str(one["id"]) for one in talk.own() if str(one.get("body")).strip() == note.strip()), None)

    def _fit(self, body: str) -> str:
        if len(body) > self.max_comment:
            raise ForgeError(f"a comment has {len(body)} characters; GitLab takes {self.max_comment}, shorten it")
        text = signed(body, self.max_comment) if self.places.is_person() else body
        return outgoing_text.truncate(text, outgoing_text.MAX_NOTE)


def _unfit(project: Project) -> str | None:
    """The reason why a project cannot have tasks, None if it can."""
    if project.archived:
        return "it is archived, so nothing can be asked for there"
    if not (project.has_issues or project.has_merges):
        return "its issues and merge requests are switched off, so nothing can be asked for there"
    # the role 0 means that GitLab's answer contains no role; the account may inherit its role from a higher group
    if 0 < project.access < DEVELOPER:
        return "the account of the token has less than Developer access there and can push nothing; make it Developer"
    return None
