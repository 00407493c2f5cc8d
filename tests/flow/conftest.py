"""Homes for whole runs, closed with all their processes when the test is over."""

import pytest
from flow_home import FlowHome
from forge_home import HOMES


@pytest.fixture
def home(tmp_path):
    """`home(plays, **more)` makes a home with a local tracker (`FlowHome`)."""
    made = []

    def make(plays=None, **more):
        made.append(FlowHome(tmp_path, plays, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def homes(tmp_path):
    """`homes(kind, plays, **more)` makes a home with issues on a forge of that kind (`forge_home.HOMES`)."""
    made = []

    def make(kind, plays, **more):
        made.append(HOMES[kind](tmp_path, plays, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
