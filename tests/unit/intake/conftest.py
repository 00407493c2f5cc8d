"""A place of each host on loopback with a clock that a test moves: for the tests of polls.

Imports are inside the functions, because some tests of intake use none of them.
"""

import pytest


@pytest.fixture
def time():
    from agent import clock

    with clock.use(clock.FakeClock(clock.now())) as fake:
        yield fake


@pytest.fixture
def places():
    """The class of the place by the name of its host; a module replaces it for places of another kind."""
    from forges.real_hosts import PLACES

    return PLACES


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def forge_place(request, tmp_path, places, time):
    made = places[request.param](tmp_path / "forge")
    yield made
    made.forge.close()
    made.close()


@pytest.fixture
def watching(forge_place, place, time):
    """The poller of the place, with a ledger of its own (`watched_place.Watching`)."""
    from watched_place import Watching

    made = Watching(forge_place, place())
    made.time = time
    yield made
    made.ledger.close()
