"""Sample values for each template of the program; a template of the user is rendered with them before it is used.

The first sample of a template has only the variables that are always given; if others may be given, another sample has
every variable. Sample objects have the same attributes as the program's objects, which the package `prompts` may not
import; a test in tests/unit/prompts compares the two.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.values import End, Outcome, Status, TaskKey

_UUID = "0123abcd-0000-4000-8000-000000000000"
_KEY = TaskKey("github", "me", "trial", "issue", "7", "github.com")
_FENCED = "<<<UNTRUSTED m source=issue>>>\nTotals are off.\n<<<END UNTRUSTED m>>>"
_PULL = {"id": "3", "url": "https://forge.example/pulls/3", "title": "Round once", "state": "open", "draft": False}
_FACTS: dict[str, Any] = {
    "turns": 12,
    "requests": 13,
    "prompt_tokens": 123_456,
    "completion_tokens": 7890,
    "cost": 0.12345,
    "currency": "EUR",
    "provider": "openai",
    "model": "gpt-x",
    "estimated": 0,
    "sandbox": "bubblewrap",
    "sandbox_reason": "",
    "reports": ["A file was left out."],
    "mention": "@makimono",
    "ask": "set the label",
    "pull": "https://forge.example/pulls/3",
    "closed": False,
    "kept": True,
}


_REVIEW: dict[str, Any] = {
    "decision": "CONDITIONAL",
    "exit_code": 11,
    "reason": "3 of 3 are for it, under conditions",
    "votes": {
        "safety": {
            "vote": "CONDITIONAL",
            "reason": "It logs a key.",
            "findings": [
                {"file": "a.py", "line": 3, "problem": "Here."},
                {"file": "tests/test_a.py::test_key", "line": 0, "problem": "It fails."},
            ],
            "conditions": ["Do not log the key."],
        },
    },
    "conditions": ["Do not log the key."],
    "excluded": {"upkeep": "rate_limited"},
    "struck": {"safety": 1},
    "kept_denials": ["safety"],
    "models": {"safety": "openai/gpt-x"},
    "distinct_models": 1,
    "reductions": [],
    "rules_hit": {},
    "templates": {"safety": {"name": "reviewer_safety", "version": "0123456789ab", "sha256": "0123456789ab"}},
    "evidence": {"safety": ["a.py:3", "tests/test_a.py::test_key"]},
    "isolation": "bubblewrap",
    "permutations": {},
    "met": ["Add a test."],
    "rounds": 1,
}


class SampleDiffStat(SimpleNamespace):
    """A sample of `work/changes.DiffStat`, which can be converted to text."""

    def __str__(self) -> str:
        return "1 file changed, +1 -1"


def verdict(**more: Any) -> SimpleNamespace:
    """A sample of `work/verify.Verdict`."""
    known = {"command": "make test", "exit_code": 2, "ok": False, "duration": 1.5, "tail": "boom\n", "timed_out": False}
    return SimpleNamespace(**{**known, "why": "", "outline": None, "is_red": True, **more})


def report(**more: Any) -> SimpleNamespace:
    """A sample of `worker/delivery_report.Report`."""
    known: dict[str, Any] = {
        "branch": "makimono/7-0123abcd",
        "changed": True,
        "commit": "0123456789abcdef",
        "pull": SimpleNamespace(**_PULL, head="makimono/7-0123abcd", base="main", fork="", commit="", body=""),
        "stat": SampleDiffStat(files=1, insertions=1, deletions=1, lines=("a.py +1 -1",)),
        "verdict": verdict(),
        "before": verdict(ok=True, exit_code=0, is_red=False),
        "findings": ("a.py, line 3: a token",),
        "rejected": "the branch is protected",
        "code": "push_rejected",
        "base": "main",
        "base_gone": False,
        "landed": False,
        "first": False,
        "conflicts": ("a.py",),
        "patch": "--- a.py\n",
        "patch_file": "change.patch",
        "touched_tests": ("tests/test_a.py",),
        "look": ("setup.py",),
        "left_behind": ("b.py: git ignores it",),
        "unrun": "",
        "paths": ("a.py",),
        "review": _REVIEW,
        "problem": ("verify_failed", "exit code 2"),
        "was_red": False,
    }
    return SimpleNamespace(**{**known, **more})


def nothing_delivered() -> SimpleNamespace:
    """A sample of `worker/delivery_report.Report` for a run that changed nothing."""
    empty = ("commit", "pull", "stat", "verdict", "before", "review")
    none = ("findings", "conflicts", "touched_tests", "look", "left_behind", "paths")
    known: dict[str, Any] = dict.fromkeys(empty) | dict.fromkeys(none, ())
    return report(**known, changed=False, rejected="", code="", patch="", patch_file="", problem=("", ""))


def decision(**more: Any) -> SimpleNamespace:
    """A sample of `worker/outcome.StatusDecision`."""
    known = {"status": Status.FAILED, "code": "verify_failed", "message": "exit code 2", "ready": False}
    return SimpleNamespace(**{**known, **more})


ISSUE = SimpleNamespace(
    key=_KEY,
    title="Totals are off",
    body="They are.",
    author="alice",
    labels=("coding agent",),
    state="open",
    base=None,
    comments=(),
    url="https://forge.example/issues/7",
    created_at="",
    updated_at="",
    cursor="",
    problems=(),
    pull=None,
    confidential=False,
)
"""A sample of `forge/base.IssueText`."""

_BRIEFING: dict[str, Any] = {
    "rules": [],
    "title": _FENCED,
    "body": "",
    "truncated": False,
    "comments": [],
    "branch": "makimono/7-0123abcd",
    "base": None,
    "empty_repository": True,
    "verify": None,
    "commands": False,
}
_FIX: dict[str, Any] = {
    "round": 1,
    "rounds": 2,
    "report": nothing_delivered(),
    "findings": [],
    "left_behind": [],
    "rejected": "",
    "output": "",
    "failing": "",
    "failed_before": "",
    "again": False,
}
_PULL_REQUEST: dict[str, Any] = {
    "summary": "",
    "issue": ISSUE,
    "key": _KEY,
    "uuid": _UUID,
    "report": nothing_delivered(),
    "ready": False,
}
_ENDS = tuple(
    {"outcome": Outcome(end, "It is so.", "Round once", code="limit"), "report": one, "uuid": _UUID, "facts": facts}
    for end in End
    for one, facts in ((None, {}), (nothing_delivered(), _FACTS), (report(), _FACTS))
)

SAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "answer": tuple(
        {"why": why, "order": order, "status": "completed", "mention": "@makimono", "uuid": _UUID}
        for why in ("closed", "limit", "ended", "running")
        for order in ("", "retry")
    ),
    "briefing": (
        _BRIEFING,
        _BRIEFING
        | {"rules": [_FENCED], "memory": [_FENCED], "body": _FENCED, "truncated": True, "comments": [_FENCED]}
        | {"base": "main", "empty_repository": False, "verify": "make test", "commands": True, "earlier": _FENCED}
        | {"about": "a pull request", "news": [_FENCED], "goes_on": True, "takes_up": True, "pictures": "One follows."}
        | {"ci": [_FENCED], "pull_name": "merge request"},
    ),
    "broken_off": ({"reason": "content_filter"},),
    "ci_tried": (
        {"url": "https://forge.example/pulls/3", "jobs": ["test"], "tried": [], "mention": "@makimono", "uuid": _UUID},
        {"url": "https://forge.example/pulls/3", "jobs": ["test"] * 21, "tried": ["It is so.", ""]}
        | {"mention": "@makimono", "uuid": _UUID},
    ),
    "commit": ({"title": "Round tax once", "issue": ISSUE, "key": _KEY, "uuid": _UUID},),
    "condition": ({"round": 1, "rounds": 2, "conditions": ["Add a test."]},),
    "deliberation": tuple(
        {"phase": phase, "parts": [("The change", _FENCED)], "left_out": left_out, "said": said, "tool": "vote"}
        | {"errors": errors}
        for phase in ("thinking", "debate", "voting")
        for left_out, said, errors in (([], "", []), (["Code around it"], _FENCED, ["vote: enum"]))
    ),
    "empty": ({},),
    "extraction": (
        {"events": [(1, "issue", _FENCED)], "known": [], "verified": False},
        {"events": [(1, "issue", _FENCED)], "known": [("mem-1", "facts", "It is so.")], "verified": True},
    ),
    "final": (
        *_ENDS,
        _ENDS[0] | {"decision": None},
        *(one | {"decision": decision()} for one in _ENDS),
        *(one | {"decision": decision(status=Status.COMPLETED, code="", ready=True)} for one in _ENDS),
    ),
    "fix": (
        _FIX,
        _FIX
        | {"report": report(), "findings": ["a.py, line 3: a token"], "left_behind": ["b.py: git ignores it"]}
        | {"rejected": _FENCED, "output": _FENCED, "failing": _FENCED, "failed_before": _FENCED, "again": True}
        | {"conflicts": ["a.py"]},
    ),
    "gave_up": tuple(
        {"why": why} | more
        for why in ("answer_cut", "answer_broken_off", "no_answer", "no_tool_calls", "repeating", "another")
        for more in ({}, {"reason": "content_filter", "text": "I am done."})
    ),
    "invalid": ({"name": "read_file", "found": '{"path": "a'},),
    "length": ({},),
    "malformed_call": ({"why": "no JSON", "mark": "0a1b2c3d"},),
    "no_call": ({},),
    "nudge": ({},),
    "past_point": ({"commit": ""}, {"commit": "0123456789abcdef"}),
    "reply": (
        {"words": "It is so.", "author": "alice", "quote": "", "link": ""},
        {"words": "It is so.", "author": "alice", "quote": "Why?", "link": "https://forge.example/issues/7#c1"},
    ),
    "progress": (
        {"state": "queued", "uuid": _UUID, "plan": [], "last": "", "facts": {}},
        {"state": "working", "uuid": _UUID, "plan": [{"text": "Read", "status": "done"}], "last": "edit_file: success"}
        | {"facts": _FACTS, "note": "Ask me."},
    ),
    "pull_request": (
        _PULL_REQUEST,
        _PULL_REQUEST | {"earlier": ["Round once."], "marks": ("<!-- a -->", "<!-- b -->")},
        _PULL_REQUEST
        | {"ended": "limit", "report": report(), "private": True, **_FACTS}
        | {"earlier": ["Round once."], "marks": ("<!-- a -->", "<!-- b -->")},
        _PULL_REQUEST | {"summary": "It is so.", "ended": "not_finished", "ready": True, "private": False, **_FACTS},
    ),
    "reviewer_correctness": ({},),
    "reviewer_rules": ({"schema": ""}, {"schema": '{"type": "object"}'}),
    "reviewer_safety": ({},),
    "reviewer_summary": ({"words": 60},),
    "reviewer_upkeep": ({},),
    "system": ({},),
    "taken_over": ({"lacks": ""}, {"lacks": "a commit is gone"}),
    "text_tools": ({"mark": "0a1b2c3d", "tools": [{"name": "read_file", "description": "Read.", "arguments": "{}"}]},),
    "too_many_calls": ({"run": 64, "dropped": 36},),
}
