"""Detects that the program's files were replaced after this process loaded them, by an upgrade or by `git pull`.

A worker imports some modules only when it needs them.  Modules that a worker imports after an upgrade may not fit the
modules that were loaded before.  A failure because of modules from two versions is neither a mistake of the program nor
caused by the task: a new worker, with all modules from one version, continues the task.  The forkserver loads this
module once for all workers (`daemon/preload.py`).  After an upgrade, `daemon/program_version.py` makes the daemon start
no more workers.
"""

from __future__ import annotations

from agent.installed_files import stats

LOADED = stats()


def replaced() -> bool:
    """Whether the file of any module differs from its state at the start of this process, or of the process from which
    this one was forked."""
    return stats() != LOADED
