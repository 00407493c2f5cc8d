"""The first step of a task: reads and claims the issue, then makes the sandbox, the work tree and the publisher.

The result is `Prepared`, which the later steps of the task use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent import clock, deadline, proc
from agent.config.environment import network_environment
from agent.forge.base import ForgeReports
from agent.forge.git_credentials import login_of
from agent.forge.what_starts import start_of
from agent.sandbox import make_sandbox, sandbox_user
from agent.work.mirror import Mirror
from agent.worker.ci_failures import CiFailures, read_failures
from agent.worker.command_runner import CommandRunner
from agent.worker.issue_checks import check_issue
from agent.worker.parent_task import read_parent
from agent.worker.task_facts import may_author_ask
from agent.worker.task_publisher import open_publisher
from agent.worker.work_tree_start import open_work_tree

if TYPE_CHECKING:
    from agent.forge.base import Forge, IssueText
    from agent.work.publish import Publisher
    from agent.worker.parent_task import Parent
    from agent.worker.session import TaskRun
    from agent.worker.work_tree_start import StartedTree


@dataclass(frozen=True, slots=True)
class Prepared:
    """The results of `prepare`, the first step of a task.

    `read_at` is the time of the monotonic clock at which the issue and its comments were read.  `trusts_author`:
    whether the author of the issue may request work.  `parent` is the earlier task that this one continues, None if
    there is none.  `ci` has the red checks for which the task was started.
    """

    issue: IssueText
    read_at: float
    trusts_author: bool
    parent: Parent | None
    tree: StartedTree
    commands: CommandRunner
    publisher: Publisher
    ci: CiFailures


def _with_pull(forge: Forge, issue: IssueText, parent: Parent | None) -> IssueText:
    """The issue, together with the comments on the earlier task's pull request."""
    cursor = ForgeReports(forge).with_pull(issue.cursor, parent.url) if parent is not None else issue.cursor
    if cursor is None or cursor == issue.cursor:
        return issue
    more, cursor = forge.comments_since(issue.key, cursor)
    comments = sorted((*issue.comments, *more), key=lambda one: one.created_at)
    return replace(issue, comments=tuple(comments), cursor=cursor)


def prepare(run: TaskRun) -> Prepared:
    """Read the issue, claim it, move its label and post the progress comment; then make the sandbox, fetch into the
    mirror, and open the work tree at the commit where the task starts or where an earlier attempt stopped.

    `prepare` may be repeated: a resumed task finds its work tree unchanged.  `prepare` runs no command of the
    repository.  Raises TakenElsewhere, EndedBefore or IssueUnreadable if the task may not work on the issue."""
    settings, context, forge = run.settings, run.context, run.forge
    parent = read_parent(settings, run.wiring.ledger, forge, context.row.get("parent_uuid"))
    started_by = context.row.get("started_by")
    read_at = clock.monotonic()
    with ForgeReports(forge).single_reads():
        issue = _with_pull(forge, forge.read_issue(run.key), parent)
        context.set_columns(title=issue.title)
        if run.publishing:
            check_issue(run, issue, started_by)
        trusts_author = may_author_ask(run, issue)
        deadline.is_stopping()  # the issue that was just read may contain a request to stop
        is_first = context.row.get("parent_uuid") is None
        present = set(issue.labels) - forge.labels.without_effect(start_of(forge))
        if forge.labels.is_left_behind(present, by_comment=started_by is not None, is_first=is_first):
            run.move_label("processing")
        if run.publishing:
            run.progress.start()
        ci = CiFailures() if run.is_briefed() else read_failures(run)
    repository = forge.repository(run.key, issue)
    sandbox = make_sandbox(settings, uuid=run.uuid, base_dir=settings.base_dir)
    sandbox_user.share(context.context_dir, sandbox.uid)
    run.isolation = {"sandbox": sandbox.kind, "sandbox_reason": sandbox.reason}
    # git processes get the task's mark, so that a push that an earlier attempt left running is found and ended
    network = {**network_environment(), proc.MARK: run.uuid}
    login = login_of(forge, run.key, repository)
    where = (repository.host, repository.owner, repository.repo, repository.url)
    mirror = Mirror(settings.base_dir, *where, env=network, **login)
    tree = open_work_tree(run, issue, repository, parent, mirror, sandbox)
    publisher = open_publisher(run, tree.workspace, repository.url, network, login)
    publisher.take_up()
    run.workspace = tree.workspace
    commands = CommandRunner(run, sandbox, tree.workspace)
    return Prepared(issue, read_at, trusts_author, parent, tree, commands, publisher, ci)
