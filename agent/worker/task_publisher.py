"""Makes the publisher of a task from its settings: what is scanned for secrets, which paths are guarded, which files
are too large.

The publisher that this module makes is the `Publisher` of `work/publish.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agent.forge.base import ForgeReports
from agent.security.guarded_paths import guarded
from agent.security.secrets import scan
from agent.work.publish import Publisher

if TYPE_CHECKING:
    from agent.work.workspace import Workspace
    from agent.worker.task_run import TaskRun


def open_publisher(run: TaskRun, workspace: Workspace) -> Publisher:
    """The publisher that pushes the commits in `workspace` to the repository of its mirror."""
    policy = run.settings.policy
    return Publisher(
        workspace,
        run.effects,
        scan=lambda chunks: scan(chunks, run.redact.secrets),
        guarded=partial(guarded, refuse=policy.refuse, look=policy.look),
        largest=run.forge.max_file,
        prefix=run.settings.branch.prefix,
        maker=ForgeReports(run.forge).commit_maker(run.key) if run.publishing else None,
        check_held=run.check_held,
    )
