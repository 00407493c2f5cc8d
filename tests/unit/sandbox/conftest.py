from uuid import uuid4

import pytest
from rooms import Room, settings

from agent.sandbox import probe


@pytest.fixture
def isolated():
    if not probe(settings()).ok:
        pytest.skip("commands cannot be isolated on this machine")


@pytest.fixture
def room(tmp_path, isolated):
    return Room(tmp_path, str(uuid4()))
