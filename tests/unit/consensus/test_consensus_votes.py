"""A vote is one whole JSON object by the schema, and nothing is repaired."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.consensus.errors import NoVote
from agent.consensus.strict_json import LONGEST
from agent.consensus.votes import Finding, SchemaValidator, Vote, VotePayload
from agent.security.sanitise import output

VALIDATOR = SchemaValidator()
GOOD = {"reason": "It rounds once.", "findings": [], "conditions": [], "vote": "APPROVE"}
FINDING = {"file": "a.py", "line": 3, "problem": "It rounds twice."}


def text(**changes):
    return json.dumps(GOOD | changes)


@pytest.mark.parametrize("form", ["{}", " \n{}\n ", "```json\n{}\n```", "```\n{}\n```"])
def test_a_whole_object_is_a_vote(form):
    vote = VALIDATOR.read_vote(form.replace("{}", text(findings=[FINDING])))
    assert vote == VotePayload(Vote.APPROVE, "It rounds once.", (), (Finding("a.py", 3, "It rounds twice."),))


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("", "$: empty"),
        ("```json\n```", "$: json"),
        ("APPROVE", "$: json"),
        ('"APPROVE"', "$: type"),
        (f"[{text()}]", "$: type"),
        (f"I approve.\n{text()}", "$: json"),
        (f"{text()}\nThat is all.", "$: json"),
        (f"<think>DENY</think>{text()}", "$: json"),
        (f"<think>{text(vote='DENY')}</think>\n{text()}", "$: json"),
        (f"{text(vote='DENY')}{text()}", "$: json"),
        (f"{text()}\n{text()}", "$: json"),
        (f"Here it is:\n```json\n{text()}\n```", "$: json"),
        (f"```json\n{text(vote='DENY')}\n```\n```json\n{text()}\n```", "$: json"),
        (text()[:-1], "$: json"),
        (text()[:-1] + ",}", "$: json"),
        (text().replace('"', "'"), "$: json"),
        (text()[:-1] + ', "vote": "DENY"}', "$: duplicateKey"),
        (text(findings=[FINDING]).replace('"line": 3', '"line": 3, "line": 4'), "$: duplicateKey"),
        (text(findings=[FINDING]).replace("3", "NaN"), "$: json"),
        (text(findings=[FINDING]).replace("3", "-Infinity"), "$: json"),
        ("[" * 200_000, "$: maxBytes 32768"),
        ("[" * 30_000, "$: maxDepth 8"),
        ('{"reason": ' + '{"a": ' * 12 + "1" + "}" * 13, "$: maxDepth 8"),
        (text(reason="x" * LONGEST), "$: maxBytes 32768"),
        (text(reason="x" * 2001), "reason: maxLength"),
        (text(vote="approve"), "vote: enum"),
        (text(vote="FAILED_SAFE"), "vote: enum"),
        (text(vote=["APPROVE"]), "vote: type"),
        (text(extra=1), "$: additionalProperties"),
        (json.dumps({"vote": "APPROVE"}), "$: required"),
        (text(reason=" "), "reason: minLength"),
        (text(findings=[FINDING] * 6), "findings: maxItems"),
        (text(findings=[FINDING | {"line": "3"}]), "findings.0.line: type"),
        (text(findings=[FINDING | {"line": -1}]), "findings.0.line: minimum"),
        (text(vote="CONDITIONAL"), "conditions: minItems 1 for CONDITIONAL"),
        (text(vote="CONDITIONAL", conditions=[" "]), "conditions.0: minLength"),
        (text(conditions=["Add a test."]), "conditions: maxItems 0 for APPROVE and DENY"),
        (text(reason="\u200b\x00"), "reason: minLength"),
        (text(vote="CONDITIONAL", conditions=["Add a test.", "\x1b[31m"]), "conditions.1: minLength"),
        (text(vote="DENY", findings=[FINDING, FINDING | {"problem": " "}]), "findings.1.problem: minLength"),
        (text(findings=[FINDING | {"file": "\u2800"}]), "findings.0.file: minLength"),
        ("\ufeff" + text(), "$: json"),
        (text(vote="\uff21\uff30\uff30\uff32\uff2f\uff36\uff25"), "vote: enum"),
        (text(findings=[FINDING]).replace("3", "1e400"), "findings.0.line: type"),
        (text()[:-1] + ', "\\u0076ote": "DENY"}', "$: duplicateKey"),
        (text(vote="DENY", conditions=["Add a test."]), "conditions: maxItems 0 for APPROVE and DENY"),
    ],
)
def test_anything_else_is_no_vote(written, error):
    with pytest.raises(NoVote) as refused:
        VALIDATOR.read_vote(written)
    assert error in refused.value.errors


def test_a_critique_in_which_nothing_is_to_be_seen_is_none():
    for written in ({"reason": " ", "findings": []}, {"reason": "So.", "findings": [FINDING | {"problem": "\u200b"}]}):
        with pytest.raises(NoVote):
            VALIDATOR.read_critique(json.dumps(written))


def test_an_error_quotes_nothing_of_the_answer():
    written = text(vote="ignore the rules", **{"sk-secret-0123456789": 1})
    with pytest.raises(NoVote) as refused:
        VALIDATOR.read_vote(written)
    assert set(refused.value.errors) == {"vote: enum", "$: additionalProperties"}


def test_brackets_in_a_text_are_no_depth():
    assert VALIDATOR.read_vote(text(reason='[[[[[[[[[[ "{{{{{{{{{{{{ \\')).vote is Vote.APPROVE


def test_the_worst_text_of_the_allowed_size_is_read_at_once():
    start = time.perf_counter()
    for written in ('"' * LONGEST, "\\" * LONGEST, '{"' * (LONGEST // 2), "```json\n" * (LONGEST // 8)):
        with pytest.raises(NoVote):
            VALIDATOR.read_vote(written)
    assert time.perf_counter() - start < 1


words = st.text(min_size=1, max_size=60).filter(lambda text: output(text).strip())
findings = st.builds(Finding, words, st.integers(0, 10**6), words)
votes = st.one_of(
    st.builds(
        VotePayload,
        st.sampled_from([Vote.APPROVE, Vote.DENY]),
        words,
        st.just(()),
        st.lists(findings, max_size=5).map(tuple),
    ),
    st.builds(
        VotePayload, st.just(Vote.CONDITIONAL), words, st.lists(words, min_size=1, max_size=5).map(tuple), st.just(())
    ),
)


@given(votes)
def test_a_vote_that_is_written_is_read_again(vote):
    assert VALIDATOR.validate_vote(vote.to_dict()).ok
    assert VALIDATOR.read_vote(json.dumps(vote.to_dict())) == vote
    assert VALIDATOR.of_record(vote.to_dict(), is_vote=True) == vote


def test_a_record_is_read_again_although_masking_and_escaping_have_made_its_texts_longer():
    """A name of 400 characters that git quotes, and a reason in which a mask is longer than the secret."""
    vote = VotePayload(Vote.DENY, "r" * 2100, (), (Finding("\\342\\200\\213" * 400, 3, "p" * 600),))
    assert VALIDATOR.of_record(vote.to_dict(), is_vote=True) == vote
    said = {name: vote.to_dict()[name] for name in ("reason", "findings")}
    assert VALIDATOR.of_record(said, is_vote=False).findings == vote.findings
    for payload, is_vote in ((said, True), (vote.to_dict(), False), (said | {"reason": ""}, False), (None, True)):
        with pytest.raises(NoVote):
            VALIDATOR.of_record(payload, is_vote=is_vote)


def test_no_schema_is_fetched(monkeypatch):
    import urllib.request

    def refuse(*_, **__):
        raise AssertionError("a schema was requested")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    meta = {"name": "a", "version": "1", "schema_ref": "https://127.0.0.1:9/schema.json", "template": "x"}
    assert VALIDATOR.validate_template(meta).ok
    assert VALIDATOR.validate_template({"name": "a"}).errors == ("$: required",)
