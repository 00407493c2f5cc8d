"""The first step of a task: claims the issue, then makes the sandbox, the work tree and the publisher.

The result is `Prepared`, which the later steps of the task use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent import proc
from agent.config.environment import network_environment
from agent.forge.git_credentials import login_of
from agent.sandbox import make_sandbox, sandbox_user
from agent.work.mirror import Mirror
from agent.work.remote import Remote
from agent.worker.claimed_issue import read_and_claim
from agent.worker.command_runner import CommandRunner
from agent.worker.task_publisher import open_publisher
from agent.worker.work_tree_start import open_work_tree

if TYPE_CHECKING:
    from agent.work.publish import Publisher
    from agent.worker.claimed_issue import ClaimedIssue
    from agent.worker.task_run import TaskRun
    from agent.worker.work_tree_start import StartedTree


@dataclass(frozen=True, slots=True)
class Prepared:
    """The results of `prepare`, the first step of a task."""

    claimed: ClaimedIssue
    tree: StartedTree
    commands: CommandRunner
    publisher: Publisher


def prepare(run: TaskRun) -> Prepared:
    """Claim the issue, make the sandbox, fetch into the mirror, and open the work tree at the commit where the task
    starts or where an earlier attempt stopped.

    `prepare` may be repeated: a resumed task finds its work tree unchanged.  `prepare` runs no command of the
    repository.  Raises TakenElsewhere, EndedBefore or IssueUnreadable if the task may not work on the issue."""
    settings, context, forge = run.settings, run.context, run.forge
    claimed = read_and_claim(run)
    repository = forge.repository(run.key, claimed.issue)
    sandbox = make_sandbox(settings, uuid=run.uuid, base_dir=settings.base_dir)
    sandbox_user.share(context.context_dir, sandbox.uid)
    run.isolation = {"sandbox": sandbox.kind, "sandbox_reason": sandbox.reason}
    # git processes get the task's mark, so that a push that an earlier attempt left running is found and ended
    network = {**network_environment(), proc.MARK: run.uuid}
    remote = Remote(repository.url, env=network, **login_of(forge, run.key, repository))
    mirror = Mirror(settings.base_dir, repository.host, repository.owner, repository.repo, remote)
    tree = open_work_tree(run, claimed.issue, repository, claimed.parent, mirror, sandbox)
    publisher = open_publisher(run, tree.workspace)
    publisher.take_up()
    run.workspace = tree.workspace
    commands = CommandRunner(run, sandbox, tree.workspace)
    return Prepared(claimed, tree, commands, publisher)
