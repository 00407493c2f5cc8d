"""A place with a clock that a test moves, and its long-term memory."""

from contextlib import closing

import pytest

from agent import clock
from agent.wiring.memory import open_memory


@pytest.fixture
def here(place):
    made = place()
    with clock.use(clock.FakeClock()) as made.time:
        yield made


@pytest.fixture
def memory(here):
    with closing(open_memory(here.settings, "a test")) as store:
        yield store
