"""The one decision about a run that is over, row by row."""

import pytest

from agent.forge.base import PullRef
from agent.values import End, Outcome, Status
from agent.work.check_outline import outline
from agent.work.verify import Verdict
from agent.worker.delivery_report import Report
from agent.worker.final_state import FinalState
from agent.worker.outcome import decide, is_mendable, review_code

PULL = PullRef("3", "https://forge.example/pulls/3", "T", "open", False, "makimono/7-0123abcd", "main")


def verdict(code, text="boom", **more):
    return Verdict("make test", code, code == 0, 1.0, text, outline=outline(text), **more)


def report(**more):
    return Report("makimono/7-0123abcd", **{"changed": True, "pull": PULL, "base": "main", **more})


LATE = verdict(-9, timed_out=True)
RED = ("failed", "verify_failed", False, True)
UNABLE = verdict(None, "no sandbox")


@pytest.mark.parametrize(
    ("end", "given", "status", "code", "ready", "mendable"),
    [
        (End.FINISHED, report(), "completed", "", True, False),
        (End.FINISHED, report(verdict=verdict(0)), "completed", "", True, False),
        (End.FINISHED, report(pull=None), "completed", "", False, False),
        (End.FINISHED, report(review={"decision": "APPROVED"}), "completed", "", True, False),
        (End.FINISHED, report(review={"decision": "DENIED"}), "completed", "", False, False),
        (End.FINISHED, report(review={"decision": "CONDITIONAL"}), "completed", "", False, False),
        (End.FINISHED, report(review={"decision": "FAILED_SAFE"}), "completed", "", False, False),
        (End.FINISHED, report(verdict=verdict(1), review={"decision": "APPROVED"}), *RED),
        (End.FINISHED, report(findings=("a",), review={"decision": "APPROVED"}), "failed", "policy", False, True),
        (End.FINISHED, Report("b"), "completed", "", False, False),
        (End.FINISHED, report(left_behind=("lib/a.py",)), "completed", "", True, True),
        (End.FINISHED, Report("b", left_behind=("lib/a.py",)), "completed", "", False, True),
        (End.ANSWERED, Report("b", left_behind=("lib/a.py",)), "completed", "", False, False),
        (End.FINISHED, report(findings=("a secret",)), "failed", "policy", False, True),
        (End.FINISHED, report(rejected="no", code="push_rejected"), "failed", "push_rejected", False, True),
        (End.FINISHED, report(rejected="no", code="push_too_large"), "failed", "push_too_large", False, True),
        (End.FINISHED, report(rejected="no", code="push_forbidden"), "failed", "push_forbidden", False, False),
        (End.FINISHED, report(conflicts=("a.py",)), "failed", "conflict", False, True),
        (End.FINISHED, report(verdict=verdict(1)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(1), before=verdict(0)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(1), before=verdict(1)), "completed", "", True, True),
        (End.FINISHED, report(verdict=verdict(1), before=verdict(2)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(1), before=verdict(1, "bang")), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(1), before=LATE), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(127), before=verdict(0)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=verdict(127), before=verdict(127)), "failed", "verify_failed", False, False),
        (End.FINISHED, report(verdict=verdict(127)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=LATE, before=verdict(0)), "failed", "verify_failed", False, True),
        (End.FINISHED, report(verdict=LATE, before=LATE), "failed", "verify_failed", False, False),
        (End.FINISHED, report(verdict=UNABLE), "failed", "verify_failed", False, False),
        (End.FINISHED, report(unrun="no namespaces"), "failed", "no_sandbox", False, False),
        (End.FINISHED, Report("b", unrun="no namespaces"), "failed", "no_sandbox", False, False),
        (End.ANSWERED, Report("b", unrun="no namespaces"), "failed", "no_sandbox", False, False),
        (End.ANSWERED, report(), "failed", "not_finished", False, False),
        (End.ANSWERED, report(verdict=verdict(1)), "failed", "not_finished", False, False),
        (End.ANSWERED, Report("b"), "completed", "", False, False),
        (End.LIMIT, report(), "failed", "x", False, False),
        (End.FAILED, report(findings=("a secret",)), "failed", "x", False, False),
        (End.REPEATING, report(verdict=verdict(1)), "failed", "x", False, False),
        (End.STOPPED, report(), "stopped", "stopped", False, False),
    ],
)
def test_what_a_run_counts_as(end, given, status, code, ready, mendable):
    outcome = Outcome(end, summary="So.", code="x" if status == "failed" and code == "x" else "")
    decision = decide(outcome, given)
    assert (decision.status, decision.code, decision.ready) == (Status(status), code, ready)
    assert is_mendable(outcome, given) is mendable


def test_without_a_delivery_a_finish_is_done():
    assert decide(Outcome(End.FINISHED, summary="So."), None).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("before", "words"),
    [(verdict(0), "it passes"), (verdict(2), "fails in another way"), (LATE, "says nothing either: `make test` was")],
)
def test_the_reason_says_what_the_base_does(before, words):
    assert words in decide(Outcome(End.FINISHED), report(verdict=verdict(1), before=before)).message


@pytest.mark.parametrize(
    ("review", "code"),
    [
        (None, ""),
        ({"decision": "APPROVED"}, ""),
        ({"decision": "DENIED"}, "denied"),
        ({"decision": "CONDITIONAL"}, "conditional"),
        ({"decision": "FAILED_SAFE"}, "failed_safe"),
    ],
)
def test_what_the_reviewers_did_not_approve_is_in_the_row(review, code):
    assert review_code(report(review=review)) == code
    assert review_code(None) == ""


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (Status.COMPLETED, "", Outcome(End.FINISHED)),
        (Status.COMPLETED, "", Outcome(End.FINISHED, code="denied")),
        (Status.FAILED, "limit_cost", Outcome(End.LIMIT, "Too dear.", code="limit_cost")),
        (Status.STOPPED, "stopped", Outcome(End.STOPPED, "Enough.", code="stopped")),
    ],
)
def test_the_row_alone_has_the_end_as_another_host_must_write_it(status, code, outcome):
    row = FinalState(status, code, outcome.summary, outcome).columns()
    assert FinalState.from_row(row) == FinalState(status, code, outcome.summary, outcome)


def test_a_row_of_an_older_version_has_an_end_without_the_code_of_a_review():
    found = FinalState.from_row({"outcome": "ending completed finished", "error_code": None, "error_message": None})
    assert found == FinalState(Status.COMPLETED, "", "", Outcome(End.FINISHED))
    assert FinalState.from_row({"outcome": "publishing"}) is None
