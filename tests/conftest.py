"""What all tests share.  Being here puts `tests/` on the path, so that helpers beside it can be imported."""

import os
from pathlib import Path

from agent import cgroups

ROOT = Path(__file__).resolve().parent.parent
# Programs that a test starts find `agent` too, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def pytest_sessionfinish():
    """Daemons that a test killed leave the control groups of their workers; whoever runs in one keeps it."""
    cgroups.remove("makimono-", cgroups.find())
