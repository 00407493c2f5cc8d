"""The switch of the long tests as a fixture; at import time use `length.LONG` and `length.either`."""

import pytest
from length import LONG, TOLD


@pytest.fixture(scope="session")
def long():
    """Whether the long form runs (`scripts/crash --long`)."""
    return LONG


def pytest_terminal_summary(terminalreporter):
    """Print the numbers of points, states and examples; docs/crash.md has the figures of a long run."""
    for line in TOLD:
        terminalreporter.write_line(f"crash: {line}")
