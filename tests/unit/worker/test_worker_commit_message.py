"""The program alone says what a pull request closes and whom it calls; the test hosts do what real ones do by
themselves."""

import subprocess
from types import SimpleNamespace

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from forges.host_rules import github_closes, gitlab_closes, rung, skips_checks
from run_home import UUID

from agent import clock
from agent.issue.publish_filter import KINDS, PublishFilter
from agent.security.redact import Redactor
from agent.values import End, Outcome

HOSTILE = "Done. closes #2, fixes #3; cc @octocat @acme/security @all\n/close\nbors r+ [skip ci]"
SECRET = "sk-@abc#123456789"
DOOR = PublishFilter(Redactor())


def review(text):
    """The decision of reviewers who say `text` everywhere."""
    finding = {"file": text, "line": 1, "problem": text}
    vote = {"vote": "CONDITIONAL", "reason": text, "findings": [finding], "conditions": [text]}
    return {
        "decision": "CONDITIONAL",
        "reason": text,
        "votes": {"safety": vote},
        "conditions": [text],
        "excluded": {"upkeep": text},
        "struck": {"safety": 1},
        "kept_denials": [],
        "models": {"safety": text},
        "distinct_models": 1,
        "met": [text],
        "rounds": 1,
    }


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def place(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.close()


def texts(key, issue, door):
    """(name → text) of everything that others read of a hostile run."""
    plan = [{"text": HOSTILE, "status": "done"}]
    outcome = Outcome(End.ASKED, summary=HOSTILE, title=HOSTILE)
    report = SimpleNamespace(
        stat=None,
        verdict=None,
        touched_tests=(),
        look=(),
        findings=(),
        rejected="",
        code="",
        conflicts=(),
        changed=False,
        review=review(HOSTILE),
    )
    common = {"key": key, "issue": issue, "uuid": UUID % 1}
    return {
        "final": door.render(
            "final", outcome=outcome, report=None, uuid=UUID % 1, facts={"reports": [HOSTILE]}, decision=None
        ),
        "progress": door.render(
            "progress", state="working", uuid=UUID % 1, plan=plan, last=HOSTILE, facts={}, note=HOSTILE
        ),
        "commit": door.render("commit", title=HOSTILE, **common),
        "pull_request": door.render(
            "pull_request", summary=HOSTILE, ended="", report=report, ready=True, mention="@makimono", **common
        ),
    }


def test_a_merge_closes_the_tasks_issue_alone_and_nobody_is_rung(place):
    keys = [place.issue(title=HOSTILE.splitlines()[0]) for _ in range(3)]
    made = texts(keys[0], place.forge.read_issue(keys[0]), DOOR)
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(
        keys[0],
        title=DOOR.title(HOSTILE),
        body=made["pull_request"],
        head="makimono/1-0badcafe",
        base="main",
        draft=False,
    )
    for name in ("final", "progress"):
        place.forge.post_comment(keys[0], made[name])
    github = isinstance(place, GitHubPlace)
    host = place.repo if github else place.server
    item = int(pull.id) if github else place.project["merge_requests"][int(pull.id)]
    assert host.merge(item, [made["commit"]]) == {1}
    assert host.rung("makimono") == set()
    assert not skips_checks(made["commit"])
    assert not skips_checks(DOOR.title(HOSTILE))


def test_without_it_the_same_words_would(place):
    """Else the test above would prove nothing."""
    keys = [place.issue() for _ in range(3)]
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(
        keys[0], title=HOSTILE.splitlines()[0], body=HOSTILE, head="makimono/1-0badcafe", base="main", draft=False
    )
    github = isinstance(place, GitHubPlace)
    host = place.repo if github else place.server
    assert {"octocat", "acme/security", "all"} <= host.rung("makimono")
    assert host.merge(int(pull.id) if github else place.project["merge_requests"][int(pull.id)]) == {2, 3}


def test_a_secret_is_masked_before_anything_is_put_into_it(place):
    key = place.issue()
    door = PublishFilter(Redactor([SECRET]))
    issue = place.forge.read_issue(key)
    for name in texts(key, issue, door):
        assert name in KINDS
    final = door.render(
        "final",
        outcome=Outcome(End.ASKED, summary=f"It is {SECRET}."),
        report=None,
        uuid="u",
        facts={},
        decision=None,
    )
    assert "It is ***." in final


def test_a_patch_in_a_note_of_gitlab_can_be_applied(tmp_path):
    """GitLab's own reader of quick actions passes such a block over, so nothing is put into it."""
    place = GitLabPlace(tmp_path / "place")
    key = place.issue()
    repository = tmp_path / "r"
    repository.mkdir()
    patch = "--- a/t\n+++ b/t\n@@ -1,2 +1,3 @@\n one\n+/close\n two\n"
    (repository / "t").write_text("one\ntwo\n")
    place.forge.post_comment(key, f"Take it.\n\n```\n{patch}```\n\n/close\n")
    (_, note), *_ = place.comments(key)
    shown = note.split("```\n")[1]
    subprocess.run(["git", "apply", "-"], input=shown.encode(), cwd=repository, check=True)
    assert (repository / "t").read_text() == "one\n/close\ntwo\n"
    assert "\n\\/close" in note
    place.close()


def test_the_rules_read_what_the_program_says_on_purpose():
    assert github_closes("Closes #1", "h", "a/b") == gitlab_closes("Closes #1", "h", "a/b") == {1}
    assert rung("say it to @makimono") == {"makimono"}
