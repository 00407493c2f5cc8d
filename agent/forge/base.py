"""The contract of a forge: the place where tasks come from and where results are shown.

One adapter per file, one line in `FORGES`, and `tests/contract/test_contract_forge.py` passes.  Called by `run` only.
An adapter translates: it decides nothing about a task, keeps no state of its own between calls (what it must remember
is a cursor that the caller keeps), and turns every foreign error into `ForgeError`, or `IssueUnreadable` where only
this one issue is concerned.  A forge that is a folder raises `DiskError` too, where it cannot write.

Words.  **Own account**: the account that the adapter writes as (`bot_name`).  **Our labels**: the six of `Labels`; an
adapter never adds or removes another.  **Marker**: see `marks.py`.

Once.  The caller looks an effect up before it makes it (`find_comment`, `find_pull`), so these two must see what a
call that was killed in the middle had already done: they read the forge, never a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.forge.task import TaskGetter
    from agent.values import TaskKey

FORGES = Registry(
    "task source",
    {
        "github": "agent.forge.github:GitHubForge",
        "gitlab": "agent.forge.gitlab:GitLabForge",
        "local": "agent.forge.local:LocalForge",
    },
)
"""Name in `task_sources` → adapter class."""

LabelState = Literal["queued", "processing", "done", "paused", "stopped", "failed"]
"""What an issue's label says about its task.  `queued` is the label by which a person asks for work."""

LABEL_STATES: tuple[LabelState, ...] = get_args(LabelState)


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment.  `id` is the forge's, as text.  Times are ISO 8601, "" where the forge has none.

    `is_bot`: written by an account that the forge marks as a machine's.  Own comments never appear in what an adapter
    returns, so this is about other machines.
    """

    id: str
    author: str
    body: str
    created_at: str = ""
    updated_at: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class IssueText:
    """One issue as people wrote it, unsanitised.

    `base` is the branch that the issue asks to start from, None where it names none (then the repository's default
    branch is meant).  `comments`: those of others than the own account, oldest first.  `cursor` belongs to `comments`:
    `comments_since(key, issue.cursor)` is what came after, nothing twice and nothing lost.  `problems` are sentences
    about parts that could not be read and were left out.
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


@dataclass(frozen=True, slots=True)
class PullRef:
    """One pull (merge) request.  `head` and `base` are branch names of the same repository."""

    id: str
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    draft: bool
    head: str
    base: str


@dataclass(frozen=True, slots=True)
class Repository:
    """Where the code is.  `host`, `owner`, `repo` name the mirror's folder (plain path parts, `owner` may hold `/`).

    `url` is what git is given: an absolute path or an address, never with a credential in it.  `default_branch` None:
    the forge does not say, git's own HEAD is meant.  `ca_file`: certificates that git has to trust for `url`.
    `head_ref`: where the work starts when it is not the base branch (`refs/pull/7/head`: a pull request, perhaps of a
    fork, that is read and never pushed to).
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
    """Our six labels, by state.  An empty name means that the state shows no label."""

    queued: str
    processing: str
    done: str
    paused: str
    stopped: str
    failed: str

    @classmethod
    def of(cls, section: Any) -> Self:
        """From a forge's section of the settings (`bot_label`, `processing_label`, …)."""
        names = {field.name: f"{field.name}_label" for field in fields(cls)} | {"queued": "bot_label"}
        return cls(**{name: getattr(section, key) or "" for name, key in names.items()})

    def name(self, state: LabelState) -> str:
        """The label of `state`."""
        return str(getattr(self, state))

    def all(self) -> frozenset[str]:
        """Every label of ours."""
        return frozenset(name for state in LABEL_STATES if (name := self.name(state)))

    def change(self, present: Iterable[str], to: LabelState) -> tuple[tuple[str, ...], str | None]:
        """(labels to remove, label to add or None) so that of ours exactly that of `to` is left; idempotent."""
        here = tuple(dict.fromkeys(present))
        target = self.name(to)
        remove = tuple(label for label in here if label in self.all() and label != target)
        return remove, target if target and target not in here else None

    def wish(self, present: Iterable[str], state: str) -> Literal["stop"] | None:
        """What people say to a running task by `state` and labels; the rule of `Forge.control`."""
        here = set(present)
        if state != "open" or (self.stopped and self.stopped in here):
            return "stop"
        active = {self.queued, self.processing, self.paused} - {""}
        return None if active & here else "stop"


class Forge(Protocol):
    """One place with issues.  All calls are synchronous and may be made from one thread at a time.

    Attributes: `source`, the registry's name ("local"); `instance`, the host or the tracker's absolute path, which
    with `source` names this adapter in every `TaskKey`; `labels`, our six; `max_comment`, the most characters of one
    comment; `news_interval`, the seconds between two looks at the comments of a running task that are polite here.
    """

    source: str
    instance: str
    labels: Labels
    max_comment: int
    news_interval: float

    @classmethod
    def all(cls, settings: Any) -> tuple[Self, ...]:
        """One adapter per configured instance of this source.  ConfigError when its section is not usable."""
        ...

    def covers(self, key: TaskKey) -> bool:
        """Whether the key is of this adapter.  Two adapters of one instance (two tokens) share the projects out."""
        ...

    def getter(self) -> TaskGetter:
        """What lists the tasks that wait here."""
        ...

    def read(self, key: TaskKey) -> IssueText:
        """The issue with all its comments.  IssueUnreadable when it is gone or cannot be read."""
        ...

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        """(new *and edited* comments of others than the own account, oldest first; the cursor for the next call).

        `cursor` is opaque text that the caller keeps; None means from the beginning.  A cursor that cannot be read
        counts as None: a comment twice is better than a comment lost.  With nothing new the result is `((), cursor)`
        and costs the forge as little as it allows.  An edit that leaves a comment as it was is not news.  A comment
        that cannot be read is left out and logged.
        """
        ...

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        """Make the label of `to` the only one of ours on the issue; all other labels stay.

        Single removes and adds, never a write of the whole list: a label that a person puts on at the same instant
        survives.  Idempotent; the new label is added before the old ones go, so that a crash between leaves at least
        one.  A bot label that a person puts on while the task runs is taken as answered by that run.
        """
        ...

    def take(self, key: TaskKey) -> bool:
        """`move_label(key, "processing")` for who found the task waiting.  False: it does not wait any more (another
        daemon that looks at the same project took it, or a person changed the mind), so nobody here works on it.

        GitHub carries out a removal once and says to whom, which makes this safe among daemons that know nothing of
        each other; where a forge cannot tell, the labels as they are decide.
        """
        ...

    def control(self, key: TaskKey) -> Literal["stop"] | None:
        """Whether people ended a running task.  "stop": the issue is closed or gone, our label was taken away, or the
        stopped label put on.  None: go on.  ForgeError when it cannot be told; then the task goes on."""
        ...

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        """Id of the oldest comment *of the own account* that carries `marker`; None when there is none."""
        ...

    def post_comment(self, key: TaskKey, body: str) -> str:
        """Write a comment as the own account; returns its id.  The marker is in `body` (`marks.marked`).

        After the return it is durable and found by `find_comment`.  ForgeError when `body` is longer than
        `max_comment`.
        """
        ...

    def edit_comment(self, key: TaskKey, comment_id: str, body: str) -> None:
        """Replace the body of an own comment.  ForgeError when it is gone or somebody else's."""
        ...

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        """The open pull request whose branch is `head`, else the newest closed or merged one, else None.

        ForgeError when it cannot be told, so that nobody opens a second one on a guess.
        """
        ...

    def open_pull(self, key: TaskKey, *, title: str, body: str, head: str, base: str, draft: bool) -> PullRef:
        """Open a pull request for a branch that is pushed already.  With an open one for `head` that one is returned,
        unchanged: two callers, or one that was killed, never make two."""
        ...

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
        """Change what is not None, leave the rest, also what people changed since; returns it as it is now.
        A merged one keeps its state."""
        ...

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:
        """The repository to work on.  IssueUnreadable when it is not known here."""
        ...

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:
        """(user, token) for git over HTTPS, asked for at each git call; None: git needs none, or has its own."""
        ...

    def close(self) -> None:
        """Give connections back; may be called twice.  Has nothing to do with issues: an adapter never closes one.

        A task that is done moves the label; the issue is closed by the merge or by a person.
        """
        ...
