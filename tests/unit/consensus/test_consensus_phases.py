"""The table of phases."""

import itertools

import pytest

from agent.consensus.errors import IllegalTransition
from agent.consensus.phases import Phase, advance

LEGAL = {
    ("thinking", "debate"),
    ("thinking", "voting"),
    ("thinking", "failed_safe"),
    ("debate", "debate"),
    ("debate", "voting"),
    ("debate", "failed_safe"),
    ("voting", "completed"),
    ("voting", "failed_safe"),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(Phase, repeat=2)))
def test_each_pair_of_phases_is_a_step_or_an_error(old, new):
    if (old.value, new.value) in LEGAL:
        assert advance(old, new) is new
        return
    with pytest.raises(IllegalTransition, match=f"phase {new} cannot follow {old}; allowed is "):
        advance(old, new)
