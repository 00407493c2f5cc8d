"""Detects that the program's files were replaced after this process had loaded them: by an upgrade, or by `git pull`.

A worker imports some modules only when it needs them.  After an upgrade these modules do not fit the modules that are
loaded already.  The resulting failure is neither a mistake of the program nor caused by the task: a new worker, in
which all modules have one version, continues the task.  The forkserver loads this module once for all workers
(`daemon/preload.py`).  After an upgrade `daemon/program_version.py` keeps the daemon from starting workers.
"""

from __future__ import annotations

from agent.installed_files import stats

LOADED = stats()


def replaced() -> bool:
    """Whether any module differs from its state at the start of this process, or of the process from which it was
    forked."""
    return stats() != LOADED
