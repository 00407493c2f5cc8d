"""What CI says about a commit, on each forge that has CI: `ForgeReports.checks` and `check_log`."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from forge_places import PLACES

from agent.forge.base import ForgeReports
from agent.forge.checks import LONGEST_LOG, Check, Checks
from agent.forge.github.token_permissions import rights

OLD, NEW = "b" * 40, "a" * 40
KINDS = ("forgejo", "github", "gitlab", "gitlab-prism")
"""`test_forge_host_checks.py` has GitHub's answers in GitHub's own document."""


@contextmanager
def opened(kind, folder):
    place = PLACES[kind](folder)
    yield place
    place.close()


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    with opened(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def github(tmp_path):
    with opened("github", tmp_path) as found:
        yield found


def read(place, url="", commit=NEW):
    key = place.issue()
    return ForgeReports(place.forge).checks(key, commit, url)


def states(checks):
    return {one.name: one.state for one in checks.items}


def test_a_commit_without_checks_has_none(place):
    assert read(place) == Checks()


def test_red_names_what_has_failed_and_a_check_that_runs_is_waited_for(place):
    url = place.checked_pull(NEW)
    place.ci(NEW, "test", "failed", log="boom\n")
    place.ci(NEW, "lint", "passed")
    found = read(place, url)
    assert [one.name for one in found.failed()] == ["test"]
    assert not found.is_pending
    assert found.unread == ()
    place.ci(NEW, "slow", "pending")
    assert read(place, url).is_pending


def test_checks_are_read_whole_after_the_pull_request_was_found_in_a_list(place):
    """As a task reads them that red CI has started; items of a list may lack what names the checks."""
    key, url = place.issue(), place.checked_pull(NEW)
    place.ci(NEW, "test", "failed")
    reports = ForgeReports(place.forge)
    with reports.single_reads():
        place.forge.find_pull(key, "fix")
        assert [one.name for one in reports.checks(key, NEW, url).failed()] == ["test"]


def test_green_and_what_is_skipped_are_no_failure(place):
    url = place.checked_pull(NEW)
    place.ci(NEW, "test", "passed")
    place.ci(NEW, "other", "skipped")
    found = read(place, url)
    assert found.items
    assert (found.failed(), found.is_pending) == ((), False)


def test_the_last_of_many_checks_is_read_too(place):
    url = place.checked_pull(NEW)
    for number in range(120):
        place.ci(NEW, f"job {number}", "passed")
        if place.forge.source == "github":
            place.repo.checks.status(NEW, f"status {number}", "success")
    place.ci(NEW, "the last", "failed")
    assert [one.name for one in read(place, url).failed()] == ["the last"]
    if place.forge.source == "github":
        place.repo.checks.status(NEW, "the last status", "failure")
        assert [one.name for one in read(place, url).failed()] == ["the last", "the last status"]


def test_what_is_red_on_the_base_is_told_apart_by_its_name(place):
    place.ci(OLD, "old trouble", "failed")
    url = place.checked_pull(NEW)
    place.ci(NEW, "old trouble", "failed")
    place.ci(NEW, "test", "failed")
    before = read(place, commit=OLD)
    assert [one.name for one in before.failed()] == ["old trouble"]
    assert [one.name for one in read(place, url).failed(before)] == ["test"]


def test_the_end_of_a_log_is_read(place):
    if "logs" in place.lacks:
        pytest.skip(place.lacks["logs"])
    url = place.checked_pull(NEW)
    place.ci(NEW, "test", "failed", log="first line\n" + "x" * 79 + "\n" + ("y" * 79 + "\n") * 1000 + "boom\n")
    key = place.issue()
    (red,) = ForgeReports(place.forge).checks(key, NEW, url).failed()
    log = ForgeReports(place.forge).check_log(key, red)
    assert log.endswith("y\nboom\n")
    assert LONGEST_LOG - 100 < len(log) <= LONGEST_LOG
    assert set(log.split("\n", 1)[0]) == {"y"}


def test_a_forge_without_ci_has_no_checks_and_no_logs(tmp_path):
    place = PLACES["local"](tmp_path)
    key = place.issue()
    reports = ForgeReports(place.forge)
    assert (reports.checks(key, NEW), reports.check_log(key, Check("x", "failed", log="1"))) == (Checks(), "")
    place.close()


# --- GitHub ------------------------------------------------------------------------------------------------------


def test_an_unchanged_look_at_github_is_conditional(github):
    github.ci(NEW, "test", "failed")
    key = github.issue()
    first = github.forge.checks(key, NEW)
    seen = len(github.server.journal)
    assert github.forge.checks(key, NEW) == first
    assert [status for _, _, status in github.server.journal[seen:]] == [304, 304]


def test_conclusions_of_github(github):
    for conclusion in ("failure", "timed_out", "startup_failure", "cancelled", "skipped", "neutral", "action_required"):
        github.repo.checks.run(NEW, conclusion, conclusion)
    github.repo.checks.status(NEW, "ci/old", "error", description="no disk")
    found = read(github)
    assert [one.name for one in reversed(found.failed())] == ["ci/old", "failure", "timed_out", "startup_failure"]
    assert found.failed()[-1].said == "no disk"


def test_a_log_is_fetched_from_the_other_host_without_the_token(github):
    github.ci(NEW, "test", "failed", log="boom\n")
    key = github.issue()
    (red,) = github.forge.checks(key, NEW).failed()
    assert github.forge.check_log(key, red) == "boom\n"
    assert github.server.blobs.refused == []


def test_a_check_of_another_service_has_its_summary_and_annotations(github):
    github.repo.checks.run(
        NEW, "lint", "failure", app="linter", title="2 faults", summary="see below", annotations=[("a.py", 3, "unused")]
    )
    key = github.issue()
    (red,) = github.forge.checks(key, NEW).failed()
    assert red.said == "2 faults\n\nsee below"
    assert github.forge.check_log(key, red) == "a.py:3: unused"


def test_a_log_that_is_gone_gives_its_annotations(github):
    number = github.repo.checks.run(NEW, "test", "failure", annotations=[("a.py", 3, "unused")])
    github.repo.checks.logs[number] = None
    key = github.issue()
    (red,) = github.forge.checks(key, NEW).failed()
    assert github.forge.check_log(key, red) == "a.py:3: unused"


def test_a_fine_grained_token_reads_the_jobs_of_actions(github):
    """It cannot have the permission Checks: github.com/orgs/community/discussions/179545."""
    github.server.withheld.add("checks")
    github.ci(NEW, "test", "failed", log="boom\n")
    github.ci(NEW, "lint", "passed")
    key = github.issue()
    found = github.forge.checks(key, NEW)
    assert states(found) == {"workflow of lint": "passed", "test": "failed"}
    assert github.forge.check_log(key, found.failed()[0]) == "boom\n"
    assert found.unread == ()


def test_what_may_not_be_read_is_named_and_the_rest_is_read(github):
    github.server.withheld.update(("checks", "actions"))
    github.repo.checks.status(NEW, "ci/old", "failure")
    found = read(github)
    assert [one.name for one in found.failed()] == ["ci/old"]
    (said,) = found.unread
    assert "Actions, Read" in said
    assert "acme/web" in said


@pytest.mark.parametrize(("rounds", "told"), [(2, 2), (0, 0)])
def test_doctor_names_what_a_token_may_not_read_of_ci(tmp_path, rounds, told):
    with opened("github", tmp_path) as place:
        place.server.scopes = None
        place.server.withheld.update(("checks", "actions", "statuses"))
        place.forge.watches_ci = rounds > 0
        found = [one for one in rights(place.forge) if "CI" in one]
        assert len(found) == told
        place.server.withheld.clear()
        assert [one for one in rights(place.forge) if "CI" in one] == []


# --- GitLab ------------------------------------------------------------------------------------------------------


@pytest.fixture
def gitlab(tmp_path):
    with opened("gitlab", tmp_path) as found:
        yield found


def test_a_job_that_may_fail_is_no_failure_of_gitlab(gitlab):
    url = gitlab.checked_pull(NEW)
    pipeline = gitlab.server.pipeline(gitlab.project, NEW, "fix")
    gitlab.server.job(pipeline, "flaky", "failed", allow_failure=True)
    gitlab.server.job(pipeline, "test", "failed", trace="boom\n")
    assert [one.name for one in read(gitlab, url).failed()] == ["test"]


def test_a_status_of_another_service_counts_on_gitlab(gitlab):
    url = gitlab.checked_pull(NEW)
    pipeline = gitlab.server.pipeline(gitlab.project, NEW, "fix")
    gitlab.server.job(pipeline, "ci/outside", "failed", external=True)
    found = read(gitlab, url)
    assert [one.name for one in found.failed()] == ["ci/outside"]
    assert gitlab.forge.check_log(gitlab.issue(), found.failed()[0]) == ""


def test_an_older_head_of_a_merge_request_has_no_checks(gitlab):
    url = gitlab.checked_pull(NEW)
    gitlab.ci(NEW, "test", "failed")
    assert read(gitlab, url, OLD) == Checks()


def test_pipelines_that_may_not_be_seen_are_named(gitlab):
    gitlab.project["builds_on"] = False
    assert "CI is not noticed" in read(gitlab).unread[0]
