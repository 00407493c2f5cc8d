"""What a task may use."""

import pytest

from agent import clock
from agent.config import settings_of
from agent.context.cost_totals import Totals
from agent.values import End
from agent.worker.limits import TaskLimits


def used(turns, tokens, cost):
    return Totals(turns, tokens, 0, 0, 0, cost=cost, turns=turns)


def limits(totals, **keys):
    return TaskLimits(settings_of({"limits": keys}).limits, lambda: totals)


@pytest.mark.parametrize(
    ("keys", "totals", "code"),
    [
        ({"turns": 3}, used(3, 0, 0.0), "limit_turns"),
        ({"turns": 3}, used(2, 10**9, 10.0**9), None),
        ({"tokens": 1000}, used(1, 1000, 0.0), "limit_tokens"),
        ({"cost": 0.5}, used(1, 1, 0.5), "limit_cost"),
        ({"cost": 0.5}, used(1, 1, 0.499), None),
        ({"turns": None, "wall_seconds": None}, used(10**6, 10**9, 0.0), None),
    ],
)
def test_a_limit_that_is_reached_is_named_with_both_numbers(keys, totals, code):
    outcome = limits(totals, **keys)()
    assert (outcome and outcome.code) == code
    if outcome:
        assert outcome.end is End.LIMIT
        key = code.removeprefix("limit_")
        assert f"`limits.{key}` is {keys[key]:g}" in outcome.summary
        assert "config.yaml" in outcome.summary


def test_a_cost_is_named_with_the_currency_of_the_configuration():
    settings = settings_of({"limits": {"cost": 0.01}}).limits
    outcome = TaskLimits(settings, lambda: used(1, 1, 0.0125), currency="EUR")()
    assert "`limits.cost` is 0.01; 0.0125 EUR were used." in outcome.summary


def test_wall_time_counts_from_the_start_of_this_process():
    with clock.use(clock.FakeClock()) as time:
        time.move(10_000)
        limit = limits(used(0, 0, 0.0), wall_seconds=60)
        assert limit() is None
        time.move(59)
        assert limit() is None
        time.move(1)
        assert limit().code == "limit_wall_seconds"


def test_no_wall_time_passes_while_the_clock_is_stopped():
    with clock.use(clock.FakeClock()) as time:
        limit = limits(used(0, 0, 0.0), wall_seconds=60)
        time.move(50)
        limit.stop_clock()
        time.move(1000)
        limit.stop_clock()  # a second time changes nothing
        time.move(1000)
        assert limit() is None
        limit.start_clock()
        limit.start_clock()
        time.move(9)
        assert limit() is None
        time.move(1)
        assert limit().code == "limit_wall_seconds"
        limit.restart_clock()
        assert limit() is None


def test_a_command_that_the_kernel_ended_for_memory_ends_the_task_with_that_word():
    settings = settings_of({"limits": {"memory": "300M"}}).limits
    outcome = TaskLimits(settings, lambda: used(1, 1, 0.0), ran_over=lambda: True)()
    assert (outcome.end, outcome.code) == (End.LIMIT, "memory")
    assert "`limits.memory` is 300M" in outcome.summary
    assert TaskLimits(settings, lambda: used(1, 1, 0.0))() is None
