"""The names that the specification demands: `TaskHandler`, `fetch_and_enqueue_tasks` and `process_task`.

The code for `TaskHandler`, `fetch_and_enqueue_tasks` and `process_task` is in the packages `worker` and `intake`;
plug-ins and scripts may import the names from `agent.run`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.worker.handler import TaskHandler
    from agent.worker.worker import process_task

__all__ = ["TaskHandler", "fetch_and_enqueue_tasks", "process_task"]

_HOMES = {
    "TaskHandler": "agent.worker.handler",
    "fetch_and_enqueue_tasks": "agent.intake.poller",
    "process_task": "agent.worker.worker",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
