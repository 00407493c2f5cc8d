"""Opens the work tree of a task at the commit where the task starts, or as an earlier attempt left it.

A task starts from the base branch, from an open pull request, from the branch or the unpublished commits of the task
that it continues, or from an earlier point of another task (`fork_task.py`).  `branch_plan.py` chooses the branches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import GitError, IssueUnreadable
from agent.forge.base import ForgeReports
from agent.forge.fork_head import SHOWN, said_moved
from agent.sandbox import traits_of
from agent.wiring import private_tracker
from agent.work import rebase, work_tree_snapshot
from agent.work.publish import is_own
from agent.work.signing import Signing
from agent.work.workspace import Workspace
from agent.worker.branch_plan import own_branch, plan_branch
from agent.worker.fork_task import read_fork_point
from agent.worker.issue_pictures import add_note
from agent.worker.repository_settings import apply_repository_file

if TYPE_CHECKING:
    from agent.forge.base import IssueText, PullRef, Repository
    from agent.sandbox.base import Sandbox
    from agent.work.mirror import Mirror
    from agent.work.work_tree_snapshot import RestoredTree
    from agent.worker.branch_plan import BranchPlan
    from agent.worker.earlier_task import ParentTask, UnpublishedCommits
    from agent.worker.fork_task import ForkPoint
    from agent.worker.repository_settings import RepositorySettings
    from agent.worker.task_run import TaskRun


@dataclass(frozen=True, slots=True)
class StartedTree:
    """An open work tree, and how it was started.

    `point`: the point of another task from which this task starts, else None.  `restored`: the result of restoring the
    tree from a replica, else None.  `takes_up`: the tree contains unpublished commits of the earlier task.
    """

    workspace: Workspace
    plan: BranchPlan
    point: ForkPoint | None
    restored: RestoredTree | None
    takes_up: bool


def open_work_tree(
    run: TaskRun, issue: IssueText, repository: Repository, parent: ParentTask | None, mirror: Mirror, sandbox: Sandbox
) -> StartedTree:
    """Fetch into the mirror, choose branch and start commit, and open the work tree at that commit.

    The content of a work tree that exists already is not changed. Notices for people about the start are the first
    entries of `run.reports`. Raises IssueUnreadable if a pull request's branch in a forked repository has changed since
    it was checked.
    """
    folder = run.context.context_dir
    point = read_fork_point(folder)
    earlier = parent.branch if parent and point is None else None
    plan, of_repository, newer = _fetch_and_plan(run, issue, repository, earlier, mirror)
    if point is not None:
        plan = replace(plan, start_at=point.commit)
    kept = None
    if parent is not None and point is None and not run.is_briefed():
        kept, plan = _unpublished(parent.kept, plan, mirror)
    workspace = _workspace(run, plan, mirror, sandbox)
    workspace.instructions = of_repository.keys.instructions or ""
    notices = (*issue.problems, of_repository.problem, plan.about, newer, _about_head(run, plan, mirror))
    workspace.reports.extend(notice for notice in notices if notice)
    run.reports = workspace.reports
    restored = open_or_restore(run, workspace)
    takes_up = kept is not None and restored is None and _take_up(workspace, kept)
    return StartedTree(workspace, plan, point, restored, takes_up)


def _fetch_and_plan(
    run: TaskRun, issue: IssueText, repository: Repository, earlier: str | None, mirror: Mirror
) -> tuple[BranchPlan, RepositorySettings, str]:
    """Fetch into the mirror, and choose the branches of the task.

    Returns the plan, the settings from `.makimono.yaml`, and a sentence about newer commits of a pull request from a
    forked repository ("" if there are none). `.makimono.yaml` may set the base, so the plan is made again after the
    fetch.
    """
    prefix = run.settings.branch.prefix
    name = run.publish_filter.branch(private_tracker.branch_name(run.settings, run.key.instance))
    start = work_tree_snapshot.started_at(run.context.context_dir)
    plan_for = partial(
        plan_branch,
        repository=repository,
        own=own_branch(run.key, run.uuid, name, prefix),
        # a host without the task's files uses the branch in the row; otherwise `Workspace` uses the branch in its own
        # files
        decided=run.context.column("branch"),
        prefix=prefix,
        start=start,
        request=ForgeReports(run.forge).pull_name(),
    )
    plan = plan_for(issue, earlier)
    mirror.fetch(plan.refs)
    if repository.default_branch is not None and not mirror.is_default_guessed:
        # the forge's answer may be ten minutes old (`HostFactsCache`), and git names the default branch of now
        plan_for = partial(plan_for, repository=replace(repository, default_branch=mirror.default_branch()))
        plan = plan_for(issue, earlier)
    of_repository = apply_repository_file(run, mirror)
    if issue.base is None and run.settings.workspace.base is not None:
        issue = replace(issue, base=run.settings.workspace.base)
        plan = plan_for(issue, earlier)
    newer = _check_fork(run, issue.pull, plan, mirror, begun=bool(start))
    if earlier is not None and mirror.commit_of(earlier) is None:  # the branch of the earlier task is gone
        plan = plan_for(issue, None)
    return plan, of_repository, newer


def _workspace(run: TaskRun, plan: BranchPlan, mirror: Mirror, sandbox: Sandbox) -> Workspace:
    """The workspace of the task, which is not open yet."""
    settings = run.settings
    return Workspace(
        run.context.context_dir,
        mirror,
        branch=plan.branch,
        start_at=plan.start_at,
        base=plan.base,
        owner_uid=sandbox.uid,
        isolated=traits_of(sandbox).isolates,
        signing=Signing(settings.commit.signing_key),
        pushes=plan.pushes,
        lfs_limit=settings.workspace.lfs_limit or 0,
        largest=run.forge.max_file,
    )


def _about_head(run: TaskRun, plan: BranchPlan, mirror: Mirror) -> str:
    """A sentence for a person if the work starts at a branch of this program, because the repository's HEAD is there;
    "" if not."""
    head = mirror.default_branch() if plan.base is None else None
    if head is None or not is_own(head, run.settings.branch.prefix):
        return ""
    return (
        f"the repository's HEAD is {head}, a branch of this program, and the work began there: check another branch "
        f"out in it, or name one as `base` in the issue"
    )


def _check_fork(run: TaskRun, pull: PullRef | None, plan: BranchPlan, mirror: Mirror, *, begun: bool) -> str:
    """Check that the fetched commit of a pull request from a forked repository is the one that `issue_checks.py`
    checked before the fetch.

    A task that has begun already stays at its own commit; the result is a sentence about newer commits of the pull
    request, "" if there are none.  Raises IssueUnreadable if the branch changed during the fetch.
    """
    present = mirror.commit_at(plan.refs[0]) if plan.refs else None
    if pull is None or not pull.fork or present is None or plan.start_at in (present, *plan.refs):
        return ""
    if not begun:
        said = said_moved(pull.fork, str(plan.start_at), present)
        raise IssueUnreadable(f"{run.key}: {said}", code="head_moved")
    return f"{pull.fork} has newer commits by now (up to {present[:SHOWN]}), which were not read"


def open_or_restore(run: TaskRun, workspace: Workspace) -> RestoredTree | None:
    """Open the work tree in this folder, or restore it from the replica that another host wrote; returns the result of
    restoring, None if nothing was restored."""
    folder = run.context.context_dir
    if not work_tree_snapshot.is_waiting(folder):
        workspace.open()
        return None
    made = work_tree_snapshot.restore(workspace, run.author[1])
    run.events.emit("tree_revived", head=made.head, lacks=made.lacks)
    if made.lacks:
        add_note(folder, f"the task went on in a new folder from its replica, and {made.lacks}")
    return made


def _unpublished(
    kept: UnpublishedCommits | None, plan: BranchPlan, mirror: Mirror
) -> tuple[UnpublishedCommits | None, BranchPlan]:
    """The unpublished commits of the earlier task if this task can use them, and the plan that starts from them.

    The unpublished commits can be used if they are on top of the branch that this task continues, or start from a
    commit of the same base."""
    if kept is None or not plan.pushes:
        return None, plan
    if plan.start_at is not None:
        tip = mirror.commit_of(plan.start_at)
        fits = tip is not None and rebase.is_ancestor(kept.git_dir, tip, kept.commit)
        return (kept if fits else None), plan
    base = (plan.base or mirror.default_branch() or "").removeprefix("refs/heads/")
    known = rebase.has_commit(mirror.path, kept.start)
    if kept.pushed is not None or base != kept.base or not known:
        return None, plan
    return kept, replace(plan, start_at=kept.start)


def _take_up(workspace: Workspace, kept: UnpublishedCommits) -> bool:
    """Put the commits of the earlier task into the work tree; returns whether that succeeded."""
    if workspace.head() == kept.commit:
        return True
    try:
        workspace.import_commits(kept.git_dir, kept.commit, refused=kept.refused)
    except GitError as error:
        workspace.reports.append(f"what the task before had not published could not be taken from its folder: {error}")
        return False
    return True
