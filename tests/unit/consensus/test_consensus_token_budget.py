"""What reviewers said fits its budget; no reviewer disappears, and objections are cut last."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.consensus.errors import BudgetExceeded
from agent.consensus.token_budget import (
    ConsensusContext,
    ContextMeta,
    ReviewerStatement,
    TokenBudgetManager,
    conservative,
)
from agent.tokens import counter_for

COUNT = conservative(counter_for("gpt-4o"))
MANAGER = TokenBudgetManager(COUNT)


def enforce(thinking, debates=(), budget=8192):
    return MANAGER.enforce_budget(ConsensusContext(tuple(thinking), tuple(debates), ContextMeta("voting", budget)))


text = st.text(max_size=600) | st.text("abc. ", max_size=600) | st.text("日本語。", max_size=300)
votes = st.sampled_from(["APPROVE", "DENY", "CONDITIONAL"])


def statements(name):
    return st.builds(ReviewerStatement, st.just(name), votes, text, st.lists(text, max_size=5).map(tuple))


contexts = st.tuples(
    st.tuples(*map(statements, ("R1", "R2", "R3"))),
    st.tuples(*map(statements, ("R1", "R2", "R3"))) | st.just(()),
    st.integers(60, 2000),
)


@settings(max_examples=60, deadline=None)
@given(contexts)
def test_the_text_is_within_the_budget_and_names_each_reviewer_with_its_vote(context):
    thinking, debates, budget = context
    result = enforce(thinking, debates, budget)
    assert COUNT(result.context) <= budget
    for one in (*thinking, *debates):
        assert f"{one.name}: {one.vote}" in result.context
    whole = "\n\n".join(one.lines() for one in (*thinking, *debates))
    assert result.reduced_tokens == COUNT(whole) - COUNT(result.context)
    assert (result.context == whole) == (not result.logs)


@settings(max_examples=60, deadline=None)
@given(contexts)
def test_an_objection_is_cut_only_when_no_reason_is_left(context):
    thinking, debates, budget = context
    result = enforce(thinking, debates, budget)
    if "objections" in [one.reason for one in result.logs]:
        # nothing of a reason is there: each line is a vote or an objection of its reviewer
        bare = [ReviewerStatement(one.name, one.vote) for one in (*thinking, *debates)]
        allowed = sum(len(one.objections) for one in (*thinking, *debates))
        assert result.context.count("\n\n") >= len(bare) - 1
        kept = enforce(
            [ReviewerStatement(one.name, one.vote, "", one.objections) for one in thinking],
            [ReviewerStatement(one.name, one.vote, "", one.objections) for one in debates],
            10**6,
        )
        assert COUNT(kept.context) > budget or allowed == 0
        return
    for one in (*thinking, *debates):
        for objection in one.objections:
            assert f"- {objection}" in result.context


def test_the_floor_keeps_a_quiet_reviewer_beside_two_loud_ones():
    loud = tuple(f"Problem number {number} is that it is wrong in many ways." for number in range(40))
    quiet = ("The key is logged in plain text at a.py:3.",)
    result = enforce(
        [ReviewerStatement(name, "DENY", "x " * 500, loud) for name in ("R1", "R2")]
        + [ReviewerStatement("R3", "DENY", "z", quiet)],
        budget=300,
    )
    assert quiet[0] in result.context
    assert COUNT(result.context) <= 300
    assert [one.reason for one in result.logs][-1] == "objections"


def test_the_steps_are_taken_in_order_and_only_as_far_as_needed():
    reason = "It is wrong. It rounds twice. " + "Here is a long explanation of that. " * 30
    said = [ReviewerStatement(name, "DENY", reason, ("a.py:3: It rounds twice.",)) for name in ("R1", "R2", "R3")]
    assert enforce(said, said, 8192).logs == ()
    names = {budget: [one.reason for one in enforce(said, said, budget).logs] for budget in (1200, 200, 75, 50)}
    assert names == {
        1200: ["duplicates"],
        200: ["duplicates", "key_sentences"],
        75: ["duplicates", "key_sentences", "reasons"],
        50: ["duplicates", "key_sentences", "reasons", "objections"],
    }
    (line, *_) = enforce(said, said, 200).logs
    assert line.to_dict()["before"] > line.to_dict()["after"]
    assert "round" not in str(line.to_dict())


def test_votes_that_do_not_fit_are_an_error_with_the_key():
    with pytest.raises(BudgetExceeded, match=r"raise consensus\.token_budget"):
        enforce([ReviewerStatement(f"R{number}", "CONDITIONAL") for number in range(3)], budget=5)


def test_nothing_said_needs_nothing():
    assert enforce([], [], 0).context == ""


def test_the_count_is_never_below_a_token_for_three_bytes():
    assert COUNT("x" * 300) >= 100
    assert COUNT("日" * 100) >= 100
