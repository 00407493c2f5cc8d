"""Every compaction strategy keeps the contract of agent/window/base.py."""

import pytest

from agent.config.sections import ContextStorage
from agent.window.base import MEANS, STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_a_strategy_names_known_means_each_once(name):
    means = STRATEGIES.load(name)().steps()
    assert means
    assert set(means) <= set(MEANS)
    assert len(means) == len(set(means))


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_the_configuration_takes_it(name):
    assert ContextStorage(strategy=name).strategy == name
