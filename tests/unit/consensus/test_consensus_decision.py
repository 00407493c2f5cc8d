"""The decision of all votes, written out."""

import itertools

import pytest

from agent.consensus import Decision, VotePayload
from agent.consensus.citations import CheckedVote
from agent.consensus.decision import EXIT_CODES, ConsensusDecision, decide, final_vote
from agent.consensus.votes import Finding, Vote

PERSONAS = ("correctness", "safety", "upkeep")
LETTERS = {"A": Vote.APPROVE, "C": Vote.CONDITIONAL, "D": Vote.DENY}
WORDS = {"A": "APPROVED", "D": "DENIED", "C": "CONDITIONAL", "F": "FAILED_SAFE"}

# correctness, safety, upkeep; "-" abstains; "!" is a DENY with a finding in the change (of safety: a veto).  Quorum 2 of 3.
ROWS = """
AAA=A AAC=C AAD=A ACA=C ACC=C ACD=C ADA=A ADC=C ADD=D
CAA=C CAC=C CAD=C CCA=C CCC=C CCD=C CDA=C CDC=C CDD=D
DAA=A DAC=C DAD=D DCA=C DCC=C DCD=D DDA=D DDC=D DDD=D
-AA=A -AC=C -AD=F -CA=C -CC=C -CD=F -DA=F -DC=F -DD=D
A-A=F A-C=F A-D=F C-A=F C-C=F C-D=F D-A=F D-C=F D-D=D
AA-=A AC-=C AD-=F CA-=C CC-=C CD-=F DA-=F DC-=F DD-=D
A--=F C--=F D--=F -A-=F -C-=F -D-=F --A=F --C=F --D=F
---=F
A!A=D A!C=D A!D=D C!A=D C!C=D C!D=D D!A=D D!C=D D!D=D
-!A=D -!C=D -!D=D A!-=D C!-=D D!-=D -!-=F
!AA=A AA!=A !CA=C !A-=F
"""
TABLE = dict(one.split("=") for one in ROWS.split())


def cast(letter, persona):
    if letter == "!":
        return CheckedVote(VotePayload(Vote.DENY, "See.", (), (Finding("a.py", 1, "It leaks."),)))
    conditions = (f"{persona} wants a test.",) if letter == "C" else ()
    return CheckedVote(VotePayload(LETTERS[letter], "So it is.", conditions))


@pytest.mark.parametrize(("letters", "result"), TABLE.items())
def test_each_set_of_votes_has_its_decision(letters, result):
    votes = {name: cast(letter, name) for name, letter in zip(PERSONAS, letters, strict=True) if letter != "-"}
    decision, reason, conditions = decide(votes, quorum=2, veto=("safety",))
    assert decision.value == WORDS[result]
    assert reason
    expected = [f"{name} wants a test." for name, letter in zip(PERSONAS, letters, strict=True) if letter == "C"]
    assert list(conditions) == (expected if result == "C" else [])


def test_the_table_is_complete():
    triples = {"".join(one) for one in itertools.product("ACD", repeat=3)}
    assert len(triples) == 27
    assert {"".join(one) for one in itertools.product("ACD-", repeat=3)} <= TABLE.keys()


@pytest.mark.parametrize(
    ("quorum", "letters", "result"),
    [
        *((3, "AAA", "A"), (3, "AAD", "F"), (3, "AAC", "C"), (3, "DDD", "D"), (3, "DDA", "F"), (3, "AA-", "F")),
        *((1, "A--", "A"), (1, "AAD", "D"), (1, "--C", "C"), (1, "---", "F")),
    ],
)
def test_other_quorums(quorum, letters, result):
    votes = {name: cast(letter, name) for name, letter in zip(PERSONAS, letters, strict=True) if letter != "-"}
    assert decide(votes, quorum=quorum)[0].value == WORDS[result]


def test_without_a_veto_persona_the_majority_decides():
    votes = {"correctness": cast("A", ""), "safety": cast("!", ""), "upkeep": cast("A", "")}
    assert decide(votes, quorum=2, veto=())[0] is Decision.APPROVED
    del votes["safety"]
    assert decide(votes, quorum=2, veto=())[0] is Decision.APPROVED


@pytest.mark.parametrize("quorum", [1, 2])
def test_the_vote_of_each_persona_with_a_veto_is_needed_for_an_approval(quorum):
    votes = {"correctness": cast("A", ""), "safety": cast("A", "")}
    decision, reason, conditions = decide(votes, quorum=quorum, veto=("upkeep", "safety"))
    assert (decision, conditions) == (Decision.FAILED_SAFE, ())
    assert reason == "upkeep has a veto and did not vote"


def test_the_same_condition_is_listed_once():
    votes = {name: CheckedVote(VotePayload(Vote.CONDITIONAL, "So.", ("Add a test.",))) for name in PERSONAS}
    assert decide(votes, quorum=2)[2] == ("Add a test.",)


OLD, NEW = Finding("a.py", 1, "It leaks."), Finding("a.py", 9, "Here it is closed.")


@pytest.mark.parametrize(
    ("before", "after", "findings", "counts", "kept"),
    [
        ("DENY", "APPROVE", (), "DENY", True),
        ("DENY", "APPROVE", (OLD,), "DENY", True),
        ("DENY", "APPROVE", (NEW,), "APPROVE", False),
        ("DENY", "APPROVE", (OLD, NEW), "APPROVE", False),
        ("DENY", "DENY", (), "DENY", False),
        ("DENY", "CONDITIONAL", (), "CONDITIONAL", False),
        ("CONDITIONAL", "APPROVE", (), "APPROVE", False),
        ("APPROVE", "DENY", (), "DENY", False),
        (None, "APPROVE", (), "APPROVE", False),
    ],
)
def test_a_denial_is_taken_back_only_for_new_evidence(before, after, findings, counts, kept):
    conditions = ("Do it.",) if after == "CONDITIONAL" else ()
    first = None if before is None else CheckedVote(VotePayload(Vote(before), "First.", (), (OLD,)))
    final = CheckedVote(VotePayload(Vote(after), "Then.", conditions, findings))
    vote, was_kept = final_vote(first, final)
    assert (vote.vote.vote.value, was_kept) == (counts, kept)


@pytest.mark.parametrize(
    ("before", "criticised", "findings", "counted"),
    [
        (Vote.DENY, (), (), (OLD,)),
        (Vote.DENY, (NEW,), (), (OLD,)),
        (Vote.DENY, (), (NEW,), (NEW,)),
        (Vote.APPROVE, (NEW,), (), (NEW,)),
        (Vote.APPROVE, (OLD,), (NEW,), (NEW,)),
    ],
)
def test_a_denial_that_does_not_repeat_its_evidence_is_still_a_veto(before, criticised, findings, counted):
    first = CheckedVote(VotePayload(before, "First.", (), (OLD,)))
    final = CheckedVote(VotePayload(Vote.DENY, "As I said.", (), findings))
    vote, was_kept = final_vote(first, final, criticised)
    assert (vote.vote.findings, vote.vote.reason, was_kept) == (counted, "As I said.", False)
    votes = {"correctness": cast("A", ""), "safety": vote, "upkeep": cast("A", "")}
    assert decide(votes, quorum=2, veto=("safety",))[0] is Decision.DENIED


def test_each_decision_has_its_exit_code():
    assert {decision.value: code for decision, code in EXIT_CODES.items()} == {
        "APPROVED": 0,
        "DENIED": 10,
        "CONDITIONAL": 11,
        "FAILED_SAFE": 12,
    }
    assert ConsensusDecision(Decision.FAILED_SAFE).exit_code == 12
