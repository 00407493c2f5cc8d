"""Where a task begins, and what it may push: a branch of its own, a branch of ours, or nothing.

An issue starts from its base branch.  A pull request that is the task itself starts from its own commits, and it
depends on whose branch it is (design: section 8, own branches only; section 10, fork pull requests never run with
write access):

- a branch of ours (`makimono/…`): the work goes on in it, and this very pull request is brought up to date;
- a person's branch of this repository: it is not pushed to; a branch of our own and a pull request onto theirs;
- a fork's: its commits are read, nothing is pushed anywhere, the result is a patch.

Pure; called by `run/task_run.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.work.publish import OWN, is_own

if TYPE_CHECKING:
    from agent.forge.base import IssueText, Repository
    from agent.values import TaskKey


@dataclass(frozen=True, slots=True)
class Start:
    """`branch` is what the work is committed on, `base` what it is compared with and goes onto (None: the default
    branch), `start_at` a branch or ref to begin at instead of the base.  `refs` are fetched beside branches and tags.
    `pushes` False: the result is a patch.  `about` says to the model and to people what they look at."""

    branch: str
    base: str | None
    start_at: str | None = None
    refs: tuple[str, ...] = ()
    pushes: bool = True
    about: str = ""


def start_of(
    key: TaskKey,
    uuid: str,
    issue: IssueText,
    repository: Repository,
    earlier: str | None,
    name: str = "",
    decided: str | None = None,
    prefix: str = OWN,
) -> Start:
    """The start of a task.  `earlier`: the branch of the task that this one follows, where it is to go on.  `name`
    stands in a new branch for the number of an issue that has none.  `decided`: the branch that this very task has
    already, whatever a new one would be called.  `prefix`: `branch.prefix`."""
    own = decided or f"{prefix}{name or key.task_id}-{uuid[:8]}"
    branch = decided or earlier or own
    base = issue.base or repository.default_branch
    pull = issue.pull
    if pull is None:
        return Start(branch, base, earlier)
    if pull.fork:
        refs = (repository.head_ref,) if repository.head_ref else ()
        about = (
            f"The task is a pull request from {pull.fork}, a fork, onto {pull.base}. Nothing is pushed there, and "
            f"nothing of it to a branch here: what is changed is handed over as a patch"
        )
        return Start(own, pull.base, repository.head_ref, refs, pushes=False, about=about)
    if is_own(pull.head, prefix):
        about = f"The task is the pull request of {pull.head} onto {pull.base}; the work goes on in that branch"
        return Start(pull.head, pull.base, pull.head, about=about)
    about = (
        f"The task is the pull request of {pull.head} onto {pull.base}. {pull.head} is a person's branch and is not "
        f"pushed to: the work is a pull request onto it"
    )
    return Start(branch, pull.head, earlier, about=about)
