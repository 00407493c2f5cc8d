"""A repository on our loopback GitHub for the tests of this room."""

import pytest
from forges.github_place import GitHubPlace

from agent import clock


@pytest.fixture
def github(tmp_path):
    place = GitHubPlace(tmp_path)
    yield place
    place.close()


@pytest.fixture
def slept():
    """Time that moves only when somebody waits; the waits."""
    with clock.use(clock.FakeClock()) as fake:
        yield fake.slept
