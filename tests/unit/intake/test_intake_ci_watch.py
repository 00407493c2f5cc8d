"""Red CI of a pull request that a task has opened: what starts a task, and what is left alone."""

import pytest
from forges.github_place import GitHubPlace
from red_ci import BASE, HEAD, NEXT, OTHER, RedCi

from agent.intake import ci_watch
from agent.intake.poller import Poller


@pytest.fixture
def ci(forge_place, place, time):
    found = RedCi(forge_place, place(), time).opened()
    yield found
    found.ledger.close()


@pytest.fixture
def github(tmp_path, place, time):
    found = RedCi(GitHubPlace(tmp_path), place(), time).opened()
    yield found
    found.close()


def test_red_ci_starts_one_task_that_goes_on_and_pending_ci_is_waited_for(ci):
    ci.place.ci(HEAD, "slow", "pending")
    ci.place.ci(HEAD, "test", "failed")
    assert ci.poll() == []
    ci.place.ci(HEAD, "slow", "passed")
    (uuid,) = ci.poll()
    row = ci.ledger.get(uuid)
    assert (row.parent_uuid, row.started_by, row.user) == (ci.first, f"ci-{HEAD}", "alice")
    assert ci.place.labels(ci.key) == ["coding agent processing"]
    (told,) = ci.home.named("ci_red")
    assert (told["commit"], told["url"], told["jobs"]) == (HEAD, ci.pull.url, ["test"])
    assert ci.poll() == []


def test_green_ci_starts_nothing_and_is_asked_for_twice_an_hour(ci):
    ci.place.ci(HEAD, "test", "passed")
    ci.place.ci(HEAD, "extra", "skipped")
    assert ci.poll() == []
    ci.time.move(ci_watch.QUIET_SECONDS)
    assert ci.poll() == []
    ci.time.move(60)
    before = ci.asked()
    ci.poll()
    idle = ci.asked() - before
    assert idle == {"github": 3, "gitlab": 6, "forgejo": 3}[ci.place.forge.source]


def test_a_job_that_is_run_again_and_fails_is_noticed_within_half_an_hour(ci):
    ci.place.ci(HEAD, "test", "passed")
    for _ in range(2):
        assert ci.poll() == []
        ci.time.move(ci_watch.QUIET_SECONDS)
    assert ci.poll() == []
    ci.place.ci(HEAD, "test", "failed")
    assert ci.poll() == []
    ci.time.move(ci_watch.AGAIN_SECONDS)
    (uuid,) = ci.poll()
    assert ci.ledger.get(uuid).started_by == f"ci-{HEAD}"


def test_a_commit_without_checks_is_not_asked_for_ever(github):
    github.poll()
    github.time.move(ci_watch.NONE_SECONDS)
    github.poll()
    github.time.move(60)
    before = len(github.place.server.asked("GET", "check-runs"))
    github.poll()
    assert len(github.place.server.asked("GET", "check-runs")) == before > 0


def test_a_task_that_has_ended_costs_the_ledger_nothing_more(github, monkeypatch):
    github.place.ci(HEAD, "slow", "pending")
    github.poll()
    read = []
    monkeypatch.setattr(ci_watch, "rounds_of", lambda *_: read.append(1))
    github.time.move(60)
    github.poll()
    assert read == []


def test_what_is_red_on_the_base_too_is_left_alone(ci):
    ci.place.ci(BASE, "test", "failed")
    ci.place.ci(HEAD, "test", "failed")
    assert ci.poll() == []
    ci.place.ci(HEAD, "lint", "failed")
    assert len(ci.poll()) == 1
    assert ci.home.named("ci_red")[0]["jobs"] == ["lint"]


def test_a_head_that_somebody_else_has_pushed_is_theirs(ci):
    ci.place.ci(HEAD, "test", "failed")
    ci.place.ci(OTHER, "test", "failed")
    ci.push(OTHER)
    assert ci.poll() == []
    assert ci.own(ci.key) == []


def test_the_rounds_of_a_pull_request_end_with_one_comment(ci):
    head, uuid = HEAD, None
    for following in (NEXT, OTHER):
        ci.place.ci(head, "test", "failed")
        (uuid,) = ci.poll()
        head = following
        ci.push(head)
        ci.end(uuid, head_commit=head, base_commit=BASE, branch="makimono/1", url=ci.pull.url)
    ci.place.ci(head, "test", "failed")
    assert ci.poll() == []
    (said,) = ci.tried()
    assert "2 attempts did not mend it" in said
    assert "`test`" in said
    assert ci.pull.url in said
    again = Poller(ci.home.settings, ci.ledger, [ci.place.again()], ci.home.events)
    assert again.poll(everything=True) == ci.poll() == []
    assert len(ci.tried()) == 1


def test_a_task_that_changed_nothing_is_not_repeated_for_the_same_commit(github):
    github.place.ci(HEAD, "test", "failed")
    (uuid,) = github.poll()
    github.end(uuid)
    assert github.poll() == []
    (said,) = github.tried()
    assert "1 attempt did not mend it" in said


def test_a_task_that_failed_is_not_followed(github):
    github.place.ci(HEAD, "test", "failed")
    (uuid,) = github.poll()
    github.end(uuid, status="failed", head_commit=HEAD, url=github.pull.url, branch="makimono/1")
    assert github.poll() == []
    assert github.tried() == []


@pytest.mark.parametrize("how", ["closed pull", "closed issue", "merged"])
def test_what_is_over_is_left_alone(github, how):
    github.place.ci(HEAD, "test", "failed")
    if how == "closed pull":
        github.place.close_pull(github.pull)
    elif how == "merged":
        github.place.repo.merge(int(github.pull.id))
    else:
        github.place.close_issue(github.key)
    assert github.poll() == []
    assert github.poll() == []
    assert len(github.home.named("issue_skipped")) <= 1
    assert github.tried() == []


def test_without_rounds_nothing_is_read(github):
    github.home.settings.ci.__dict__["fix_rounds"] = 0
    try:
        github.place.ci(HEAD, "test", "failed")
        assert github.poll() == []
        assert github.place.server.asked("GET", "check-runs") == []
    finally:
        github.home.settings.ci.__dict__["fix_rounds"] = 2


def test_a_daily_limit_holds_the_task_back_and_it_is_started_later(github):
    github.place.ci(HEAD, "test", "failed")
    limits = github.home.settings.limits
    limits.__dict__["runs"] = 1
    assert github.poll() == []
    assert len(github.home.named("budget_spent")) == 1
    limits.__dict__["runs"] = None
    assert len(github.poll()) == 1


def test_checks_that_may_not_be_read_are_told_once_and_cost_nothing_else(github):
    github.place.server.withheld.update(("checks", "actions", "statuses"))
    for _ in range(3):
        assert github.poll() == []
        github.time.move(60)
    assert len(github.home.named("ci_unread")) == 2
    assert github.home.named("poll_failed") == []
    assert github.place.forge.checks(github.key, HEAD).items == ()


def test_one_look_costs_two_conditional_requests_on_github(github):
    github.place.ci(HEAD, "slow", "pending")
    for _ in range(3):  # the lists of changes fall into step
        github.poll()
        github.time.move(60)
    before, left = github.asked(), github.place.server.remaining
    github.poll()
    assert github.asked() - before == 3 + 2
    assert github.place.server.remaining == left


def test_ci_of_a_task_that_ended_long_ago_is_not_read(github):
    github.place.ci(HEAD, "test", "failed")
    github.time.move(ci_watch.LONGEST.total_seconds())
    assert github.poll() == []
    assert github.place.server.asked("GET", "check-runs") == []


def test_two_daemons_with_one_ledger_start_one_task(github):
    github.place.ci(HEAD, "test", "failed")
    other = Poller(github.home.settings, github.ledger, [github.place.again()], github.home.events)
    assert len(github.poll() + other.poll(everything=True)) == 1
