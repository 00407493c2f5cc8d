"""A place with a tracker and a ledger."""

import pytest
from run_home import Place


@pytest.fixture
def place(tmp_path):
    made = []

    def make(extra=""):
        made.append(Place(tmp_path, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()
