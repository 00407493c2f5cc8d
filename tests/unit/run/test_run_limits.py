"""What a task may use."""

import pytest

from agent import clock
from agent.config import settings_of
from agent.run.limits import TaskLimits, Used
from agent.values import End


def limits(used, **keys):
    return TaskLimits(settings_of({"limits": keys}).limits, lambda: used)


@pytest.mark.parametrize(
    ("keys", "used", "code"),
    [
        ({"turns": 3}, Used(3, 0, 0.0), "limit_turns"),
        ({"turns": 3}, Used(2, 10**9, 10.0**9), None),
        ({"tokens": 1000}, Used(1, 1000, 0.0), "limit_tokens"),
        ({"cost": 0.5}, Used(1, 1, 0.5), "limit_cost"),
        ({"cost": 0.5}, Used(1, 1, 0.499), None),
        ({"turns": None, "wall_seconds": None}, Used(10**6, 10**9, 0.0), None),
    ],
)
def test_a_limit_that_is_reached_is_named_with_both_numbers(keys, used, code):
    outcome = limits(used, **keys)()
    assert (outcome and outcome.code) == code
    if outcome:
        assert outcome.end is End.LIMIT
        key = code.removeprefix("limit_")
        assert f"`limits.{key}` is {keys[key]:g}" in outcome.summary
        assert "config.yaml" in outcome.summary


def test_wall_time_counts_from_the_start_of_this_process():
    with clock.use(clock.FakeClock()) as time:
        time.move(10_000)
        limit = limits(Used(0, 0, 0.0), wall_seconds=60)
        assert limit() is None
        time.move(59)
        assert limit() is None
        time.move(1)
        assert limit().code == "limit_wall_seconds"


def test_a_command_that_the_kernel_ended_for_memory_ends_the_task_with_that_word():
    settings = settings_of({"limits": {"memory": "300M"}}).limits
    outcome = TaskLimits(settings, lambda: Used(1, 1, 0.0), ran_over=lambda: True)()
    assert (outcome.end, outcome.code) == (End.LIMIT, "memory")
    assert "`limits.memory` is 300M" in outcome.summary
    assert TaskLimits(settings, lambda: Used(1, 1, 0.0))() is None
