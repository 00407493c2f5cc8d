"""Waiting: how long, how often, and how it ends."""

import pytest
from llm_servers import Heard, Stop

from agent import clock
from agent.errors import ContextOverflow, ModelUnreachable, RateLimited
from agent.llm.base import Interrupted
from agent.llm.retry import call_with_retries, delay, interruptible_sleep
from agent.values import End, Outcome


def failing(times, error):
    left = [times]

    def send():
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return "answer"

    return send


def with_tries(error, tries):
    error.tries = tries
    return error


def test_a_transient_failure_is_tried_until_it_passes():
    with clock.use(clock.FakeClock()) as fake:
        assert call_with_retries(failing(3, with_tries(ModelUnreachable("x"), 6)), provider="p", model="m") == "answer"
    assert len(fake.slept) == 3
    assert fake.slept == sorted(fake.slept)


def test_the_error_stands_after_its_tries():
    with clock.use(clock.FakeClock()) as fake, pytest.raises(ModelUnreachable, match="the reason"):
        call_with_retries(failing(99, with_tries(ModelUnreachable("the reason"), 4)), provider="p", model="m")
    assert len(fake.slept) == 3


def test_an_overflow_is_raised_at_once():
    with clock.use(clock.FakeClock()) as fake, pytest.raises(ContextOverflow):
        call_with_retries(failing(1, ContextOverflow("too long")), provider="p", model="m")
    assert fake.slept == []


def test_what_the_server_asks_for_is_waited_for_and_not_less():
    with clock.use(clock.FakeClock()) as fake:
        call_with_retries(failing(1, with_tries(RateLimited("slow", retry_after=11.05), 8)), provider="p", model="m")
    assert 11.05 <= sum(fake.slept) <= 11.05 * 1.05 + 0.01


def test_backoff_doubles_and_is_capped():
    waits = [delay(ModelUnreachable("x"), attempt) for attempt in range(1, 12)]
    assert 0.75 <= waits[0] <= 1.0
    assert 3.0 <= waits[2] <= 4.0
    assert max(waits) <= 30.0


def test_a_wait_of_nothing_still_backs_off():
    assert delay(RateLimited("slow", retry_after=0.0), 3) > 1.0


def test_each_wait_is_announced():
    heard = Heard()
    with clock.use(clock.FakeClock()):
        call_with_retries(
            failing(2, with_tries(RateLimited("slow down", retry_after=5), 8)), provider="p", model="m", events=heard
        )
    waits = heard.named("model_wait")
    assert [wait["retry"] for wait in waits] == [1, 2]
    assert all(wait["seconds"] >= 5 and wait["why"] == "slow down" and wait["provider"] == "p" for wait in waits)


def test_a_stop_while_waiting_ends_the_wait():
    outcome = Outcome(End.STOPPED)
    with clock.use(clock.FakeClock()) as fake, pytest.raises(Interrupted) as stopped:
        interruptible_sleep(100, Stop(outcome, looks=3))
    assert stopped.value.outcome is outcome
    assert fake.slept == [1.0, 1.0, 1.0]


def test_each_kind_of_failure_has_its_own_tries():
    script = [with_tries(ModelUnreachable("x"), 3), with_tries(RateLimited("y", retry_after=1), 3)] * 2

    def send():
        if script:
            raise script.pop(0)
        return "answer"

    with clock.use(clock.FakeClock()):
        assert call_with_retries(send, provider="p", model="m") == "answer"
