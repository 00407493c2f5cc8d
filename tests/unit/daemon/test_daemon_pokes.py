"""How many polls the requests to poll at once cause."""

from agent import clock
from agent.daemon.pokes import LEAST_SECONDS, Pokes
from agent.intake.interval import PollingInterval


def test_one_request_is_obeyed_at_once_and_many_make_one_more_poll():
    with clock.use(clock.FakeClock()) as time:
        time.move(100)
        pokes = Pokes(60)
        assert (pokes.begin_poll(), pokes.seconds()) == (False, float("inf"))
        pokes.poke()
        assert (pokes.seconds(), pokes.begin_poll(), pokes.begin_poll()) == (0, True, False)
        for _ in range(50):
            pokes.poke()
        assert (pokes.seconds(), pokes.begin_poll()) == (LEAST_SECONDS, False)
        time.move(LEAST_SECONDS)
        assert (pokes.begin_poll(), pokes.begin_poll()) == (True, False)


def test_a_flood_makes_fewer_polls_with_time_and_a_single_request_after_it_is_obeyed_at_once():
    with clock.use(clock.FakeClock()) as time:
        time.move(100)
        pokes, polls = Pokes(60), 0
        for _ in range(36_000):  # an hour, ten requests a second
            pokes.poke()
            polls += pokes.begin_poll()
            time.move(0.1)
        assert 60 <= polls <= 66
        time.move(120)
        assert pokes.begin_poll()  # the last of them
        time.move(120)
        pokes.poke()
        assert (pokes.begin_poll(), pokes.spacing) == (True, LEAST_SECONDS)


def test_a_request_ends_the_interval_of_an_idle_forge_but_not_a_pause_that_the_forge_asked_for():
    with clock.use(clock.FakeClock()) as time:
        interval = PollingInterval(60, 300)
        for _ in range(10):
            interval.polled(happened=False)
        assert interval.interval == 300
        interval.poke()
        assert (interval.is_due(), interval.interval) == (True, 60)
        interval.polled(happened=False, pause=900)  # Retry-After
        interval.poke()
        assert not interval.is_due()
        time.move(899)
        interval.poke()
        assert not interval.is_due()
        time.move(1)
        assert interval.is_due()
