"""Tasks as processes: who polls, who starts workers, what a worker does, and how it ends.

`daemon.py` is the main job; `handler.py` is one task.  The names of the seeds are here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.run.handler import TaskHandler
    from agent.run.producer import fetch_and_enqueue_tasks
    from agent.run.worker import process_task

__all__ = ["TaskHandler", "fetch_and_enqueue_tasks", "process_task"]

_HOMES = {
    "TaskHandler": "agent.run.handler",
    "fetch_and_enqueue_tasks": "agent.run.producer",
    "process_task": "agent.run.worker",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
