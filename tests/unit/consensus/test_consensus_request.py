"""A request to a reviewer, whole: within the budget, with the change uncut and every reviewer in it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from length import either
from reviewing import DIFF

from agent import prompts
from agent.consensus.errors import BudgetExceeded
from agent.consensus.material import PERSONAS, SEES, Material, prepare
from agent.consensus.phases import Phase
from agent.consensus.request import RequestBuilder
from agent.consensus.token_budget import ReviewerStatement, conservative
from agent.tokens import counter_for

COUNT = conservative(counter_for("bench-model"))
ANSWER = 400
ENOUGH = 3200
"""Tokens that are enough for these questions and changes."""


def builder(material, persona="correctness", budget=4000, plain=False):
    prepared = prepare(material, lambda text: text)
    return RequestBuilder(persona, f"reviewer_{persona}", prepared, prompts, COUNT, budget, ANSWER, plain=plain)


def whole(asked, *, plain):
    """Tokens of a request with its answer, counted again."""
    schema = 0 if plain else COUNT(json.dumps(asked.tool, separators=(",", ":")))
    return COUNT(asked.system) + COUNT(asked.text) + schema + ANSWER


text = st.text("abc d.\n", max_size=3000) | st.text(max_size=800) | st.text("日本語。", max_size=600)
materials = st.builds(
    Material, st.text("abc ?", max_size=200), text, st.sampled_from(["", DIFF, DIFF * 5]), text, text, text
)


def statement(name):
    return st.builds(
        ReviewerStatement,
        st.just(name),
        st.sampled_from(["DENY", "APPROVE"]),
        text,
        st.lists(text, max_size=5).map(tuple),
    )


said = st.tuples(*map(statement, ("You", "R1", "R2")))


@settings(max_examples=either(37, 150), deadline=None)
@given(
    materials,
    st.sampled_from(PERSONAS),
    st.sampled_from([Phase.THINKING, Phase.DEBATE, Phase.VOTING]),
    said,
    said | st.just(()),
    st.integers(1000, 8192),
    st.booleans(),
    st.lists(st.sampled_from(["vote: enum", "$: json"]), max_size=2),
)
def test_no_request_is_over_the_budget_and_nobody_is_gone(
    material, persona, phase, thinking, debates, budget, plain, errors
):
    statements = ((), ()) if phase is Phase.THINKING else (thinking, debates)
    for most in (budget, max(budget, ENOUGH)):
        made = builder(material, persona, most, plain)
        try:
            asked = made.build(phase, *statements, errors)
        except BudgetExceeded:
            if most < ENOUGH:
                continue
            raise
        assert asked.tokens <= most
        assert whole(asked, plain=plain) <= most
        for one in (one for part in statements for one in part):
            assert f"{one.name}: {one.vote}" in asked.text
        for name in made.prepared.parts.keys() & {"question", "diff"}:
            assert made.prepared.fenced(name, made.prepared.parts[name]) in asked.text
        for name in set(made.prepared.parts) - set(SEES[persona]):
            assert f'source="{name}"' not in asked.text
        for error in errors:
            assert error in asked.text


def test_inputs_are_cut_before_objections():
    objection = "calc.py:3: " + "This is the objection, and it is long. " * 8
    thinking = [ReviewerStatement(name, "DENY", "", (objection,)) for name in ("You", "R1", "R2")]
    material = Material("Ready?", "The issue. " * 500, DIFF, "The check. " * 500)
    asked = builder(material, budget=2600).build(Phase.VOTING, thinking)
    assert asked.text.count(objection.strip()) == 3
    assert "The issue. " * 100 not in asked.text
    assert {log.reason for log in asked.logs} == {"input issue", "input checks"}


def test_a_part_without_room_is_named():
    long = "The issue. " * 2000
    made = builder(Material("Ready?", long, DIFF, long), budget=100_000)
    fixed = made.build(Phase.THINKING).tokens - COUNT(long) * 2
    asked = builder(Material("Ready?", long, DIFF, long), budget=fixed + 60).build(Phase.THINKING)
    assert set(asked.left_out) == {"issue", "checks"}
    assert "There was no room for: What was asked for, What the checks said." in asked.text


def test_a_change_that_does_not_fit_is_an_error_with_both_numbers():
    with pytest.raises(BudgetExceeded, match=r"has \d+ tokens, \d+ of them the change, and consensus\.token_budget"):
        builder(Material("Ready?", diff=DIFF * 100)).build(Phase.THINKING)
