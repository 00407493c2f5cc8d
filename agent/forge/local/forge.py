"""The local forge: a folder of Markdown files that people edit (the tracker), with the same contract as GitHub and
GitLab.

An issue is the file `issues/{n}.md` with front matter `title`, `labels`, `author`, `state` (`open`, `closed`), and
optionally `repo` (a name in `local.repos`, else `default`), `base`, `created_at` and `confidential`; its comments are
in `issues/{n}.comments.jsonl`; pull requests are `pulls/{n}.md` (docs/files.md, "The local tracker"). The tracker needs
no server and no account, and every author has permission.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4

import orjson

from agent import clock
from agent.errors import ConfigError, DiskError, ForgeError, IssueUnreadable
from agent.forge.base import IssueText, Labels, LabelState, PullRef, Repository, Task
from agent.forge.comment_cursor import digest_of, edited
from agent.forge.local import front_matter
from agent.forge.local.comments import LocalComments, cursor_of, time_of
from agent.forge.local.files import TrackerFiles
from agent.forge.local.pulls import LocalPulls
from agent.forge.misspelt_labels import near
from agent.observe import log
from agent.observe.error_tolerant_loop import ItemLoop
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from agent.errors import ForgeUnreachable
    from agent.forge.base import Comment, MarkedComment

OWNER = "local"
REPO = "default"
IDENTITY = ".id"
"""The file with the identity of a tracker, which stays the same when the folder is moved: `{"id": …, "path": …}`, with
the path that the folder had when the program last used it."""
SETTLED = 1.0
_STATES: dict[str, Literal["open", "closed"]] = {"open": "open", "closed": "closed"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")


class LocalForge:
    """The adapter for the tracker that `settings.local` names.  A method that writes to the tracker takes the flock on
    `{tracker}/.lock`; a method that reads takes no lock."""

    source = "local"
    max_comment = 1_000_000
    news_interval = 5.0
    propagation_delay: float | None = None
    poll_pause = 0.0

    def __init__(self, settings: Any) -> None:
        section = settings.local
        if not section.tracker:
            raise ConfigError(
                "local.tracker is not set; it is the folder with `issues/`, as in `local: {tracker: tracker}`"
            )
        root = Path(settings.root)
        tracker = (root / Path(section.tracker).expanduser()).resolve()
        self.instance = str(tracker)
        self.labels = Labels.from_section(section)
        self.bot = str(section.bot_name)
        self.max_file: int | None = section.max_file_size
        self.repos = {name: resolved_address(root, str(path)) for name, path in dict(section.repos or {}).items()}
        self.files = TrackerFiles(tracker)
        self.pulls = LocalPulls(self.files)
        self.told: set[str] = set()  # problems that were logged, so that each problem is logged once
        # issues that caused an unexpected error, which LocalTaskGetter reports
        self.items = ItemLoop(lambda _name, _why: None)

    @classmethod
    def from_settings(cls, settings: Any) -> tuple[Self, ...]:
        return (cls(settings),)

    def covers(self, key: TaskKey) -> bool:
        return (key.task_source, key.instance) == (self.source, self.instance)

    def addresses(self) -> dict[str, str]:
        """The entries of `local.repos`, with resolved paths (for `doctor`)."""
        return self.repos

    def task_getter(self) -> LocalTaskGetter:
        return LocalTaskGetter(self)

    def read_issue(self, key: TaskKey) -> IssueText:
        relative = _relative(key)
        name = self._name(relative)
        data = self._data(relative)
        head, start = front_matter.split(data, name)
        issue = _issue(key, head)
        text = front_matter.decode(data[start:], name, head.text.count("\n") + 1).strip("\r\n")
        comments, problems = self._comments(key).of_people()
        saved = clock.stamp(datetime.fromtimestamp(self.files.modified(relative), UTC))
        return IssueText(
            key=key,
            title=issue.title,
            body=text,
            author=issue.author,
            labels=issue.labels,
            state=issue.state,
            base=issue.base,
            comments=comments,
            url=(self.files.root / relative).as_uri(),
            created_at=time_of(head.value("created_at")) or saved,
            updated_at=saved,
            cursor=cursor_of(comments, text=self._text(key)),
            problems=(*_misspelt(head, relative), *problems),
            confidential=head.flag("confidential", False),
        )

    def commenters_may_ask(self) -> bool:
        """Implements `ForgeReports.commenters_may_ask`: every person who can write in the tracker's folder has
        permission."""
        return True

    def author_may_ask(self, key: TaskKey) -> bool:  # noqa: ARG002 - the contract of a forge defines the parameters
        """Implements `ForgeReports.author_may_ask`."""
        return True

    def altered(self, key: TaskKey, since: str = "") -> str:  # noqa: ARG002 - the contract of a forge defines the parameters
        return ""  # no edit is reported, since who can edit an issue's file can also set its labels

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        news, following, problems = self._comments(key).since(cursor, self._text(key) if cursor else None)
        for problem in problems:
            if problem not in self.told:
                self.told.add(problem)
                log.get("forge").warning("comment_skipped", why=problem)
        return news, following

    def _text(self, key: TaskKey) -> Comment | None:
        """The issue's title and text as a `Comment` with `is_edit`; None if the issue cannot be read."""
        relative = _relative(key)
        try:
            data = self._data(relative)
            head, start = front_matter.split(data, self._name(relative))
            issue = _issue(key, head)
            text = front_matter.decode(data[start:], self._name(relative)).strip("\r\n")
        except IssueUnreadable:
            return None
        saved = clock.stamp(datetime.fromtimestamp(self.files.modified(relative), UTC))
        return edited(issue.title, text, digest_of(issue.title, text), issue.author, saved)

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        """Find changed issues by the modification times of each issue's two files (text and comments).

        An issue that was saved within the last second is reported at the next call too, since a second save within that
        second might not alter the modification time.
        """
        try:
            known = dict(orjson.loads(cursor))
        except (ValueError, TypeError):
            known = {}
        now, times, found = clock.now().timestamp(), {}, {}
        for key in watched:
            saved = [self.files.modified(_relative(key, suffix)) for suffix in (".md", ".comments.jsonl")]
            if known.get(key.task_id) != saved:
                found[key] = clock.stamp(datetime.fromtimestamp(max(saved), UTC))
            times[key.task_id] = saved if max(saved) < now - SETTLED else None
        return found, orjson.dumps(times).decode()

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:
        del key
        return self.files.picture(address)

    def own_names(self) -> tuple[str, ...]:
        return (self.bot,)

    def mark_taken(self, key: TaskKey, *, again: bool = False) -> bool:
        relative = _relative(key)
        waits = False

        def change(data: bytes) -> bytes:
            nonlocal waits
            head, start = front_matter.split(data, self._name(relative))
            present = head.items("labels")
            waits = self.labels.queued in present
            if again:
                waits = head.value("state") == "open" and self.labels.can_start(present)
            if not waits:
                return data
            remove, add = self.labels.change(present, "processing")
            return head.with_items("labels", remove, add).text.encode() + data[start:]

        self._rewrite(relative, change)
        return waits

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        relative = _relative(key)

        def change(data: bytes) -> bytes:
            head, start = front_matter.split(data, self._name(relative))
            remove, add = self.labels.change(head.items("labels"), to)
            return head.with_items("labels", remove, add).text.encode() + data[start:]

        self._rewrite(relative, change)

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        relative = _relative(key)
        try:
            data = self.files.read(relative, front_matter.LIMIT)
        except FileNotFoundError:
            return "stop"  # the issue's file was removed, so its task has to stop
        issue = _issue(key, front_matter.split(data, self._name(relative))[0])
        return self.labels.requested(issue.labels, issue.state)

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        return self._comments(key).find(marker)

    def post_comment(self, key: TaskKey, body: str) -> str:
        text = self._fit(body)
        with self.files.locked():
            self._data(_relative(key), 1)
            return self._comments(key).post(text)

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        return self._comments(key).marked()

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        with self.files.locked():
            self._comments(key).remove(comment_id)

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        text = self._fit(body)
        with self.files.locked():
            self._comments(key).edit(comment_id, text)

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:  # noqa: ARG002 - the name of the branch suffices, so `key` is not used
        return self.pulls.find(head)

    def open_pull(
        self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool, is_new: bool = False
    ) -> PullRef:
        del is_new  # `is_new` is not used: `LocalPulls.open` always looks for an open pull request
        with self.files.locked():
            return self.pulls.open(
                title=_utf8(title), body=_utf8(body), head=head, base=base, draft=draft, issue=key.task_id
            )

    def update_pull(
        self,
        key: TaskKey,  # noqa: ARG002 - `pull` suffices
        pull: PullRef,
        *,
        title: str | None = None,
        body: str | None = None,
        draft: bool | None = None,
        state: Literal["open", "closed"] | None = None,
    ) -> PullRef:
        with self.files.locked():
            return self.pulls.update(
                pull.id,
                title=None if title is None else _utf8(title),
                body=None if body is None else _utf8(body),
                draft=draft,
                state=state,
            )

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:
        return Repository("local", OWNER, key.repo, self.address(key.repo, self._name(_relative(issue.key))))

    def renew_login(self, key: TaskKey) -> None:
        """Does nothing: a folder needs no login."""

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:  # noqa: ARG002 - the contract of a forge defines the parameter
        return None

    def close(self) -> None:
        """Does nothing: no connection is open."""

    def was_at(self) -> str | None:
        """The path of the tracker's folder at its last use, if the folder was moved since then: the path is the
        tracker's `instance`, which has changed with the move. Returns None if the folder is a copy of a tracker that
        still exists: the copy counts as a new tracker."""
        found = self._identity()
        was = found.get("path")
        if not isinstance(was, str) or was == self.instance:
            return None
        there = TrackerFiles(Path(was))
        return None if _identity_in(there).get("id") == found.get("id") else was

    def remember(self) -> None:
        """Write identity and path of the tracker to its file `.id`, unless the file has this path already.

        If the file `.id` cannot be written (in a tracker of another user), no error is raised; then the program cannot
        recognise a later move of the folder.
        """
        found = self._identity()
        if found.get("path") == self.instance or not self.files.root.is_dir():
            return
        was = found.get("path")
        is_copy = isinstance(was, str) and _identity_in(TrackerFiles(Path(was))).get("id") == found.get("id")
        name = found.get("id") if isinstance(found.get("id"), str) and not is_copy else str(uuid4())
        with suppress(DiskError), self.files.locked():
            self.files.create(
                IDENTITY, orjson.dumps({"id": name, "path": self.instance}, option=orjson.OPT_APPEND_NEWLINE)
            )

    def _identity(self) -> dict[str, Any]:
        return _identity_in(self.files)

    def address(self, repo: str, where: str) -> str:
        """The path or address of a repository by its name in `local.repos`; an error message begins with `where`.
        Raises IssueUnreadable for an unknown name."""
        if repo not in self.repos:
            known = ", ".join(sorted(self.repos)) or "none"
            raise IssueUnreadable(
                f"{where}: repository {repo!r} is not in local.repos; known: {known}. "
                f"Write `repo: NAME` with one of them, or add it to local.repos in config.yaml"
            )
        return self.repos[repo]

    def task_at(self, address: str) -> Task | None:  # noqa: ARG002 - a local issue is a file, and has no address
        return None

    def task(self, number: int, *, labels: Collection[str] | None = None) -> Task | None:
        """The task of an open issue that has one of `labels` (of any open issue if `labels` is None), else None.

        `task` reads only the beginning of the issue's file, which contains the front matter. Raises IssueUnreadable for
        invalid front matter, an unknown repository, or (if `labels` has the bot label) a label that is probably a
        misspelt bot label.
        """
        relative = f"issues/{number}.md"
        name = self._name(relative)
        try:
            head, _ = front_matter.split(self.files.read(relative, front_matter.LIMIT), name)
        except FileNotFoundError:
            return None  # somebody removed the issue after the folder was listed
        repo = head.value("repo") or REPO
        key = TaskKey(self.source, OWNER, repo, "issue", str(number), self.instance)
        issue = _issue(key, head)
        if issue.state != "open":
            return None
        if labels is not None and set(labels).isdisjoint(issue.labels):
            if self.labels.queued in labels and (near := self._near(issue.labels)):
                raise IssueUnreadable(
                    f"{name}: the label {near!r} asks for nothing; `local.bot_label` is `{self.labels.queued}`: write "
                    f"that, if it is meant"
                )
            return None
        self.address(repo, f"{name}:{head.line('repo')}")
        return Task(key, self, user=issue.author, title=issue.title, labels=issue.labels)

    def _near(self, labels: Iterable[str]) -> str:
        """One of `labels` that may be a misspelt bot label; "" if no label is similar to the bot label, or if one of
        this program's labels is present."""
        if not self.labels.names().isdisjoint(labels):
            return ""
        return near(self.labels.queued, labels)

    def _comments(self, key: TaskKey) -> LocalComments:
        return LocalComments(self.files, _relative(key, ".comments.jsonl"), self.bot)

    def _data(self, relative: str, limit: int | None = None) -> bytes:
        try:
            return self.files.read(relative, limit)
        except FileNotFoundError:
            raise self._unreadable_issue(relative) from None

    def _rewrite(self, relative: str, change: Callable[[bytes], bytes]) -> None:
        with self.files.locked():
            try:
                self.files.rewrite(relative, change)
            except FileNotFoundError:
                raise self._unreadable_issue(relative) from None

    def _unreadable_issue(self, relative: str) -> IssueUnreadable:
        return IssueUnreadable(f"{self._name(relative)}: there is no such issue; it was removed or never there")

    def _name(self, relative: str) -> str:
        return str(self.files.root / relative)

    def _fit(self, body: str) -> str:
        if len(body) > self.max_comment:
            raise ForgeError(f"a comment has {len(body)} characters; the tracker takes {self.max_comment}, shorten it")
        return _utf8(body)


class LocalTaskGetter:
    """Lists open issues by label, ordered by number (see `base.TaskGetter`)."""

    def __init__(self, forge: LocalForge) -> None:
        self.forge = forge
        self.problems: tuple[IssueUnreadable, ...] = ()
        self.failed: ForgeUnreachable | None = None

    def get_task_list(self) -> list[Task]:
        return self._find_tasks((self.forge.labels.queued,))

    def get_left_list(self) -> list[Task]:
        return self._find_tasks(self.forge.labels.in_use())

    def _find_tasks(self, labels: Collection[str]) -> list[Task]:
        numbers, odd = self.forge.files.numbers("issues")
        problems = [
            IssueUnreadable(f"{self.forge.files.root / name}: write the number without leading zeros") for name in odd
        ]
        problems += [
            IssueUnreadable(f"{self.forge.files.root / name}: the name of an issue is a number; call it 1.md, 2.md …")
            for name in self.forge.files.unnumbered("issues")
            if self._is_issue(name)
        ]
        tasks = []
        for number in numbers:
            with self.forge.items.handling(f"issues/{number}.md"):
                try:
                    task = self.forge.task(number, labels=labels)
                except IssueUnreadable as error:
                    problems.append(error)
                    continue
                if task is not None:
                    tasks.append(task)
        bugs = [
            IssueUnreadable(f"{self.forge.files.root / name}: {why}") for name, why in self.forge.items.known.items()
        ]
        self.problems = (*problems, *bugs)
        return tasks

    def _is_issue(self, relative: str) -> bool:
        """Whether a file begins with front matter; a file without front matter, such as a README, is ignored."""
        try:
            return front_matter.is_there(self.forge.files.read(relative, front_matter.LIMIT))
        except (FileNotFoundError, IssueUnreadable):
            return False


def _issue(key: TaskKey, head: front_matter.FrontMatter) -> IssueText:
    """The title, author, labels, state and base of an issue, from its front matter.

    Raises IssueUnreadable, which names the key that is missing or wrong.
    """
    texts = {}
    for name, example in (("title", "Fix the login"), ("author", "alice"), ("state", "open")):
        value = (head.value(name) or "").strip()
        if not value:
            raise head.error(name, f"`{name}` is missing; write `{name}: {example}`")
        texts[name] = value
    if "labels" not in head.nodes:
        raise head.error("labels", "`labels` is missing; write `labels: [coding agent]`, or `labels: []` for none")
    state = _STATES.get(texts["state"])
    if state is None:
        raise head.error("state", f"`state` must be open or closed, not {texts['state']!r}")
    base = (head.value("base") or "").strip() or None
    labels = head.items("labels")
    return IssueText(key, texts["title"], "", texts["author"], labels, state, base)


KEYS = frozenset(("title", "labels", "author", "state", "repo", "base", "created_at", "confidential"))
"""The keys of an issue's front matter."""


def _misspelt(head: front_matter.FrontMatter, name: str) -> list[str]:
    """Sentences about unknown keys that resemble a key of an issue; other unknown keys are allowed."""
    near = [(key, get_close_matches(key, sorted(KEYS), 1, 0.7)) for key in head.nodes if key not in KEYS]
    return [
        f"{name}: `{key}` is no key of an issue and was passed over; `{found[0]}` is one"
        for key, found in near
        if found
    ]


def _identity_in(files: TrackerFiles) -> dict[str, Any]:
    """The content of a tracker's file `.id`; {} if the file is missing or unreadable."""
    try:
        found = orjson.loads(files.read(IDENTITY, front_matter.LIMIT))
    except (FileNotFoundError, ForgeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _relative(key: TaskKey, suffix: str = ".md") -> str:
    if not _NUMBER.fullmatch(key.task_id):
        raise IssueUnreadable(f"{key.task_id!r} is not the number of a local issue; they are called 1, 2, 3 …")
    return f"issues/{key.task_id}{suffix}"


def resolved_address(root: Path, text: str) -> str:
    """A value of the setting `local.repos`: a URL is returned unchanged, a path as an absolute path."""
    return text if _ADDRESS.match(text) else str((root / Path(text).expanduser()).resolve())


def _utf8(text: str) -> str:
    """`text` without unpaired surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
