"""Templates: variables as documented, every variant readable, nothing from outside is ever a template."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from jinja2 import meta

import agent
from agent import prompts
from agent.config.reviewer_section import PERSONAS
from agent.forge.base import PullRef
from agent.prompts import rendering, sample_values
from agent.values import End, Outcome, TaskKey
from agent.work.changes import DiffStat
from agent.work.verify import Verdict
from agent.worker.delivery_report import Report
from agent.worker.outcome import decide

ROOT = Path(__file__).parents[3]
KEY = TaskKey("local", "local", "default", "issue", "7", "/tracker")
UUID = "0123abcd-0000-4000-8000-000000000000"
ISSUE = SimpleNamespace(title="Fix the `parser`\nnow", key=KEY)
FACTS = {
    "turns": 12,
    "prompt_tokens": 123_456,
    "completion_tokens": 7890,
    "cost": 0.12345,
    "provider": "openai",
    "model": "gpt-x",
    "sandbox": "bubblewrap",
    "sandbox_reason": "",
}


def report(**more):
    """What was delivered: pushed, checked, and nothing found."""
    given = Report(
        branch="makimono/7-0123abcd",
        changed=True,
        commit="abc",
        pull=PullRef("3", "https://forge.example/pulls/3", "T", "open", False, "makimono/7-0123abcd", "main"),
        stat=DiffStat(2, 10, 3, ("a.py +9 -3", "b.py +1 -0")),
        verdict=Verdict("make test", 0, True, 1.0, "ok\n"),
        base="main",
    )
    return replace(given, **more)


def red(exit_code, tail=""):
    return Verdict("make test", exit_code, False, 1.0, tail)


BRIEFING = {
    "rules": ["<<<UNTRUSTED m source=rules>>>\nUse tabs.\n<<<END UNTRUSTED m>>>"],
    "title": "<<<T>>>",
    "body": "<<<B>>>",
    "truncated": False,
    "comments": ["<<<C1>>>", "<<<C2>>>"],
    "branch": "makimono/7-0123abcd",
    "base": "main",
    "empty_repository": False,
    "verify": "make test",
    "commands": True,
}
SAMPLES = {
    "system": {},
    "briefing": BRIEFING,
    "progress": {"state": "working", "uuid": UUID, "plan": [], "last": "", "facts": FACTS},
    "final": {"outcome": Outcome(End.FINISHED, "Did it.", "T"), "report": report(), "uuid": UUID, "facts": FACTS},
    "pull_request": {"summary": "S", "issue": ISSUE, "key": KEY, "uuid": UUID, "report": report(), "ready": True},
    "ci_tried": {"url": "https://x/pulls/3", "jobs": ["test"], "tried": [], "mention": "@makimono", "uuid": UUID},
    "commit": {"title": "Fix it", "issue": ISSUE, "key": KEY, "uuid": UUID},
    "nudge": {},
    **{f"reviewer_{name}": {} for name in PERSONAS},
    "condition": {"round": 1, "rounds": 2, "conditions": ["Add a test."]},
    "reviewer_rules": {"schema": '{"type": "object"}'},
    "reviewer_summary": {"words": 60},
    "deliberation": {
        "phase": "voting",
        "parts": [("The change", "<<<D>>>")],
        "left_out": ["Code around the change"],
        "said": "<<<S>>>",
        "tool": "cast_vote",
        "errors": ["vote: enum"],
    },
    "taken_over": {"lacks": "commit 0123456789ab is not in the repository any more"},
    "past_point": {"commit": "0123456789abcdef"},
    "length": {},
    "no_call": {},
    "too_many_calls": {"run": 64, "dropped": 36},
    "fix": {
        "round": 1,
        "rounds": 2,
        "report": report(verdict=red(2, "boom\n"), before=Verdict("make test", 0, True, 1.0, "")),
        "findings": ["a.py, line 3: a token"],
        "left_behind": ["lib/a.py was written and is not in the commit: git ignores it"],
        "rejected": "<<<R>>>",
        "output": "<<<O>>>",
        "failing": "<<<F>>>",
        "failed_before": "",
        "again": False,
    },
    "extraction": {"events": [(1, "issue", "<<<E>>>")], "known": [("mem-1", "facts", "It is so.")], "verified": False},
    "broken_off": {"reason": "content_filter"},
    "invalid": {"name": "read_file", "found": '{"path": "a'},
    "empty": {},
    "text_tools": {"mark": "0a1b2c3d", "tools": [{"name": "read_file", "description": "Read.", "arguments": "{}"}]},
    "malformed_call": {"why": "no JSON", "mark": "0a1b2c3d"},
    "gave_up": {"why": "repeating"},
    "answer": {"why": "ended", "order": "pause", "status": "completed", "mention": "@makimono", "uuid": UUID},
    "reply": {"words": "It is so.", "author": "alice", "quote": "Why?", "link": "https://forge.example/c/1"},
}


def test_every_template_is_rendered_by_the_program():
    modules = [path for path in Path(agent.__file__).parent.rglob("*.py") if path.parent.name != "dashboard"]
    code = "".join(path.read_text("utf-8") for path in modules)  # the dashboard has templates of its own
    rendered = set(re.findall(r"\brender\(\s*\"(\w+)\"", code)) | {f"reviewer_{name}" for name in PERSONAS}
    assert rendered == set(prompts.program_templates())


def test_every_template_has_a_sample_here():
    assert set(SAMPLES) == set(prompts.program_templates())


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_template_takes_exactly_the_variables_its_comment_names(name):
    what, variables = prompts.describe(name)
    assert what.endswith(".")
    tree = rendering._environment(published=False).parse(rendering.source(name))
    assert meta.find_undeclared_variables(tree) == {one.name for one in variables}
    assert {one.name for one in variables if not one.optional} == set(SAMPLES[name])
    assert prompts.render(name, **SAMPLES[name])


def test_a_briefing_without_a_base_names_the_default_branch():
    assert "default branch" in prompts.render("briefing", **SAMPLES["briefing"] | {"base": None})


NEEDED = [(name, key) for name in sorted(SAMPLES) for key in SAMPLES[name] if (name, key) != ("briefing", "base")]


@pytest.mark.parametrize(("name", "key"), NEEDED)
def test_a_missing_value_is_an_error_that_names_it(name, key):
    values = {other: value for other, value in SAMPLES[name].items() if other != key}
    if name == "pull_request" and key == "issue":
        values["summary"] = ""
    if name == "pull_request" and key == "ready":
        values["report"] = report(verdict=None)
    if name == "progress" and key == "last":
        assert values["state"] == "working"
    with pytest.raises(ValueError, match=key):
        prompts.render(name, **values)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_text_is_tidy(name):
    text = prompts.render(name, **SAMPLES[name])
    assert text == text.strip()
    assert "\n\n\n" not in text
    assert "{%" not in text
    assert "None" not in text


def test_the_page_of_the_documentation_is_made_from_the_templates():
    assert (ROOT / "docs" / "prompts.md").read_text() == prompts.markdown()
    for name in prompts.program_templates():
        assert f"## {name}\n" in prompts.markdown()


def test_an_unknown_template_is_answered_with_the_known_ones():
    for call in (prompts.render, prompts.version, prompts.describe):
        with pytest.raises(ValueError, match=r"'sistem'.*system"):
            call("sistem")
    with pytest.raises(ValueError, match="known are"):
        prompts.render("../../etc/passwd")


def test_a_version_is_a_hash_of_the_template():
    assert len(prompts.version("system")) == 12
    assert set(prompts.versions()) == set(prompts.program_templates())
    assert len(set(prompts.versions().values())) == len(prompts.program_templates())


def test_the_system_prompt_is_short_and_always_the_same():
    text = prompts.render("system")
    assert text == prompts.render("system")
    assert len(text) < 4000
    for word in ("UNTRUSTED", "finish", "ask_user", "update_plan", "Do not commit", "no network", "/work"):
        assert word in text


def test_values_are_never_templates():
    hostile = "{{ 7 * 7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}{# gone #}"
    text = prompts.render("briefing", **BRIEFING | {"body": hostile, "title": hostile})
    assert text.count(hostile) == 2
    assert "49" not in text


def test_templates_cannot_reach_into_python():
    environment = rendering._environment(published=False)
    with pytest.raises(Exception, match=r"unsafe|undefined|access"):
        environment.from_string("{{ x.__class__.__mro__[1].__subclasses__() }}").render(x="")


# --- briefing ------------------------------------------------------------------------------------------------


def test_the_briefing_has_rules_first_and_the_task_last():
    text = prompts.render("briefing", **BRIEFING, memory=["<<<M>>>"])
    order = [
        text.index(part)
        for part in ("Use tabs.", "<<<M>>>", "makimono/7", "`make test`", "<<<T>>>", "<<<B>>>", "<<<C1>>>")
    ]
    assert order == sorted(order)
    assert "low trust" in text
    assert text.endswith("<<<C2>>>")


def test_the_briefing_says_what_is_missing():
    values = BRIEFING | {"rules": [], "body": "", "comments": [], "truncated": True}
    text = prompts.render("briefing", **values | {"empty_repository": True, "base": None, "commands": False})
    for word in ("no text beside its title", "repository is empty", "run_command will refuse", "longer than shown"):
        assert word in text
    assert "rules" not in text
    assert "No check is configured" in prompts.render("briefing", **values | {"verify": None})


# --- comments ------------------------------------------------------------------------------------------------


def test_the_progress_comment_shows_plan_and_numbers():
    plan = [
        {"text": "look", "status": "done"},
        {"text": "change\nit", "status": "in_progress"},
        {"text": "test", "status": "pending"},
    ]
    text = prompts.render("progress", state="working", uuid=UUID, plan=plan, last="edit_file: success", facts=FACTS)
    assert text == (
        "**Working.**\n\n- [x] look\n- [ ] change it ⏳\n- [ ] test\n\nLast: edit_file: success\n\n"
        f"<sub>12 turns · 123,456 tokens in, 7,890 out · cost 0.1235 · gpt-x · task `{UUID}`</sub>"
    )


def test_the_progress_comment_has_links_the_time_and_the_currency():
    more = {"pull": "https://x/acme/web/pull/3", "branch_page": "https://x/acme/web/tree/makimono/7", "minutes": 12}
    values = {"uuid": UUID, "plan": [], "last": "", "facts": FACTS | more | {"currency": "EUR"}}
    text = prompts.render("progress", state="working", **values)
    assert text == (
        "**Working.**\n\nDraft: https://x/acme/web/pull/3, branch: https://x/acme/web/tree/makimono/7\n\n"
        f"<sub>12 min · 12 turns · 123,456 tokens in, 7,890 out · cost 0.1235 EUR · gpt-x · task `{UUID}`</sub>"
    )
    assert "Draft" not in prompts.render("progress", state="finished", **values)


def test_no_text_of_a_forge_with_merge_requests_speaks_of_pull_requests():
    said = 0
    for sample in sample_values.SAMPLES["final"]:
        facts = sample["facts"] | {"pull_name": "merge request"}
        text = prompts.render("final", **sample | {"facts": facts})
        assert "pull request" not in text.lower()
        said += "merge request" in text
    assert said
    briefing = prompts.render("briefing", **BRIEFING | {"earlier": "x", "goes_on": True, "pull_name": "merge request"})
    assert "its merge request is open" in briefing
    assert "pull request" not in briefing


def test_the_words_of_a_host_that_refuses_are_in_a_code_block():
    words = "remote: GitLab: Commit message does not follow the pattern\n ! [remote rejected] x -> x"
    text = final(
        End.FINISHED, report(pull=None, rejected=f"it refused: set the key. It says: {words}", code="push_rejected")
    )
    assert f"could not be pushed. it refused: set the key.\n\n```\n{words}\n```" in text
    text = final(
        End.FINISHED, report(pull=None, rejected="409 There is one. The branch is pushed", code="pull_refused")
    )
    assert "**No pull request:** the host refused it.\n\n```\n409 There is one. The branch is pushed\n```" in text


def test_the_progress_comment_marks_estimates_and_needs_no_facts():
    text = prompts.render("progress", state="started", uuid=UUID, plan=[], last="", facts={})
    assert text == f"**Started.**\n\n<sub>task `{UUID}`</sub>"
    facts = FACTS | {"estimated": True, "cost": None}
    text = prompts.render("progress", state="working", uuid=UUID, plan=[], last="", facts=facts)
    assert "~123,456 tokens in, ~7,890 out · gpt-x" in text
    text = prompts.render("progress", state="paused", uuid=UUID, plan=[], last="x", facts={}, note="Ask me.")
    assert text.startswith("**Paused.**\n\nAsk me.\n\n<sub>")


def final(end, given, *, summary="Summary.", facts=FACTS, code=""):
    outcome = Outcome(end, summary, "T", code)
    decision = decide(outcome, given)
    return prompts.render("final", outcome=outcome, report=given, decision=decision, uuid=UUID, facts=facts)


def test_the_final_comment_of_finished_work():
    text = final(End.FINISHED, report())
    assert text == (
        "Summary.\n\nReady for review: https://forge.example/pulls/3\n\n"
        "- Branch `makimono/7-0123abcd`: 2 files changed, +10 -3\n- Check `make test`: exit code 0\n\n"
        "To have something changed, say what in a comment and set the label again: it goes on from this branch.\n\n"
        f"<sub>12 turns · 123,456 tokens in, 7,890 out · cost 0.1235 · gpt-x · task `{UUID}`</sub>"
    )


def test_a_failed_check_shows_exit_code_and_the_end_of_its_output():
    verdict = red(2, "```\nboom\n")
    text = final(End.FINISHED, report(verdict=verdict))
    assert "exit code 2 — **not passed**" in text
    assert "````\n```\nboom\n````" in text
    assert text.count("Draft: ") == 1
    verdict = red(None, "")
    assert "could not be run" in final(End.FINISHED, report(verdict=verdict))


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (Verdict("make test", 0, True, 1.0, ""), "without this change, it passes"),
        (red(2), "already red on `main`, in the same way"),
        (red(3), "it fails in another way"),
        (red(127), "says nothing either: it could not be run"),
        (Verdict("make test", -9, False, 1.0, "", timed_out=True), "says nothing either: too long"),
    ],
)
def test_a_red_check_says_what_the_base_does(before, words):
    given = report(verdict=red(2), before=before)
    told = words.replace("already red on `main`,", "red on `main` already,")
    assert told in final(End.FINISHED, given)
    assert words in pull(report=given, ready=given.was_red)
    assert "\n\n\n" not in final(End.FINISHED, given) + pull(report=given, ready=False)


def test_everything_that_can_be_said_at_once_is_still_tidy():
    verdict = red(2, "boom\n")
    given = report(verdict=verdict, touched_tests=("tests/a.py", "tests/b.py"), look=("PA-05 Makefile is executed",))
    for text in (final(End.FINISHED, given), pull(report=given, ready=False, sandbox="none")):
        assert "\n\n\n" not in text
        assert "`tests/a.py`, `tests/b.py`\n" in text
        assert "`PA-05 Makefile is executed`\n\n<details>" in text


def test_work_that_did_not_pass_says_so_first():
    text = final(End.FINISHED, report(verdict=red(2)))
    assert text.startswith("**Not done: what the model handed in did not pass.**\n\nSummary.")


def test_nothing_changed_is_an_answer():
    text = final(End.ANSWERED, report(changed=False, pull=None))
    assert text.startswith("Summary.\n\nNo file was changed.\n\nWrite `/retry` in a comment or set the label again")
    assert final(End.ANSWERED, None).startswith("Summary.\n\nNo file was changed.")


def test_a_change_without_finish_is_a_draft_and_says_so_first():
    text = final(End.ANSWERED, report(verdict=None), summary="Now the second half.")
    assert text.startswith("**Not done: the model stopped without saying that it is finished.**")
    assert "Its last words:\n\nNow the second half.\n\nDraft: " in text
    assert "No check command" not in text


def test_a_conflict_names_its_files_and_what_to_do():
    text = final(End.FINISHED, report(conflicts=("a.py", "b.py")))
    assert "\n\n**`main` has moved on, and the change conflicts with it** in `a.py`, `b.py`. Nothing was" in text
    assert "Merge `main` into it and resolve the conflict there" in text
    assert "\n\n\n" not in text
    many = final(End.FINISHED, report(conflicts=tuple(f"{n}.py" for n in range(30))))
    assert "`19.py` and more. Nothing" in many


def test_a_patch_is_shown_with_the_way_to_take_it_and_a_long_one_is_named():
    given = report(pull=None, patch_file="changes.patch", patch="diff --git a/x b/x\n+```\n")
    text = final(End.FINISHED, given)
    assert "run `git apply --index changes.patch` with what follows.\n\n<details>" in text
    assert "````\ndiff --git a/x b/x\n+```\n````" in text
    assert "it starts from the pull request as it is then" in text
    text = final(End.FINISHED, report(pull=None, patch_file="changes.patch"))
    assert "`git apply --index changes.patch`. It is too large for a comment" in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize(
    ("kind", "words"), [("issue", "Closes #7"), ("pull_request", "For #7"), ("merge_request", "For !7")]
)
def test_a_pull_request_closes_an_issue_and_names_another_pull_request(kind, words):
    text = pull(key=TaskKey("github", "acme", "web", kind, "7", "github.com"))
    assert f"\n\n{words}\n\n" in text
    assert ("Closes" in text) == (kind == "issue")


def test_the_first_branch_of_an_empty_repository_is_told_with_what_to_do():
    text = final(End.FINISHED, report(first=True, pull=None))
    assert "the first commit is pushed as branch `makimono/7-0123abcd`" in text
    assert "`git push origin origin/makimono/7-0123abcd:refs/heads/main`" in text
    assert "it starts from the default branch" in text
    assert "goes on from this branch" not in text
    assert "\n\n\n" not in text


def test_what_was_held_back_is_listed():
    text = final(End.FINISHED, report(pull=None, findings=("secret in a.py:3", "guarded: .github/x")))
    assert "Not published" in text
    assert "- secret in a.py:3\n- guarded: .github/x" in text
    assert "moved" in final(End.FINISHED, report(pull=None, rejected="the branch moved"))


@pytest.mark.parametrize(
    "held", [{"findings": ("policy: locked.txt",)}, {"rejected": "a hook says no", "code": "push_rejected"}]
)
@pytest.mark.parametrize("end", [End.FINISHED, End.LIMIT, End.FAILED])
def test_work_that_was_held_back_is_said_to_be_pushed_nowhere_and_where_it_is(end, held):
    text = final(end, report(pull=None, verdict=None, **held))
    folder = f"completed/{UUID}"
    assert f"pushed nowhere: 2 files changed, +10 -3. It is in `{folder}` below `context_storage.base_dir`" in text
    assert f"`git --git-dir={folder}/git log -p main..makimono/7-0123abcd`" in text
    assert "- Branch" not in text
    assert "it goes on from what is kept" in text
    assert "goes on from this branch" not in text
    text = final(end, report(pull=None, verdict=None, **held), facts=FACTS | {"kept": False})
    assert "not kept, since `context_storage.enabled` is false" in text
    assert "it is done anew" in text
    pushed = final(end, report(pull=None, verdict=None, rejected="the forge says no", code="pull_refused"))
    assert "- Branch `makimono/7-0123abcd`: 2 files changed" in pushed
    assert "pushed nowhere" not in pushed


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("given", [None, report(), report(changed=False, pull=None, stat=None, verdict=None)])
def test_every_end_has_a_tidy_comment(end, given):
    for facts in (
        FACTS,
        {},
        FACTS | {"sandbox": "none"},
        FACTS | {"sandbox": "refused", "sandbox_reason": "no userns"},
    ):
        for summary in ("Summary.", ""):
            text = final(end, given, facts=facts, summary=summary, code="model_stalled")
            assert "\n\n\n" not in text
            assert UUID in text
            assert "None" not in text
            if facts.get("sandbox") == "none":
                assert "without a sandbox" in text
            if facts.get("sandbox") == "refused":
                assert "No command could be run: no userns." in text


def test_the_words_of_each_end():
    assert final(End.ASKED, None, summary="Red or blue?").startswith(
        "**I need an answer to go on.**\n\nRed or blue?\n\nReply"
    )
    assert final(End.STOPPED, None, summary="").startswith("**Stopped, as asked.**\n")
    assert final(End.FAILED, None, code="model_stalled").startswith("**The task could not be done (model_stalled).**\n")
    assert "set the label again" in final(End.LIMIT, report())
    assert "another try" in final(End.LIMIT, None)
    assert "Draft: " in final(End.LIMIT, report())


# --- pull request and commit ---------------------------------------------------------------------------------


def pull(**more):
    values = {"summary": "What and why.", "issue": ISSUE, "key": KEY, "uuid": UUID, "report": report(), "ready": True}
    return prompts.render("pull_request", **(values | FACTS | more))


def test_the_pull_request_says_what_how_checked_and_what_it_closes():
    text = pull()
    assert text.startswith(
        "What and why.\n\nCloses #7\n\n<details><summary>2 files changed, +10 -3</summary>\n\n```\na.py +9 -3\nb.py"
    )
    assert "**Check** `make test`: exit code 0." in text
    assert "12 turns · 123,456 tokens in, 7,890 out · cost 0.1235 · gpt-x by openai · task" in text
    assert "cost 0.1235 EUR · gpt-x" in pull(currency="EUR")
    assert "sandbox" not in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize(("kind", "words"), [("pull_request", "For #7"), ("merge_request", "For !7")])
def test_the_pull_request_for_a_pull_or_merge_request_closes_nothing(kind, words):
    text = pull(key=replace(KEY, task_type=kind))
    assert text.startswith(f"What and why.\n\n{words}\n\n")
    assert "Closes" not in text


def test_the_pull_request_of_work_under_way_and_unusual_surroundings():
    text = pull(summary="", ready=False, report=report(verdict=None), sandbox="none", cost=None)
    assert text.startswith("Work in progress on “Fix the `parser` now”.")
    assert "**Check**: not run yet." in text
    assert "without a sandbox" in text
    assert "cost" not in text
    assert "no command is configured" in pull(report=report(verdict=None))
    assert "Tests that were changed**: `test_a.py`" in pull(report=report(touched_tests=("test_a.py",)))
    many = DiffStat(80, 1, 1, lines=tuple(f"f{number} +1 -0" for number in range(80)))
    assert "… and 30 more" in pull(report=report(stat=many))


def test_the_pull_request_says_how_to_reply_in_the_words_of_the_comment():
    mention = FACTS | {"mention": "@bot"}
    for text in (pull(mention="@bot"), final(End.FINISHED, report(), facts=mention)):
        assert "that mentions @bot: it goes on from this branch." in text
    assert "comment on the issue and set the label again: it goes on from this branch." in pull()


def test_the_final_comment_says_what_starts_a_task_there():
    for ask, ways in (("assign the account", " or assign the account again"), ("", "")):
        for mention, called in (("", ""), ("@bot", ", mention @bot" if ask else " or mention @bot")):
            text = final(End.ANSWERED, report(changed=False, pull=None), facts=FACTS | {"ask": ask, "mention": mention})
            assert f"Write `/retry` in a comment{called}{ways} to have another try" in text
            assert "label" not in text
    paused = final(End.PAUSED, None, facts=FACTS | {"ask": "assign the account"})
    assert "Write `/resume` in a comment to go on." in paused


def test_the_pull_request_of_a_file_closes_nothing_and_asks_for_no_comment():
    text = pull(private=True, prompt_tokens=0, completion_tokens=0, cost=None, model="m", provider="replay")
    assert text.startswith("What and why.\n\n<details>")
    assert text.endswith(f"exit code 0.\n\n<sub>12 turns · m by replay · task `{UUID}`</sub>")
    assert "\n\n\n" not in text


def test_a_commit_message_has_a_short_first_line():
    text = prompts.render("commit", title="Fix it", issue=ISSUE, key=KEY, uuid=UUID)
    assert text == (f"Fix it\n\nFor: Fix the `parser` now\nIssue: local:local/default#7\nMakimono-Task: {UUID}")
    text = prompts.render("commit", title="word " * 40, issue=ISSUE, key=KEY, uuid=UUID)
    first, second, third = text.split("\n")[:3]
    assert len(first) == 100
    assert first.endswith("…")
    assert (second, third) == ("", ("word " * 40).strip())


def test_filters_keep_text_in_its_place():
    assert rendering.on_one_line("a\nb\x1b[31m\u202ec") == "a b [31m c"
    assert rendering.code("a`b") == "``a`b``"
    assert rendering.code("`") == "`` ` ``"
    assert rendering.block("x\n````\n") == "`````\nx\n````\n`````"


def test_the_heading_says_what_kept_the_work_from_being_done():
    def first_line(given):
        text = final(End.FINISHED, given)
        return text.splitlines()[0], text

    assert first_line(report(verdict=red(2)))[0] == "**Not done: what the model handed in did not pass.**"
    assert "do not go together" in first_line(report(conflicts=("a.py",)))[0]
    line, text = first_line(report(pull=None, rejected="the host says no"))
    assert line == "**Not done: it could not be published.**"
    assert "it goes on from what is kept" in text
    assert "goes on from this branch" not in text


REVIEW = {
    "decision": "CONDITIONAL",
    "reason": "3 of 3 are for it, under conditions",
    "votes": {
        "safety": {
            "vote": "CONDITIONAL",
            "reason": "It logs\na key.",
            "findings": [
                {"file": "a`b.py", "line": 3, "problem": "Here."},
                {"file": "t::x", "line": 0, "problem": "P"},
            ],
            "conditions": ["Do not log it."],
        }
    },
    "conditions": ["Do not log it."],
    "excluded": {"upkeep": "rate_limited"},
    "struck": {"safety": 2},
    "kept_denials": [],
    "models": {"safety": "openai/gpt-x"},
    "distinct_models": 3,
    "met": ["Add a test."],
    "rounds": 1,
}


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("APPROVED", "**Reviewers**: approved: "),
        ("DENIED", "**Reviewers**: **denied**: "),
        ("CONDITIONAL", "**Reviewers**: approved under conditions that are **not met**: "),
        ("FAILED_SAFE", "**Reviewers**: **no decision**, so a person has to decide: "),
    ],
)
def test_the_pull_request_has_one_section_of_the_reviewers(decision, words):
    given = report(review=REVIEW | {"decision": decision})
    text = prompts.render("pull_request", **{**SAMPLES["pull_request"], "report": given}, **FACTS)
    assert text.count("**Reviewers**") == 1
    assert words in text
    assert "- safety (saw the change and the checks only; openai/gpt-x): **CONDITIONAL**. It logs a key." in text
    assert "  - ``a`b.py:3``: Here." in text
    assert "  - `t::x`: P" in text
    assert "- upkeep: no vote (rate_limited)" in text
    assert "- Condition: Do not log it." in text
    assert "- Condition of an earlier round, met: Add a test." in text
    assert "not counted: 2 of safety" in text
    assert "one model" not in text


@pytest.mark.parametrize(
    ("code", "words"),
    [("denied", "**Denied: "), ("conditional", "**Not ready: "), ("failed_safe", "**Please decide: ")],
)
def test_the_last_comment_says_what_the_reviewers_decided(code, words):
    outcome = replace(SAMPLES["final"]["outcome"], code=code)
    text = prompts.render("final", **{**SAMPLES["final"], "outcome": outcome})
    assert text.startswith(words)
    assert "Did it." in text
