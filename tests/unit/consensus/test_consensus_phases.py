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


PAIRS = [(old.value, new.value) for old, new in itertools.product(Phase, repeat=2)]


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_a_phase_is_followed_by_those_of_the_table(old, new):
    assert advance(Phase(old), Phase(new)) is Phase(new)


@pytest.mark.parametrize(("old", "new"), sorted(set(PAIRS) - LEGAL))
def test_any_other_phase_after_it_is_an_error(old, new):
    with pytest.raises(IllegalTransition, match=f"phase {new} cannot follow {old}; allowed is "):
        advance(Phase(old), Phase(new))
