"""Chooses the commit at which a task starts and the branch to which it pushes: a new branch, a branch of this program,
or none.

An issue starts from its base branch, or from the branch of an earlier task that it continues. For a task that is itself
a pull request, start and push depend on the owner of its branch (docs/forges.md, "A pull request that is the task
itself"):

- a branch of this program (`makimono/…`): the work continues on it, and the same pull request is updated;
- a person's branch of this repository: nothing is pushed to that branch; a new branch gets a pull request that targets
  it;
- a fork's branch: the requested commits are fetched, nothing is pushed anywhere, and the result is a patch.

The functions of `branch_plan.py` have no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.forge.fork_head import SHOWN
from agent.work.publish import is_own

if TYPE_CHECKING:
    from agent.forge.base import IssueText, Repository
    from agent.values import TaskKey


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """The branches of a task.

    `branch` receives the commits. `base` is the branch against which the diff is made and which the pull request
    targets (None: the default branch). `start_at` is a branch, ref or commit from which the work starts instead of the
    base.
    `refs` are fetched in addition to branches and tags. `pushes`: if False, nothing is pushed and the result is a
    patch. `about` describes the pull request to the model and to people."""

    branch: str
    base: str | None
    start_at: str | None = None
    refs: tuple[str, ...] = ()
    pushes: bool = True
    about: str = ""


def own_branch(key: TaskKey, uuid: str, name: str, prefix: str) -> str:
    """The name of a new branch of a task. If `name` is not empty, it takes the place of the issue number in the
    branch's name; `prefix` is the value of `branch.prefix`."""
    return f"{prefix}{name or key.task_id}-{uuid[:8]}"


def plan_branch(
    issue: IssueText,
    earlier: str | None,
    *,
    repository: Repository,
    own: str,
    decided: str | None,
    prefix: str,
    start: str,
    request: str,
) -> BranchPlan:
    """The branches of a task at its start.

    `earlier`: the branch of an earlier task, if this task continues on it. `own`: the name of a new branch. `decided`:
    the branch that this task already has, None for a new task; it is used in place of `earlier` and `own`. A pull
    request from a branch of this program always keeps that branch. `prefix` is the value of `branch.prefix`. `start`:
    for a pull request from a fork, its commit from which the task has started, "" if it has not started. `request`: the
    word of the forge for a pull request ("merge request" on GitLab).
    """
    own = decided or own
    branch = decided or earlier or own
    base = issue.base or repository.default_branch
    pull = issue.pull
    if pull is None:
        return BranchPlan(branch, base, earlier)
    if pull.fork:
        refs = (repository.head_ref,) if repository.head_ref else ()
        commit = start or pull.commit
        at = f", at its commit {commit[:SHOWN]}" if commit else ""
        about = (
            f"The task is a {request} from {pull.fork}, a fork, onto {pull.base}{at}. Nothing is pushed there, and "
            f"nothing of it to a branch here: what is changed is handed over as a patch"
        )
        return BranchPlan(own, pull.base, commit or repository.head_ref, refs, pushes=False, about=about)
    if is_own(pull.head, prefix):
        about = f"The task is the {request} of {pull.head} onto {pull.base}; the work goes on in that branch"
        return BranchPlan(pull.head, pull.base, pull.head, about=about)
    about = (
        f"The task is the {request} of {pull.head} onto {pull.base}. {pull.head} is a person's branch and is not "
        f"pushed to: the work is a {request} onto it"
    )
    return BranchPlan(branch, pull.head, earlier, about=about)
