"""What a daemon does when it is told to end, and when a round of its work fails."""

import faulthandler
import signal
from functools import partial

import pytest

from agent import clock
from agent.daemon.daemon import SAID_AGAIN, Daemon
from agent.errors import LedgerError


def test_a_signal_in_the_middle_of_a_look_up_from_the_wait_locks_nothing(place):
    """The handler runs in the thread that it interrupts, which may hold the lock of an event that it waits on."""
    here = place()
    daemon = Daemon(here.settings, here.events)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    faulthandler.dump_traceback_later(60, exit=True)  # a lock that is never given back would be waited for for ever
    try:
        daemon._listen()
        with daemon.lost._cond:
            signal.raise_signal(signal.SIGTERM)  # to this thread, which runs the handler before it goes on
            assert daemon.drain
            signal.raise_signal(signal.SIGINT)
            assert daemon.kill
        assert daemon.waker.wait(60), "and the wait is over at once"
        assert not daemon.waker.wait(0)
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


class Failing:
    """A supervisor, and a wiring, whose next rounds fail by these."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def step(self, *, woken=True):
        if (error := self.errors.pop(0)) is not None:
            raise error

    @property
    def ledger(self):
        self.step()
        return self

    def due_notifications(self):
        return []


READ_ONLY = OSError(30, "Read-only file system", "/contexts/running/u/lock")
AWAY = LedgerError("the ledger is away")
ROUNDS = [READ_ONLY, None, READ_ONLY, AWAY, READ_ONLY, AWAY, None]


@pytest.mark.parametrize("part", ["supervisor", "ledger"])
def test_a_round_that_fails_ends_nothing_and_is_not_said_each_second(place, part):
    """A disk that has become read-only stays so for hours: a line each second would be the next thing that fills it."""
    here = place()
    daemon = Daemon(here.settings, here.events)
    act = partial(daemon._step_supervisor, woken=True) if part == "supervisor" else daemon._send_notifications
    with clock.use(clock.FakeClock()) as time:
        for _ in range(3):
            done = [act(Failing(error)) for error in ROUNDS]
            assert part == "ledger" or done == ROUNDS
        said = [(fields["source"], fields["error"]) for fields in here.named("poll_failed")]
        assert said == [(part, str(READ_ONLY)), (part, str(AWAY))]
        time.move(SAID_AGAIN)
        act(Failing(AWAY))
    assert len(here.named("poll_failed")) == 3, "it lasts"
