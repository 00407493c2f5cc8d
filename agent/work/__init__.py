"""The package `work` handles work tree and publication: the mirror, a task's workspace, its set-up, its checks, and the
push.

A reader of the package `work` should start with `workspace.py`. `mirror.py` fetches a repository, `setup.py` installs
its dependencies, `verify.py` runs its tests, and `publish.py` pushes the commits.
"""

from agent.work.changes import DiffStat
from agent.work.mirror import Mirror
from agent.work.publish import Publisher
from agent.work.setup import SetupReport, prepare
from agent.work.verify import Verdict, touched_tests
from agent.work.workspace import Workspace

__all__ = [
    "DiffStat",
    "Mirror",
    "Publisher",
    "SetupReport",
    "Verdict",
    "Workspace",
    "prepare",
    "touched_tests",
]
