"""What `show` advises fits the status of the task and the kind of its tracker."""

import pytest

from agent.commands.next_step import next_step
from agent.taskqueue import Row
from agent.values import Status


@pytest.mark.parametrize(
    ("status", "instance", "said"),
    [
        (
            Status.COMPLETED,
            "/h/tracker",
            "a comment that mentions the account, or `retry 0c000000`, continues the task",
        ),
        (Status.COMPLETED, "/h/contexts/solve/ab", "`retry 0c000000` continues the task"),
        (Status.STOPPED, "/h/tracker", "`retry 0c000000` continues it; `show 0c000000 --full` has every record"),
        (
            Status.FAILED,
            "/h/tracker",
            "`retry 0c000000` continues it when the cause is mended; `show 0c000000 --full` has every record",
        ),
        (
            Status.RUNNING,
            "/h/tracker",
            "`show 0c000000 --watch` follows it; `pause 0c000000` holds it, `stop 0c000000` ends it",
        ),
    ],
)
def test_the_next_step_fits_the_status_and_the_tracker(status, instance, said):
    row = Row("0c000000-1", "local", "local", "default", "issue", "1", status, "2026-01-31T09:15:00Z", instance)
    assert next_step(row, None) == said
