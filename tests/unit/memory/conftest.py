"""A memory in a folder of its own."""

import pytest

from agent.config import Settings
from agent.memory import MemoryStore


@pytest.fixture
def store(tmp_path):
    made = MemoryStore(tmp_path, Settings().memory)
    yield made
    made.close()
