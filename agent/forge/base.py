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
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from agent.forge.task import Task, TaskGetter
    from agent.values import Public, TaskKey

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
    returns, so this is about other machines.  `is_edit`: it stood there at the cursor and says something else now.
    `place`: where it was said, when that is not the issue itself ("On src/a.py:12, review thread 5"); `body` is what
    was written, and nothing else.
    """

    id: str
    author: str
    body: str
    created_at: str = ""
    updated_at: str = ""
    is_bot: bool = False
    is_edit: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class Marked:
    """A comment of the own account that carries markers (`marks.py`).  `updated_at` as in `Comment`."""

    id: str
    markers: tuple[str, ...]
    updated_at: str = ""


@dataclass(frozen=True, slots=True)
class IssueText:
    """One issue as people wrote it, unsanitised.

    `base` is the branch that the issue asks to start from, None where it names none (then the repository's default
    branch is meant); of a pull request the one it goes onto, and `pull` is that pull request.
    `comments`: those of others than the own account, oldest first.  `cursor` belongs to `comments`:
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
    pull: PullRef | None = None


@dataclass(frozen=True, slots=True)
class PullRef:
    """One pull (merge) request.  `head` and `base` are branch names of the same repository; with `fork`, the name of
    another one, `head` is a branch there."""

    id: str
    url: str
    title: str
    state: Literal["open", "closed", "merged"]
    draft: bool
    head: str
    base: str
    fork: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """Where the code is.  `host`, `owner`, `repo` name the mirror's folder (plain path parts, `owner` may hold `/`).

    `url` is what git is given: an absolute path or an address, never with a credential in it.  `default_branch` None:
    the forge does not say, git's own HEAD is meant.  `ca_file`: whom git has to trust for `url`, all of them.
    `head_ref`: where the commits of a pull request are that is the task itself (`refs/pull/7/head`), a fork's too.
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

    def left(self) -> tuple[str, ...]:
        """The labels of an issue that somebody has: it is worked on, or waits for a person."""
        return tuple(label for label in (self.processing, self.paused) if label)

    def can_start(self, present: Iterable[str]) -> bool:
        """Whether a comment may start a task on an issue with these labels: nobody works on it; the bot label may be
        there too, then both ask for the same."""
        return ({self.processing, self.paused} - {""}).isdisjoint(present)

    def is_left_behind(self, present: Iterable[str], *, by_comment: bool) -> bool:
        """Whether a run that begins has to move the label itself: the task was paused, or a comment started it and the
        label of the end before is the only one of ours, since whoever queued it died before it moved."""
        here = self.all() & set(present)
        ended = {self.done, self.stopped, self.failed} - {""}
        return self.paused in here or (by_comment and bool(here) and here <= ended)

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
    comment; `max_file`, the most bytes of a file that a push may have, None for any; `news_interval`, the seconds
    between two looks at the comments of a running task that are polite here;
    `settle`, the seconds after which a comment that was posted stands in everybody's list, None where `take` itself
    lets one of several daemons have an issue, since all of them take one lock.
    """

    source: str
    instance: str
    labels: Labels
    max_comment: int
    max_file: int | None
    news_interval: float
    settle: float | None

    @property
    def pause(self) -> float:
        """Seconds that the forge last asked to be left alone between two looks (`X-Poll-Interval`), 0 for none."""
        ...

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

    def task_at(self, address: str) -> Task | None:
        """The task of the issue, pull or merge request that a browser shows at `address`, whether it waits or not; its
        user is the author.

        None when the address is of another host or of a project that this adapter does not cover.  IssueUnreadable when
        nothing is there, or it is closed.  Nothing is changed, and nobody is asked who may ask: this is for the person
        at this machine (`solve`).
        """
        ...

    def read(self, key: TaskKey) -> IssueText:
        """The issue with all its comments.  IssueUnreadable when it is gone or cannot be read."""
        ...

    def comments_since(self, key: TaskKey, cursor: str | None) -> tuple[tuple[Comment, ...], str]:
        """(new *and edited* comments of others than the own account, oldest first; the cursor for the next call).

        `cursor` is opaque text that the caller keeps; None means from the beginning.  A cursor that cannot be read
        counts as None: a comment twice is better than a comment lost.  With nothing new the result is `((), cursor)`
        and costs the forge as little as it allows.  An edit that leaves a comment as it was is not news.  A comment
        that cannot be read is left out and logged.  An edit of the issue's own title or text since `read` is told as
        one more edited comment, where whoever may have done it may speak.
        """
        ...

    def stirred(self, watched: Mapping[TaskKey, str | None], cursor: str) -> tuple[dict[TaskKey, str], str]:
        """(the keys about which something changed, with the time of the change; the cursor for the next call).

        `watched`: the keys that are asked about, all of this adapter, with the `url` of the pull request that was
        opened for them, which belongs to the key too.  `cursor`: what the last call returned, or a time (`clock.stamp`)
        to begin at.  Told is any change: a comment, a label, a state, an assignment, also our own (an edit need not
        be); a change may be told twice and is never lost.  Costs one list per repository, not one per key; with nothing
        new as little as the forge allows.
        """
        ...

    def fetch_picture(self, key: TaskKey, address: str) -> bytes:
        """The file of a picture that an issue or a comment shows at `address`, as it is written there, at most 10 MB.

        Only from the forge's own hosts, or the tracker's folder: an address is a stranger's words.  The token goes to
        the forge alone.  PictureRefused says why there is none; ForgeUnreachable.
        """
        ...

    def names(self) -> tuple[str, ...]:
        """What people call the own account in a mention, without the `@`."""
        ...

    def move_label(self, key: TaskKey, to: LabelState) -> None:
        """Make the label of `to` the only one of ours on the issue; all other labels stay.

        Single removes and adds, never a write of the whole list: a label that a person puts on at the same instant
        survives.  Idempotent; the new label is added before the old ones go, so that a crash between leaves at least
        one.  A bot label that a person puts on while the task runs is taken as answered by that run.
        """
        ...

    def take(self, key: TaskKey, *, again: bool = False) -> bool:
        """`move_label(key, "processing")` for who found the task waiting.  False: it does not wait any more (another
        daemon that looks at the same project took it, or a person changed the mind), so nobody here works on it.
        `again`: a comment asks for more work on what has ended, so an issue waits that is open and is neither queued
        nor worked on by anybody.

        Among daemons that know nothing of each other this is safe only where `settle` is None; elsewhere the labels as
        they are decide, and the caller has claimed the issue before (`run/claims.py`).
        """
        ...

    def control(self, key: TaskKey) -> Literal["stop"] | None:
        """Whether people ended a running task.  "stop": the issue is closed or gone, our label was taken away, or the
        stopped label put on.  None: go on.  ForgeError when it cannot be told; then the task goes on."""
        ...

    def find_comment(self, key: TaskKey, marker: str) -> str | None:
        """Id of the oldest comment *of the own account* that carries `marker`; None when there is none."""
        ...

    def post_comment(self, key: TaskKey, body: Public) -> str:
        """Write a comment as the own account; returns its id.  The marker is in `body` (`marks.marked`).

        After the return it is durable and found by `find_comment`.  ForgeError when `body` is longer than
        `max_comment`.
        """
        ...

    def marked_comments(self, key: TaskKey) -> tuple[Marked, ...]:
        """Every comment *of the own account* that carries a marker, in the order in which the forge numbered them,
        which is the same for whoever asks.  Read from the forge, as by `find_comment`."""
        ...

    def remove_comment(self, key: TaskKey, comment_id: str) -> None:
        """Remove an own comment; one that is gone is none.  ForgeError when it is somebody else's."""
        ...

    def edit_comment(self, key: TaskKey, comment_id: str, body: Public) -> None:
        """Replace the body of an own comment.  ForgeError when it is gone or somebody else's."""
        ...

    def find_pull(self, key: TaskKey, head: str) -> PullRef | None:
        """The open pull request whose branch is `head`, else the newest closed or merged one, else None.

        ForgeError when it cannot be told, so that nobody opens a second one on a guess.
        """
        ...

    def open_pull(self, key: TaskKey, *, title: Public, body: Public, head: str, base: str, draft: bool) -> PullRef:
        """Open a pull request for a branch that is pushed already.  With an open one for `head` that one is returned,
        unchanged: two callers, or one that was killed, never make two."""
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
        """Change what is not None, leave the rest, also what people changed since; returns it as it is now.
        A merged one keeps its state."""
        ...

    def repository(self, key: TaskKey, issue: IssueText) -> Repository:
        """The repository to work on.  IssueUnreadable when it is not known here."""
        ...

    def git_login(self, key: TaskKey) -> tuple[str, str] | None:
        """(user, token) for git over HTTPS, asked for at each git call; None: git needs none, or has its own."""
        ...

    def renew_login(self, key: TaskKey) -> None:
        """What `git_login` gave was refused: have another made where one can be had (an app's token)."""
        ...

    def close(self) -> None:
        """Give connections back; may be called twice.  Has nothing to do with issues: an adapter never closes one.

        A task that is done moves the label; the issue is closed by the merge or by a person.
        """
        ...
