"""Says in one sentence what a person can do next with a task, by its status and by the reason why it waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.commands.task_control import OPEN_ADVICE
from agent.values import Status
from agent.wiring.private_tracker import FOLDER as PRIVATE

if TYPE_CHECKING:
    from agent.daemon.task_reasons import Reason
    from agent.taskqueue import Row


def next_step(row: Row, reason: Reason | None) -> str:
    """A sentence about what a person can do with the task that `show` displays; `reason` is the reason why the task
    waits, None if it does not wait. Nobody comments on the issue of a private tracker, so after the end of its task no
    comment is advised."""
    uuid = row.uuid[:8]
    again = f"`retry {uuid}` continues the task"
    if Path(row.instance).parent.name != PRIVATE:
        again = f"a comment that mentions the account, or `retry {uuid}`, continues the task"
    match row.status:
        case Status.QUEUED if reason is not None and reason.code != "daemon":
            return f"`stop {uuid}` takes it out of the queue; `pause {uuid}` holds it"
        case Status.RUNNING:
            return f"`show {uuid} --watch` follows it; `pause {uuid}` holds it, `stop {uuid}` ends it"
        case Status.PAUSED if reason is not None and reason.code == "question":
            return f"answer on the issue; `resume {uuid}` continues without an answer, `stop {uuid}` ends it"
        case Status.COMPLETED if row.url and row.pull_state is None:
            return f"review {row.url}; {again}"
        case Status.COMPLETED:
            return again
        case Status.STOPPED:
            return f"`retry {uuid}` continues it; `show {uuid} --full` has every record"
        case Status.FAILED:
            return f"`retry {uuid}` continues it when the cause is mended; `show {uuid} --full` has every record"
        case status:
            return OPEN_ADVICE[status].format(uuid=uuid)
