"""What goes wrong at GitHub: limits, refusals, lost answers, things that moved or are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from agent import clock
from agent.errors import (
    ForgeAccessRefused,
    ForgeError,
    ForgeLimited,
    ForgeRefused,
    ForgeUnreachable,
    IssueUnreadable,
)
from agent.forge.markers import marker, with_markers
from agent.forge.rate_limiter import EVERYTHING

MARK = marker("0badcafe-0000-4000-8000-000000000001", "final")
HEAD = "makimono/1-0badcafe"
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


def tasks(place):
    return [task.get_task_key().task_id for task in place.forge.task_getter().get_task_list()]


def open_pull(place, key, **changes):
    place.branch(HEAD)
    values = {"title": "Fix", "body": "Text", "head": HEAD, "base": "main", "draft": True}
    return place.forge.open_pull(key, **values | changes)


# --- limits ----------------------------------------------------------------------------------------------------


def test_a_secondary_limit_with_retry_after_is_waited_for_and_then_it_works(github, slept):
    key = github.issue()
    github.server.fault("POST", "/comments$", status=403, message=SECONDARY, headers={"Retry-After": "40"})
    github.forge.post_comment(key, "hello")
    assert github.words(key) == [("makimono", "hello")]
    assert sum(slept) == pytest.approx(40, abs=1)


def test_a_poll_does_not_wait_for_a_secondary_limit_and_nobody_asks_meanwhile(github, slept):
    github.issue()
    github.server.fault("GET", "/issues$", status=403, message=SECONDARY, headers={"Retry-After": "40"})
    with pytest.raises(ForgeLimited) as limited:
        tasks(github)
    assert limited.value.retry_after == pytest.approx(40)
    asked = len(github.server.journal)
    with pytest.raises(ForgeLimited, match="slow down"):
        github.again().task_getter().get_task_list()  # another process
    assert len(github.server.journal) == asked
    assert slept == []
    clock.sleep(41)
    assert tasks(github) == ["1"]


@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"Retry-After": "Sat, 31 Jan 2026 09:15:40 GMT"}), (429, {}), (403, {})],
)
def test_a_secondary_limit_is_known_by_a_date_by_429_or_by_its_words(github, slept, status, headers):
    key = github.issue()
    github.server.fault("POST", "/labels$", status=status, message=SECONDARY, headers=headers)
    github.forge.move_label(key, "processing")
    assert github.labels(key) == ["coding agent processing"]
    assert sum(slept) == pytest.approx(40 if headers else 60, abs=1.5)


def test_a_limit_that_does_not_say_for_how_long_is_kept_to_longer_each_time(github, slept):
    key = github.issue()
    github.server.fault("POST", "/comments$", status=403, message=SECONDARY, times=3)
    github.forge.post_comment(key, "hello")
    assert sum(slept) == pytest.approx(60 + 120 + 240, abs=2)
    assert github.words(key) == [("makimono", "hello")]


def test_a_limit_that_never_ends_is_an_error_and_not_a_loop(github, slept):
    key = github.issue()
    github.server.fault("POST", "/comments$", status=403, message=SECONDARY, headers={"Retry-After": "0"}, times=-1)
    with pytest.raises(ForgeLimited):
        github.forge.post_comment(key, "hello")
    assert len(github.server.asked("POST", "/comments$")) < 10


def test_a_budget_that_is_used_up_is_waited_for_until_its_reset_by_the_servers_clock(github, slept):
    key = github.issue()
    github.server.remaining, github.server.reset = 0, int(clock.now().timestamp()) + 600
    github.forge.post_comment(key, "hello")
    assert github.words(key) == [("makimono", "hello")]
    assert sum(slept) == pytest.approx(601, abs=2)


def test_a_poll_leaves_the_last_tenth_of_the_budget_to_running_tasks(github, slept):
    key = github.issue()
    github.server.remaining, github.server.reset = 400, int(clock.now().timestamp()) + 1800
    github.forge.read_issue(key)
    with pytest.raises(ForgeLimited, match="of 5000 requests are left"):
        tasks(github)
    github.forge.post_comment(key, "hello")
    assert slept == []


def test_a_403_that_is_no_limit_is_a_matter_of_permission(github, slept):
    key = github.issue()
    said = "Resource not accessible by personal access token"
    github.server.fault("POST", "/comments$", status=403, message=said)
    with pytest.raises(ForgeAccessRefused, match=r"not accessible by personal access token.*docs/forges\.md"):
        github.forge.post_comment(key, "hello")
    assert slept == []


def test_many_changes_are_paced(github, slept):
    key = github.issue()
    for number in range(30):
        github.forge.post_comment(key, f"comment {number}")
    assert sum(slept) == pytest.approx(10, abs=1.5)


# --- the server fails --------------------------------------------------------------------------------------------


def test_a_get_is_tried_again_after_a_5xx(github, slept):
    key = github.issue("Title")
    github.server.fault("GET", "/issues/1$", status=502, body="<html>Bad Gateway</html>", times=2)
    assert github.forge.read_issue(key).title == "Title"
    assert slept == [1.0, 4.0]


def test_a_get_that_fails_three_times_is_unreachable(github, slept):
    key = github.issue()
    github.server.fault("GET", "/issues/1$", status=503, message="No server is available", times=3)
    with pytest.raises(ForgeUnreachable, match="503 No server is available"):
        github.forge.read_issue(key)
    assert github.server.faults == []


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("how", [{"status": 502}, {"cut": True}], ids=["502", "cut"])
def test_a_comment_whose_fate_is_unknown_is_looked_up_and_written_once(github, slept, how, after):
    key = github.issue()
    github.server.fault("POST", "/comments$", after=after, **how)
    found = github.forge.post_comment(key, with_markers("the end", MARK))
    assert [author for author, _ in github.comments(key)] == ["makimono"]
    assert github.forge.find_comment(key, MARK) == found


def test_a_comment_without_a_marker_is_not_written_on_a_guess(github, slept):
    key = github.issue()
    github.server.fault("POST", "/comments$", status=502, after=True)
    with pytest.raises(ForgeUnreachable) as unknown:
        github.forge.post_comment(key, "no marker")
    assert unknown.value.maybe
    assert len(github.comments(key)) == 1


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("how", [{"status": 502}, {"cut": True}], ids=["502", "cut"])
def test_a_pull_request_whose_fate_is_unknown_is_looked_up_and_opened_once(github, slept, how, after):
    key = github.issue()
    github.server.fault("POST", "/pulls$", after=after, **how)
    pull = open_pull(github, key)
    assert github.pulls() == 1
    assert github.forge.find_pull(key, HEAD) == pull


@pytest.mark.parametrize("verb", ["POST", "DELETE"])
@pytest.mark.parametrize("after", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("how", [{"status": 502}, {"cut": True}], ids=["502", "cut"])
def test_labels_end_right_whatever_happens_to_an_answer(github, slept, verb, after, how):
    """And the task is taken: if it were not, nobody would work on it."""
    key = github.issue(labels=("bug", "coding agent"))
    github.server.fault(verb, "/issues/1/labels", after=after, **how)
    assert github.forge.mark_taken(key) is True
    assert github.labels(key) == ["bug", "coding agent processing"]


def test_a_host_that_is_not_there_is_named(tmp_path, slept):
    from forges.github_place import github_settings
    from ports import free_port

    from agent.forge.github.forge import GitHubForge

    (forge,) = GitHubForge.from_settings(github_settings(tmp_path, f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(ForgeUnreachable, match=r"127\.0\.0\.1:\d+: GET /repos/acme/web: no connection"):
        forge.task_getter().get_task_list()
    assert slept == [1.0, 4.0]


def test_an_answer_that_is_no_json_is_unreachable_and_not_a_crash(github, slept):
    key = github.issue()
    github.server.fault("GET", "/issues/1$", status=200, body="<html>proxy</html>")
    with pytest.raises(ForgeUnreachable, match="JSON"):
        github.forge.read_issue(key)


# --- tokens ------------------------------------------------------------------------------------------------------


def test_a_token_that_is_refused_in_the_middle_is_said_clearly_and_nothing_is_repeated(github, slept):
    key = github.issue()
    github.forge.read_issue(key)
    github.server.tokens.clear()
    asked = len(github.server.journal)
    with pytest.raises(ForgeAccessRefused, match=r"401 Bad credentials; the token is wrong, expired or revoked"):
        github.forge.post_comment(key, "hello")
    assert len(github.server.journal) == asked + 1


def test_a_token_is_in_no_address_no_error_and_no_log(github, slept, caplog):
    caplog.set_level("DEBUG")
    key = github.issue()
    github.forge.read_issue(key)
    github.server.fault("GET", "/issues/1$", status=500, message="x", times=3)
    with pytest.raises(ForgeUnreachable) as error:
        github.forge.read_issue(key)
    token = github.forge.git_login(key)[1]
    assert token.startswith("ghp_")
    assert token not in str(github.server.journal) + str(error.value) + repr(error.value.__cause__) + caplog.text
    assert token not in repr(vars(github.forge)) + repr(github.forge.section)


# --- gone, moved, renamed ------------------------------------------------------------------------------------------


def test_a_deleted_issue_is_unreadable(github):
    key = github.issue()
    github.remove_issue(key)
    with pytest.raises(IssueUnreadable, match="This issue was deleted"):
        github.forge.read_issue(key)
    for call in (lambda: github.forge.move_label(key, "done"), lambda: github.forge.post_comment(key, "x")):
        with pytest.raises(IssueUnreadable):
            call()


def test_a_repository_whose_issues_are_off_is_said_once_and_its_issues_are_unreadable(github):
    key = github.issue()
    github.repo.has_issues = False
    getter = github.forge.task_getter()
    assert getter.get_task_list() == []
    assert "its issues are switched off" in str(getter.problems[0])
    getter.get_task_list()
    assert getter.problems == ()
    with pytest.raises(IssueUnreadable, match="Issues has been disabled") as caught:
        github.forge.read_issue(key)
    assert caught.value.code == "issues_off"


def test_a_repository_that_refuses_us_hides_no_changes_of_the_others(github):
    key = github.issue()
    other = replace(key, repo="closed")
    github.server.state.repo("acme", "closed")
    began = clock.stamp(clock.now() - timedelta(hours=1))
    path = "/repos/acme/closed/issues$"
    github.server.fault("GET", path, status=403, message="Repository access blocked", times=-1)
    found, cursor = github.forge.changed_since({key: None, other: None}, began)
    assert list(found) == [key]
    github.server.fault("GET", "/issues$", status=403, message="Bad rights", times=-1)
    with pytest.raises(ForgeAccessRefused):
        github.forge.changed_since({key: None, other: None}, cursor)


def test_an_archived_repository_is_said(github):
    key = github.issue()
    issue = github.forge.read_issue(key)
    github.repo.archived = True
    getter = github.again().task_getter()
    assert getter.get_task_list() == []
    assert "it is archived" in str(getter.problems[0])
    with pytest.raises(IssueUnreadable, match="read-only"):
        github.again().repository(key, issue)
    for call in (lambda: github.forge.post_comment(key, "x"), lambda: github.forge.move_label(key, "done")):
        with pytest.raises(IssueUnreadable, match="archived so is read-only") as caught:
            call()
        assert caught.value.code == "repository_archived"


def test_a_missing_repository_is_said_and_the_others_go_on(github):
    github.issue()
    forge = github.again(projects=("acme/gone", "acme/web"))
    getter = forge.task_getter()
    assert [task.get_task_key().task_id for task in getter.get_task_list()] == ["1"]
    assert "no repository acme/gone" in str(getter.problems[0])


def test_a_renamed_repository_is_followed_by_every_call(github):
    key = github.issue(labels=("bug", "coding agent"))
    github.issue("no task", labels=("bug",))
    github.branch(HEAD)
    github.server.state.rename(github.repo, "Acme-Inc", "website")
    assert tasks(github) == ["1"]
    forge = github.again()
    assert forge.read_issue(key).title == "Fix it"
    forge.move_label(key, "processing")
    assert github.labels(key) == ["bug", "coding agent processing"]
    forge.edit_comment(key, forge.post_comment(key, "hello"), "hello again")
    assert github.words(key) == [("makimono", "hello again")]
    pull = forge.open_pull(key, title="T", body="B", head=HEAD, base="main", draft=True)
    assert forge.update_pull(key, pull, title="T2", draft=False).title == "T2"
    repository = forge.repository(key, forge.read_issue(key))
    assert (repository.owner, repository.repo) == ("Acme-Inc", "website")


def test_a_repository_that_is_renamed_under_way_is_followed_with_the_query_and_the_body(github):
    """GitHub answers 301 to GET and 307 to the rest, by the repository's number."""
    key = github.issue(labels=("bug", "coding agent"))
    for number in range(2, 5):
        github.issue(f"other {number}", labels=("bug",))
    assert tasks(github) == ["1"]
    github.forge.read_issue(key)
    own = github.forge.post_comment(key, "before")
    github.server.state.rename(github.repo, "acme", "website")
    assert tasks(github) == ["1"]
    github.forge.edit_comment(key, own, "after")
    assert github.forge.read_issue(key).title == "Fix it"
    assert github.words(key) == [("makimono", "after")]
    assert ("PATCH", 307) in {(verb, status) for verb, _, status in github.server.journal}


def test_an_issue_that_was_moved_to_another_repository_is_unreadable_and_says_where(github):
    key = github.issue()
    other = github.server.state.repo("acme", "api")
    other.issue("Fix it", "x", "alice")
    github.repo.moved[1] = (other, 1)
    with pytest.raises(IssueUnreadable, match=r"moved to acme/api#1; ask for it there"):
        github.forge.read_issue(key)
    assert github.forge.requested(key) == "stop"


def test_a_redirect_to_another_host_is_refused(github, slept):
    key = github.issue()
    github.server.fault(
        "GET", "/issues/1$", status=301, headers={"Location": "http://localhost:9/repositories/1"}, times=1
    )
    with pytest.raises(
        ForgeUnreachable, match=r"it redirects from \S+ to http://localhost:9/repositories/1; set base_url"
    ):
        github.forge.read_issue(key)


def test_a_clone_address_on_another_host_gets_no_token(github):
    key = github.issue()
    github.repo.clone_url = "https://evil.example/acme/web.git"
    with pytest.raises(ForgeError, match=r"is not on http://127\.0\.0\.1"):
        github.forge.repository(key, github.forge.read_issue(key))


# --- 422 -----------------------------------------------------------------------------------------------------------


def test_a_pull_request_that_exists_already_is_returned(github):
    key = github.issue()
    pull = open_pull(github, key)
    github.server.fault("GET", "/pulls$", status=200, body="[]")  # the list is late
    assert open_pull(github, key, title="Another") == pull
    assert github.pulls() == 1


def test_a_branch_that_is_not_there_is_named(github):
    key = github.issue()
    with pytest.raises(ForgeError, match=r"makimono/9-none onto main cannot be opened: .*PullRequest head invalid"):
        github.forge.open_pull(key, title="T", body="B", head="makimono/9-none", base="main", draft=True)
    github.branch(HEAD)
    with pytest.raises(ForgeError, match="base invalid"):
        github.forge.open_pull(key, title="T", body="B", head=HEAD, base="gone", draft=True)


def test_where_drafts_do_not_exist_an_ordinary_pull_request_is_opened(github):
    key = github.issue()
    github.repo.drafts = False
    pull = open_pull(github, key)
    assert (pull.draft, pull.state) == (False, "open")
    assert github.repo.issues[int(pull.id)]["reviewers"] == ["alice"], "it does not become ready later"


def test_a_label_that_does_not_exist_yet_is_made_with_a_colour(github):
    key = github.issue()
    github.forge.move_label(key, "processing")
    label = github.repo.labels["coding agent processing"]
    assert label["color"] == "fbca04"
    assert label["description"]
    github.forge.move_label(key, "done")
    assert len(github.server.asked("PATCH", r"/web/labels/")) == 2


def test_a_label_that_another_process_makes_at_the_same_time_is_no_fault(github):
    key = github.issue()
    github.repo.label("coding agent processing", "123456")
    github.server.fault("GET", "/labels/coding%20agent%20processing$", status=404, message="Not Found")
    github.forge.move_label(key, "processing")
    assert github.labels(key) == ["coding agent processing"]
    assert github.repo.labels["coding agent processing"]["color"] == "123456"


# --- odd data --------------------------------------------------------------------------------------------------------


def test_an_empty_body_and_a_deleted_account_read_as_text(github):
    key = github.issue(body="")
    github.repo.issues[1].update(body=None, user=None)
    github.repo.comment(1, "orphan", None)
    issue = github.forge.read_issue(key)
    assert (issue.body, issue.author) == ("", "ghost")
    assert issue.comments == ()
    assert issue.problems == ("1 comments of people who may not write here are left out",)


def test_a_text_longer_than_github_takes_is_cut_in_a_pull_request(github):
    key = github.issue()
    pull = open_pull(github, key, title="T" * 300, body="x" * 70_000)
    assert len(github.pull_body(pull)) == 65_536
    assert github.pull_body(pull).endswith("The whole text is in the task's folder.")
    assert len(pull.title) == 256


def test_the_file_of_the_limits_may_be_broken(github):
    key = github.issue()
    github.forge.read_issue(key)
    github.forge.wire.limiter.path.write_text("{not json")
    assert github.forge.read_issue(key).title == "Fix it"
    state = json.loads(github.forge.wire.limiter.path.read_text())
    assert state["buckets"]["core"]["limit"] == 5000


def test_a_slow_down_for_everything_holds_every_bucket(github, slept):
    key = github.issue()
    github.forge.wire.limiter.slow_down(EVERYTHING, 30.0, "asked to")
    with pytest.raises(ForgeLimited):
        github.forge.requested(key)
    assert github.forge.read_issue(key).title == "Fix it"
    assert sum(slept) == pytest.approx(30)


def test_what_else_is_refused_has_its_status(github):
    key = github.issue()
    github.server.fault("GET", "/issues/1$", status=451, message="Repository access blocked")
    with pytest.raises(ForgeRefused) as refused:
        github.forge.read_issue(replace(key))
    assert refused.value.status == 451
