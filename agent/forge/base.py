"""The contract of a forge: the place that holds the issues to work on, and that shows the results to people.

Each adapter is a package with one line in `FORGES`, and must pass `tests/contract/test_contract_forge.py`. An adapter
only translates between the forge and this program: the adapter makes no decision about a task, and the caller stores
the progress of a task (such as the position in a list of comments, the cursor). An adapter turns every error of the
forge or of a library into `ForgeError`, or into `IssueUnreadable` when the error concerns only one issue. The adapter
for a folder also raises `DiskError`, when it cannot write a file.

The term **own account** in this contract: the account that the adapter writes as. If a person uses the same account,
only what has the sign of this program (`markers.is_signed`) counts as written by the own account. **Our labels**: the
six labels of `Labels`; an adapter never adds or removes another label. **Marker**: a text in a comment by which the
program finds the comment again, see `markers.py`.

Before the caller posts a comment or opens a pull request, it searches for one that an earlier call made
(`find_comment`, `find_pull`), so that none is made twice. `find_comment` and `find_pull` read the present state of the
forge, so that they find what an earlier call made, even if the process was killed during that call. The search is left
out where no earlier call can have been made (`Effects.once`, `is_new`).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from agent.errors import ForgeError
from agent.forge.checks import Checks
from agent.registry import Registry
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from agent.config.forge_sections import Start
    from agent.errors import ForgeUnreachable, IssueUnreadable
    from agent.forge.checks import Check
    from agent.forge.commit_maker import CommitMaker
    from agent.values import Public

FORGES = Registry(
    "task source",
    {
        "github": "agent.forge.github.forge:GitHubForge",
        "gitlab": "agent.forge.gitlab.forge:GitLabForge",
        "forgejo": "agent.forge.forgejo.forge:ForgejoForge",
        "local": "agent.forge.local.forge:LocalForge",
    },
)
"""Name of a forge in the setting `task_sources` → adapter class."""

LabelState = Literal["queued", "processing", "done", "paused", "stopped", "failed"]
"""States of a task, each of which one of six labels shows on the issue.  A person sets the label of the state `queued`
to ask for work."""

Act = Literal["closed", "labelled", "unlabelled", "unassigned"]
"""What people do on a forge to end a task: close the issue, set the stopped label, remove the program's label, or
remove the program's account from the assignees."""

LABEL_STATES: tuple[LabelState, ...] = get_args(LabelState)

UNTITLED = "Untitled"
"""The title of a pull request if nothing is left of its own title; forges refuse or ignore an empty title."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment on an issue or pull request.

    `id` is the forge's id of the comment, as text.  The times are in the format of ISO 8601, or "" if the forge does
    not report them.

    `is_bot`: the forge marks the author's account as a machine. An adapter returns no comments that this program has
    written, so `Comment.is_bot` concerns other machine accounts. `is_edit`: the comment was written before the cursor
    of the request, and its text has changed since that cursor. `place`: where the comment stands (a file and line, a
    review, a pull request), if it does not stand on the issue itself ("On src/a.py:12, review thread 5"); `body` is the
    text of the author and nothing else. `address`: the ids beside `id` that the adapter needs to react to the comment
    or to answer the comment; only the adapter reads `address`. `has_thread`: the comment is in a thread, and an answer
    to the comment is posted in that thread. `url`: the address of the comment in a browser, "" if it is unknown.
    `requests_changes`: the comment is a review that requests changes; `body` may then be empty. `hunk`: the part of the
    diff with the line on which a review comment stands, unsanitised; that line is the last line of `hunk`.
    """

    id: str
    author: str
    body: str
    created_at: str = ""
    updated_at: str = ""
    is_bot: bool = False
    is_edit: bool = False
    place: str = ""
    address: str = ""
    has_thread: bool = False
    url: str = ""
    hunk: str = ""
    requests_changes: bool = False


@dataclass(frozen=True, slots=True)
class MarkedComment:
    """A comment of the own account that contains markers (`markers.py`).

    `updated_at` is the time of the last change of the comment, as in `Comment`.
    """

    id: str
    markers: tuple[str, ...]
    updated_at: str = ""


@dataclass(frozen=True, slots=True)
class IssueText:
    """One issue as people wrote it, unsanitised.

    `base` is the branch to start from, if the issue names one; None means the repository's default branch.  For a pull
    request `base` is its target branch, and `pull` is the pull request.  `comments`: the comments of all accounts
    except the own account, oldest first.  `cursor` is the position after the last of `comments`: `comments_since(key,
    issue.cursor)` returns the comments that were written or edited after this position.  `problems` are sentences about
    parts of the issue that could not be read and were left out.  `confidential`: fewer people may read the issue than
    the repository.
    """

    key: TaskKey
    title: str
    body: str
    author: str
    labels: tuple[str, ...] = ()
    state: Literal["open", "closed"] = "open"
    base: str | None = None
    comments: tuple[Comment, ...] = ()
    url: str = ""
    created_at: str = ""
    updated_at: str = ""
    cursor: str = ""
    problems: tuple[str, ...] = ()
    pull: PullRef | None = None
    confidential: bool = False


@dataclass(frozen=True, slots=True)
class PullRef:
    """One pull request (at GitLab: merge request).

    `head` and `base` are branch names.  The branches `head` and `base` are in the same repository, unless `fork` names
    another repository: then `head` is a branch of the repository `fork`.  `commit`: the full hash of the newest commit
    of `head`, "" if the forge does not report it.  `body`: the text of the pull request, unchanged; None if the adapter
    does not report the text, and then an update of the pull request overwrites what people have written into the text.
    """

    id: str
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    draft: bool
    head: str
    base: str
    fork: str = ""
    commit: str = ""
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that has the code of a task. `host`, `owner`, `repo` name the mirror's folder (plain path parts,
    `owner` may contain `/`).

    `url` is the location for git: an absolute path or an address, never with a credential in it. `default_branch` of a
    repository is None if the forge does not report the default branch; then the branch of the remote repository's HEAD
    is used. `ca_file`: a file with all CA certificates that git has to trust for `url`. `head_ref`: the ref with the
    commits of a pull request, if the task is a pull request (`refs/pull/7/head`); a pull request from a fork has such a
    ref too.
    """

    host: str
    owner: str
    repo: str
    url: str
    default_branch: str | None = None
    ca_file: Path | None = None
    head_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The names of the six labels that this program uses, by state. An empty name in `Labels` means that no label shows
    the state."""

    queued: str
    processing: str
    done: str
    paused: str
    stopped: str
    failed: str

    @classmethod
    def from_section(cls, section: Any) -> Self:
        """Read the names from a forge's section of the settings (`bot_label`, `processing_label`, …)."""
        names = {field.name: f"{field.name}_label" for field in fields(cls)} | {"queued": "bot_label"}
        return cls(**{name: getattr(section, key) or "" for name, key in names.items()})

    def name(self, state: LabelState) -> str:
        """The name of the label for `state`."""
        return str(getattr(self, state))

    def names(self) -> frozenset[str]:
        """The names of all six labels, without empty names."""
        return frozenset(name for state in LABEL_STATES if (name := self.name(state)))

    def change(self, present: Iterable[str], to: LabelState) -> tuple[tuple[str, ...], str | None]:
        """The change after which the label of the state `to` is the only one of the program's six labels: (labels to
        remove, label to add or None).

        If no label has to change, `change` returns `((), None)`.
        """
        here = tuple(dict.fromkeys(present))
        target = self.name(to)
        remove = tuple(label for label in here if label in self.names() and label != target)
        return remove, target if target and target not in here else None

    def ended(self, present: Iterable[str]) -> frozenset[str]:
        """Those of the labels `present` that show the end of a task; none if a label of a waiting, running or paused
        task is present too."""
        here = self.names() & set(present)
        return here if here <= {self.done, self.stopped, self.failed} else frozenset()

    def in_use(self) -> tuple[str, ...]:
        """The names of the labels that show a task that has begun and has not ended: the processing label and the
        paused label."""
        return tuple(label for label in (self.processing, self.paused) if label)

    def can_start(self, present: Iterable[str]) -> bool:
        """Whether a comment may start a task on an issue with the labels `present`: a comment may do so unless the
        processing or paused label is present. If an issue with the bot label gets a comment that asks for work, label
        and comment ask for the same task."""
        return ({self.processing, self.paused} - {""}).isdisjoint(present)

    def is_left_behind(self, present: Iterable[str], *, by_comment: bool, is_first: bool = False) -> bool:
        """Whether the start of a run has to set the processing label, because the issue still has the label of an
        earlier state.

        `is_left_behind` returns True when the paused label is present. `is_left_behind` also returns True when a
        comment started the task and the only labels of the six are those of an end (done, stopped, failed), or there
        are none of the six and the task is the first of the issue (`is_first`): the process that queued the task died
        before it set the processing label.
        """
        here = self.names() & set(present)
        return self.paused in here or (by_comment and (bool(self.ended(here)) or (is_first and not here)))

    def without_effect(self, start: Start) -> frozenset[str]:
        """The bot label, if the configuration switches off that it asks for work (`start.label`); else no label."""
        return frozenset() if start.label else frozenset({self.queued} - {""})

    def waits(self, present: Iterable[str], start: Start, *, assigned: bool) -> bool:
        """Whether an open issue with the labels `present` asks for work: it has the bot label, or it is `assigned` to
        the account and has none of the six. The setting `start` may switch off the bot label or the
        assignment as a request for work; a bot label that is switched off counts as absent."""
        here = self.names() & set(present)
        if start.label and self.queued in here:
            return True
        return start.assignee and assigned and here <= self.without_effect(start)

    def requested(self, present: Iterable[str], state: str) -> Literal["stop"] | None:
        """Returns "stop" if the issue's `state` and labels ask a running task to stop, otherwise None; the rule is at
        `Forge.requested`."""
        here = set(present)
        if state != "open" or (self.stopped and self.stopped in here):
            return "stop"
        active = {self.queued, self.processing, self.paused} - {""}
        return None if active & here else "stop"


class Task:
    """One issue on which somebody asked for work; the poll of the forge makes this object for the queue and the worker.

    A task object holds the key, the person who asked, the labels, and the adapter. A task object does not hold the text
    of the issue: the worker reads the text from the forge. `started_by` identifies the event that asks for the task
    if the issue has had a task before, or if no label asks for it: a comment, or an assignment after the end of a task;
    each event starts one task. `uuid` is None until the queue assigns one (docs/design/context.md, 4.6). `asker` is
    called to find out who asked for the task, if the list of issues does not contain that person. `has_comments` is
    False if the list of issues showed that the issue has no comments.
    """

    def __init__(
        self,
        key: TaskKey | Mapping[str, Any],
        forge: Forge | None = None,
        *,
        uuid: str | None = None,
        user: str | None = None,
        title: str | None = None,
        labels: Iterable[str] = (),
        asker: Callable[[], str] | None = None,
        started_by: str | None = None,
        has_comments: bool = True,
    ) -> None:
        self.asker = asker
        self.started_by = started_by
        self.has_comments = has_comments
        self.key = TaskKey.from_mapping(key)
        self.forge = forge
        self.uuid = uuid
        self.user = user
        self.title = title
        self.labels = tuple(labels)

    def get_task_key(self) -> TaskKey:
        """The key of the issue or pull request."""
        return self.key

    def get_user(self) -> str | None:
        """The person who asked for the work; before `confirm` has checked this, the result may be the author of the
        issue instead."""
        return self.user

    def confirm(self) -> None:
        """Check that a person with permission asked for the task, before this daemon takes the task; nothing is done if
        the poll has checked that already.

        Raises IssueUnreadable when that person has no permission, or the forge does not show yet who asked for the
        task; ForgeError when the forge does not answer.
        """
        if self.asker is not None:
            self.user, self.asker = self.asker(), None

    def get_uuid(self) -> str | None:
        """The uuid that the queue assigned to the task, None if the queue has not assigned one."""
        return self.uuid

    def prepare(self) -> bool:
        """Show on the forge that a daemon has taken the task: the processing label replaces the bot label.

        `prepare` is called after the task has a row in the ledger; a repeated call changes nothing.  Returns False if
        the issue no longer waits for work, since another daemon or a person changed its label.  Raises ForgeError if
        the task has no forge.
        """
        if self.forge is None:
            raise ForgeError(f"task {self.key} has no forge; make it with TaskFactory.from_dict(task_dict, forges)")
        return self.forge.mark_taken(self.key)

    def __repr__(self) -> str:
        return f"Task({self.key}, uuid={self.uuid})"


class TaskGetter(Protocol):
    """Lists the waiting tasks of one forge.

    `problems` are the issues that could not be read at the last call of `get_task_list` or `get_left_list`. Unreadable
    issues are left out of the list of tasks, and the caller has to report them (`problems`). `failed` is the error of a
    part of the forge (one project of several) that did not answer while the rest of the forge did; the poll is then
    incomplete.
    """

    problems: tuple[IssueUnreadable, ...]
    failed: ForgeUnreachable | None

    def get_task_list(self) -> list[Task]:
        """The open issues that ask for work (by the bot label, or by an assignment to the own account), oldest number
        first; if the list does not show whether an account with permission asked, `Task.confirm` checks this later.

        Raises ForgeError when the forge as a whole cannot be read. Text that this program has written never starts a
        task.
        """
        ...

    def get_left_list(self) -> list[Task]:
        """The open issues with the processing or the paused label, whichever daemon set it, oldest number first.

        The caller compares the issues of `get_left_list` with the ledger to find tasks that have lost their rows in the
        ledger. In all other respects `get_left_list` works like `get_task_list`.
        """
        ...


class Forge(Protocol):
    """One place that has issues: a host with some projects, or a folder.

    All calls of a forge adapter are synchronous; at most one thread may call an adapter at a time. `ForgeReports` names
    the optional methods of an adapter.

    The attributes are: `source`, the name in `FORGES` ("local"); `instance`, the host or the absolute path of the
    folder, which together with `source` identifies this adapter in every `TaskKey`; `labels`, the six labels;
    `max_comment`, the maximum characters of one comment; `max_file`, the maximum number of bytes of one file that is
    pushed, None for no maximum; `news_interval`, the shortest polite time in seconds between two requests for the
    comments of a running task.

    `propagation_delay` is the number of seconds after which every reader of the forge finds a new comment in the list
    of comments. `propagation_delay` is None if `mark_taken` itself lets only one of several daemons take an issue,
    because all of them use the same lock.
    """

    source: str
    instance: str
    labels: Labels
    max_comment: int
    max_file: int | None
    news_interval: float
    propagation_delay: float | None

    @property
    def poll_pause(self) -> float:
        """Seconds that the forge last asked to wait between two polls (`X-Poll-Interval`), 0 if it did not ask."""
        ...

    @classmethod
    def from_settings(cls, settings: Any) -> tuple[Self, ...]:
        """One adapter for each configured instance of this source.

        Raises ConfigError when the section of the source is not usable.
        """
        ...

    def covers(self, key: TaskKey) -> bool:
        """Whether this adapter serves the project of the task key. If one host has two adapters (with two tokens), each
        adapter covers only its own projects."""
        ...

    def task_getter(self) -> TaskGetter:
        """A new object that lists the waiting tasks of this forge."""
        ...

    def task_at(self, address: str) -> Task | None:
        """The task of the issue, pull request or merge request that a browser shows at `address`, even if nobody has
        asked for work on it; the user of the task is the author of the issue.

        `task_at` returns None when the address belongs to another host, or to a project that this adapter does not
        cover. Raises IssueUnreadable when there is no issue at the address, or it is closed. `task_at` changes nothing
        and checks nobody's permission: the person at this machine calls it (`main.py solve`).
        """
        ...

    def read_issue(self, key: TaskKey) -> IssueText:
        """Read the issue with all its comments.  Raises IssueUnreadable when the issue is gone or cannot be read."""
        ...

    def altered(self, key: TaskKey, since: str = "") -> str:
        """The reason why the issue may no longer be the one for which somebody asked: an account without permission has
        edited the title or text after the request for work. The time of the request for work is that of the label, or
        of the assignment, or `since` (ISO 8601, the time of a comment that asks for work).

        Returns "" when nobody without permission edited the issue after the request for work, and for forges on which
        every account that can edit has permission.
        """
        ...

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        """The comments after a cursor: (new *and edited* comments of all accounts except the own account, oldest first;
        the cursor for the next call).

        `cursor` is opaque text that the caller stores; None means from the beginning.  An unreadable cursor counts as
        None, so comments may be returned twice, and none is lost.  If there is no new or edited comment,
        `comments_since` returns `((), cursor)` and sends as few requests to the forge as possible.  An edit that leaves
        the text of a comment unchanged is not returned.  A comment that cannot be read is left out and logged.  An edit
        of the issue's title or text is returned as one more edited comment, if every account that may have made the
        edit has permission.
        """
        ...

    def changed_since(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        """Finds the issues in `watched` that have changed since `cursor`: (keys of the issues that have changed, each
        with the time of the change; the cursor for the next call).

        `watched` maps the key of each issue to check (all are this adapter's) to the `url` of the pull request that was
        opened for it, or to None; a change of that pull request counts as a change of the issue.  `cursor` is the
        cursor from the last call, or a time (`clock.stamp`) to begin at.  Every new comment, and every change of an
        issue's labels, state or assignment, is reported as a change of the issue, also if the own account made it;
        whether an edit of a text is reported depends on the forge.  A change of an issue may be reported twice and is
        never lost.  `changed_since` requests lists per repository, not one per issue; if nothing has changed, it sends
        as few requests as the forge allows.
        """
        ...

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:
        """Download a picture that an issue or a comment shows, at most 10 MB; `address` is the address of the picture,
        unchanged from the text of the issue or comment.

        `fetch_picture` downloads a picture only from the forge's own hosts (the adapter `local` reads only files in its
        folder), because a stranger may have written the picture's address. The token is sent only to the forge itself,
        not to a host to which the forge redirects. Raises PictureRefused with the reason when there is no picture, or
        ForgeUnreachable.
        """
        ...

    def own_names(self) -> tuple[str, ...]:
        """The names by which people mention the own account, without `@`."""
        ...

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        """Make the label of the state `to` the only one of the program's six labels on the issue; other labels stay.

        The adapter adds and removes single labels and does not write the whole list of labels, so that a label that a
        person adds at the same time survives. A repeated call of `move_label` changes nothing. The old labels are
        removed after the new label is added, or together with that, so that a crash leaves at least one of the six
        labels on the issue. If a person adds the bot label while the task runs, the next `move_label` removes the bot
        label, and no further task starts.
        """
        ...

    def mark_taken(self, key: TaskKey, *, again: bool = False) -> bool:
        """Call `move_label(key, "processing")` for a daemon whose poll found the task waiting.

        Returns False if the issue no longer waits (another daemon on the same project took it, or a person changed its
        label); then this daemon must not work on the issue.

        `again`: a comment asks for more work on an issue whose last task has ended. With `again` an issue counts as
        waiting when it is open and has neither the processing nor the paused label.

        If daemons without a shared ledger call `mark_taken` at the same time, only an adapter with a
        `propagation_delay` of None guarantees that one of them gets True.  For an adapter with a `propagation_delay`,
        the caller must have claimed the issue before `mark_taken` (`issue/claims.py`).
        """
        ...

    def requested(self, key: TaskKey) -> Literal["stop"] | None:
        """Whether a person has ended a running task on the forge. "stop" means that the issue is closed, gone or hidden
        from the token, that the program's label was removed or its account unassigned, or that the stopped label was
        added. `requested` returns None while the task may continue. If the forge does not answer, `requested` raises
        ForgeError, and the task continues."""
        ...

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        """The id of the oldest comment *of the own account* that contains `marker`; None if there is none."""
        ...

    def post_comment(self, key: TaskKey, body: Public) -> str:
        """Write a comment as the own account; returns its id.  `body` contains the marker (`markers.with_markers`).

        After `post_comment` returns, the forge has stored the comment and `find_comment` finds it. Raises ForgeError
        when `body` is longer than `max_comment`.
        """
        ...

    def marked_comments(self, key: TaskKey) -> tuple[MarkedComment, ...]:
        """Every comment *of the own account* that contains a marker, in the forge's order, which is the same for every
        reader.  The comments are read from the forge and not from a cache, as in `find_comment`."""
        ...

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        """Remove a comment of the own account; if the comment no longer exists, nothing happens.

        Raises ForgeError for a comment of another account.
        """
        ...

    def edit_comment(self, key: TaskKey, comment_id: str, body: Public) -> None:
        """Replace the body of a comment of the own account.

        Raises ForgeError when the comment is gone or belongs to another account.
        """
        ...

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        """The open pull request of the branch `head`; without an open one the newest closed or merged one; None if the
        branch has no pull request.

        Raises ForgeError when the forge does not answer, so that the caller does not open a second pull request.
        """
        ...

    def open_pull(
        self, key: TaskKey, *, title: Public, body: Public, head: str, base: str, draft: bool, is_new: bool = False
    ) -> PullRef:
        """Open a pull request for a branch that is already pushed.

        If a pull request for `head` is already open, it is returned unchanged, so that neither two callers nor a
        repeated call open two. `is_new`: the caller knows that this program has opened none for `head`, so the adapter
        need not search for one before it asks the forge. With `draft` False the forge asks the person who asked for the
        work to review the pull request, even if the pull request was open before and was no draft.
        """
        ...

    def update_pull(
        self,
        key: TaskKey,
        pull: PullRef,
        *,
        title: Public | None = None,
        body: Public | None = None,
        draft: bool | None = None,
        state: Literal["open", "closed"] | None = None,
    ) -> PullRef:
        """Change the fields of a pull request for which an argument is not None; the other fields stay unchanged.
        Returns the pull request after the change.  A merged pull request stays merged."""
        ...

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:
        """The repository in which the task works.

        Raises IssueUnreadable when this adapter does not know the repository.
        """
        ...

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:
        """(user, token) for git over HTTPS, which the caller reads anew at each git call; None if git needs no login,
        or has its own."""
        ...

    def renew_login(self, key: TaskKey) -> None:
        """Get a new login if the forge can issue one (the token of an app), because the host refused the last login
        that `git_login` returned."""
        ...

    def close(self) -> None:
        """Close the connections of the adapter; a second call does nothing.

        An adapter does not close issues: when a task is done, its label changes; a merge or a person closes the issue.
        """
        ...


class ForgeReports:
    """Calls the optional methods of an adapter, for `doctor`, the start of a daemon, long-term memory and other
    callers.

    Each method of this class calls the adapter's method of the same name with the same arguments (`pull_name` reads an
    attribute). If the adapter lacks the method, the method of this class returns a default.
    """

    def __init__(self, forge: Forge) -> None:
        self.forge = forge

    def _ask(self, name: str, default: Any, *arguments: object) -> Any:
        method = getattr(self.forge, name, None)
        return default if method is None else method(*arguments)

    def idle(self, interval: float) -> str:
        """A sentence about the number of requests that polls every `interval` seconds send to the host in an hour in
        which nothing changes; "" when polls send no requests."""
        return str(self._ask("idle", "", interval))

    def rights(self) -> Iterable[str]:
        """Sentences about problems of the token and of its account, also about problems that will soon occur (such as
        the expiry of the token).

        `rights` may send requests to the forge.
        """
        found: Iterable[str] = self._ask("rights", ())
        return found

    def account(self) -> str:
        """A sentence for `doctor` about the account of the token: whether the program treats the account as the agent's
        own account or as the account of a person; "" for an adapter without the method `account`. `account` may send a
        request to the forge. Raises ForgeError.
        """
        return str(self._ask("account", ""))

    def agents_accounts(self) -> tuple[str, ...]:
        """The logins of the agent's accounts that no person uses, so that comments and changes by these accounts are
        never news to the program; () where a person may use the account. `agents_accounts` may send a request to the
        forge. Raises ForgeError."""
        return tuple(self._ask("agents_accounts", ()))

    def label_problems(self) -> Iterable[str]:
        """Sentences about configured labels that no project has, or that projects spell in another way.

        `label_problems` may send requests to the forge.  Raises ForgeError.
        """
        found: Iterable[str] = self._ask("label_problems", ())
        return found

    def addresses(self) -> Mapping[str, str]:
        """Name → path or address of each repository that the configuration names by its address (`local.repos`), so
        that `doctor` can read it without a task; {} for other forges."""
        found: Mapping[str, str] = self._ask("addresses", {})
        return found

    def single_reads(self) -> AbstractContextManager[None]:
        """A context in which this thread sends each read request to the host only once, until the thread sends a
        change: for steps that may rely on one state of the issue. An adapter without the method `single_reads` sends
        every read request, also a repeated one."""
        found: AbstractContextManager[None] = self._ask("single_reads", nullcontext())
        return found

    def answered_at(self) -> float | None:
        """The time of the monotonic clock at which the host last answered a request of this adapter, even with an
        error; None if the host has not answered yet, or the adapter does not record the time."""
        found: float | None = self._ask("answered_at", None)
        return found

    def author_may_ask(self, key: TaskKey) -> bool:
        """Whether the author of the issue, who wrote its text, has permission to ask for work; False if that is
        unknown.  Raises ForgeError."""
        return bool(self._ask("author_may_ask", False, key))

    def commenters_may_ask(self) -> bool:
        """Whether the adapter returns only comments of people who may ask for work; False if the adapter does not
        report this."""
        return bool(self._ask("commenters_may_ask", False))

    def commit_identity(self) -> tuple[str, str] | None:
        """The (name, mail address) with which a commit is attributed to the token's account by the host; None where
        there is no such account.  Raises ForgeError."""
        found: tuple[str, str] | None = self._ask("commit_identity", None)
        return found

    def commit_maker(self, key: TaskKey) -> CommitMaker | None:
        """The object that makes the commits of the task at the host, which signs them; None if git makes them.  Raises
        ForgeError."""
        found: CommitMaker | None = self._ask("commit_maker", None, key)
        return found

    def pull_ref(self, pull_id: str) -> str | None:
        """The git ref with the commits of a pull request, also after its branch is gone; None where the host has no
        such ref."""
        found: str | None = self._ask("pull_ref", None, pull_id)
        return found

    def head_moved(self, key: TaskKey, pull: PullRef, since: str = "") -> str:
        """The reason why `pull.commit` (the newest commit of a pull request from a fork) is not the commit for which a
        person with permission asked; "" if it is that commit.

        The commit for which somebody asked is the newest one of the branch at the time of the request: the time of the
        label, of the assignment, or `since` (ISO 8601, the time of a comment with the request). A push in the same
        second as the request for work counts as later. For an adapter without the method `head_moved` the
        result is a reason and not "", because it is unknown for which commit somebody asked. Raises ForgeError.
        """
        unknown = "this source of tasks does not report which commit of a fork was asked for, so it is not worked on"
        return str(self._ask("head_moved", unknown, key, pull, since))

    def with_pull(self, cursor: str | None, url: str) -> str | None:
        """A cursor with which `Forge.comments_since` also reads the pull request at `url`, from its first comment on;
        `cursor` itself if it already includes that pull request, or the adapter has no such pull request.

        The caller must pass the pull request of the task, because an adapter stores nothing between calls.
        """
        found: str | None = self._ask("with_pull", cursor, cursor, url)
        return found

    def ask_again(self, key: TaskKey, pull: PullRef, login: str) -> None:
        """Ask the account `login` to review a pull request, even if that account has reviewed the pull request before;
        nothing happens if the host refuses the reviewer. Raises ForgeError when the forge does not answer."""
        self._ask("ask_again", None, key, pull, login)

    def acknowledge(self, key: TaskKey, comment: Comment | None) -> None:
        """Add a reaction (👀) to the comment, or to the issue if `comment` is None, which shows that the program has
        read it.

        Each call of `acknowledge` costs one request, and a second call for the same comment changes nothing. Raises
        ForgeError.
        """
        self._ask("acknowledge", None, key, comment)

    def pull_name(self) -> str:
        """The name that the forge gives to a pull request ("pull request", "merge request")."""
        return str(getattr(self.forge, "pull_name", "pull request"))

    def branch_page(self, url: str, branch: str) -> str:
        """The address of a web page that shows the branch, in the repository of the pull request at `url`; "" if there
        is no such page."""
        return str(self._ask("branch_page", "", url, branch))

    def recent_issues(self, cursor: str) -> tuple[Mapping[TaskKey, Comment], str]:
        """The open issues and pull requests of the section's projects that have changed since the cursor, without pull
        requests that the program has opened, and the next cursor. At the first call of `recent_issues`, `cursor` is a
        time (ISO 8601). `recent_issues` returns an issue's own text as a comment without an id, whoever wrote the
        issue; `place` of that comment is the issue's title. A forge without the method `recent_issues` has no recent
        issues. Raises ForgeError."""
        found: tuple[Mapping[TaskKey, Comment], str] = self._ask("recent_issues", ({}, cursor), cursor)
        return found

    def checks(self, key: TaskKey, commit: str, url: str = "") -> Checks:
        """The results of CI for a commit. `url`: the address of the pull request that has this commit as its newest
        one, "" for another commit. The result has no checks if the forge has no CI, or does not know the commit. Raises
        ForgeError.

        If no check has changed, `checks` sends one request for each list of checks that the forge has, conditional
        where the forge supports that.
        """
        found: Checks | None = self._ask("checks", None, key, commit, url)
        return found or Checks()

    def check_log(self, key: TaskKey, check: Check) -> str:
        """The end of the log of a check; if the check has no log, the places in files that the check names; "" if there
        is neither, or the token may not read the log. Raises ForgeError."""
        return str(self._ask("check_log", "", key, check))

    def reply(self, key: TaskKey, comment: Comment, body: Public) -> str:
        """Post an answer to a comment next to that comment: in its thread, or in the conversation of its pull request;
        returns the id of the answer. `body` contains the marker (`markers.with_markers`). For an adapter without the
        method `reply` the answer becomes a comment on the issue.

        Raises ForgeError.
        """
        if (method := getattr(self.forge, "reply", None)) is not None:
            return str(method(key, comment, body))
        return self.forge.post_comment(key, body)

    def find_reply(self, key: TaskKey, comment: Comment, marker: str) -> str | None:
        """The id of the answer of the own account to `comment` that contains `marker`; None if there is none.  The
        answers are read from the forge, as in `find_comment`.  Raises ForgeError."""
        if (method := getattr(self.forge, "find_reply", None)) is not None:
            found: str | None = method(key, comment, marker)
            return found
        return self.forge.find_comment(key, marker)

    def settle_thread(self, key: TaskKey, comment: Comment) -> None:
        """Mark the comment's thread as resolved, if the host has that mark. Raises ForgeError."""
        self._ask("settle_thread", None, key, comment)

    def who_ended(self, key: TaskKey, act: Act) -> str:
        """The account that last did `act` to the issue (closed it, for example); "" where that account is unknown.
        Raises ForgeError."""
        return str(self._ask("who_ended", "", key, act))

    def shows_whole(self, text: str) -> bool:
        """Whether the adapter would post `text` unchanged in a comment; an adapter alters lines that the host would
        execute as commands."""
        return bool(self._ask("shows_whole", True, text))

    def was_at(self) -> str | None:
        """The previous `instance` (path or host) of this adapter, if the folder was moved or the host renamed since the
        last use; the caller then assigns the open tasks to the new `instance`. `was_at` returns None when the
        `instance` has not changed."""
        found: str | None = self._ask("was_at", None)
        return found

    def remember(self) -> None:
        """Store the present `instance` of this folder or host, so that `was_at` can later detect a change."""
        self._ask("remember", None)
