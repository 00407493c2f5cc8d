"""The commit of a fork that is worked on is the one for which somebody asked."""

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from forges.gitlab_state import GUEST

from agent import clock
from agent.errors import ForgeUnreachable
from agent.forge.base import ForgeReports
from agent.values import TaskKey

LABEL = "coding agent"
FIRST, SECOND, THIRD = "1" * 40, "2" * 40, "3" * 40


class Hub:
    """A stranger's pull request from a fork on GitHub."""

    def __init__(self, folder):
        self.place = GitHubPlace(folder)
        self.state, self.repo = self.place.server.state, self.place.repo
        self.repo.people.update(mallory="read", triage="triage", alice="write")
        self.fork = self.state.repo("mallory", "web")
        self.state.push(self.fork, "better", FIRST, "mallory")
        clock.sleep(60)
        self.item = self.repo.pull("Better", "It is.", "mallory", "better", "main", False, fork=self.fork, sha=FIRST)
        clock.sleep(60)
        self.key = TaskKey("github", "acme", "web", "pull_request", "1", self.place.forge.instance)

    def push(self, commit, **more):
        self.state.push(self.fork, "better", commit, "mallory", **more)

    def label(self, who="alice"):
        self.repo.drop_label(self.item, LABEL, who)
        self.repo.put_label(self.item, LABEL, who)

    def assign(self, who="alice"):
        self.repo.assign(self.item, who, ["makimono"])

    def say(self, who="alice"):
        return self.repo.comment(1, "@makimono go on", who)["created_at"]


class Lab:
    """The same on GitLab."""

    def __init__(self, folder):
        self.place = GitLabPlace(folder)
        self.server = self.place.server
        self.place.person("alice")
        self.place.person("mallory", GUEST)
        self.place.person("triage", GUEST)
        self.fork = self.server.project("mallory/web", members={"mallory": 40, "makimono": GUEST})
        self.item = self.server.merge_request(
            self.place.project, "mallory", source="better", source_project=self.fork, sha=FIRST
        )
        clock.sleep(60)
        self.key = TaskKey("gitlab", "acme/tools", "web", "merge_request", "1", self.place.forge.instance)

    def push(self, commit):
        self.server.push_commit(self.item, "mallory", commit)

    def label(self, who="alice"):
        self.server.label(self.item, who, remove=(LABEL,))
        self.server.label(self.item, who, add=(LABEL,))

    def assign(self, who="alice"):
        self.server.assign(self.item, who, ["makimono"])

    def say(self, who="alice"):
        return self.server.note(self.item, who, "@makimono go on")["created_at"]


@pytest.fixture(params=[Hub, Lab])
def one(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.place.close()


@pytest.fixture
def hub(tmp_path):
    with clock.use(clock.FakeClock()):
        made = Hub(tmp_path)
        yield made
        made.place.close()


def moved(one, since=""):
    """What a new process finds out, a minute later."""
    clock.sleep(60)
    forge = one.place.again()
    pull = forge.read_issue(one.key).pull
    assert pull.fork == "mallory/web"
    try:
        return ForgeReports(forge).head_moved(one.key, pull, since)
    finally:
        forge.close()


def test_the_commit_that_was_there_at_the_label_is_worked_on(one):
    one.label()
    assert one.place.forge.read_issue(one.key).pull.commit == FIRST
    assert moved(one) == ""


def test_a_push_before_the_label_is_what_was_asked_for(one):
    one.push(SECOND)
    clock.sleep(60)
    one.label()
    assert moved(one) == ""


def test_after_a_push_it_has_to_be_asked_for_again(one):
    one.label()
    clock.sleep(60)
    one.push(SECOND)
    said = moved(one)
    assert "its branch in mallory/web has changed after it was asked for" in said
    assert f"asked for was the commit {FIRST[:12]}, and the branch is at {SECOND[:12]} now" in said
    assert f"look at {SECOND[:12]} and ask for it again" in said
    one.label()
    assert moved(one) == ""


def test_of_several_pushes_the_first_commit_is_the_one_that_was_asked_for(one):
    one.label()
    for commit in (SECOND, THIRD):
        clock.sleep(60)
        one.push(commit)
    assert f"asked for was the commit {FIRST[:12]}, and the branch is at {THIRD[:12]} now" in moved(one)


def test_a_branch_that_is_pushed_back_is_what_was_asked_for(one):
    one.label()
    for commit in (SECOND, FIRST):
        clock.sleep(60)
        one.push(commit)
    assert moved(one) == ""


def test_a_push_in_the_second_of_the_label_counts_as_later(hub):
    hub.label()
    hub.push(SECOND)
    assert "has changed after it was asked for" in moved(hub)


def test_an_assignment_asks_for_the_commit_of_its_time(one):
    one.assign()
    assert moved(one) == ""
    one.push(SECOND)
    assert f"asked for was the commit {FIRST[:12]}" in moved(one)


def test_a_comment_asks_for_the_commit_of_its_time(one):
    one.label()
    clock.sleep(60)
    one.push(SECOND)
    clock.sleep(60)
    when = one.say()
    assert moved(one, when) == ""
    one.push(THIRD)
    assert f"asked for was the commit {SECOND[:12]}" in moved(one, when)


def test_a_label_of_somebody_without_permission_asks_for_no_commit(one):
    one.label()
    clock.sleep(60)
    one.push(SECOND)
    clock.sleep(60)
    one.label("triage")
    assert f"asked for was the commit {FIRST[:12]}" in moved(one)


def test_a_push_between_the_reading_and_the_check_is_found(one):
    one.label()
    clock.sleep(60)
    forge = one.place.again()
    pull = forge.read_issue(one.key).pull
    one.push(SECOND)
    assert "the branch is at 222222222222 now" in ForgeReports(forge).head_moved(one.key, pull)
    forge.close()


def test_a_host_that_does_not_answer_decides_nothing(one):
    one.label()
    clock.sleep(60)
    one.push(SECOND)
    one.place.server.fault("GET", "/activity|/versions", status=502, times=-1)
    with pytest.raises(ForgeUnreachable):
        moved(one)


def test_pushes_to_other_branches_of_the_fork_change_nothing(hub):
    hub.label()
    clock.sleep(60)
    for number in range(3):
        hub.state.push(hub.fork, f"other-{number}", SECOND, "mallory")
    assert moved(hub) == ""


def test_the_time_in_a_commit_is_not_believed_and_every_page_of_pushes_is_read(hub):
    hub.place.server.page_limit = 2
    hub.label()
    for number in range(7):
        clock.sleep(60)
        hub.push(f"{number}" * 40, forced=number % 2 == 1)
    assert f"asked for was the commit {FIRST[:12]}, and the branch is at {'6' * 12} now" in moved(hub)


def test_a_branch_that_was_made_after_the_label_was_asked_for_by_nobody(hub):
    hub.label()
    clock.sleep(60)
    hub.fork.pushes.clear()
    hub.push(SECOND)
    assert "which commit was asked for is not known" in moved(hub)


@pytest.mark.parametrize("gone", [True, False])
def test_where_the_pushes_cannot_be_seen_a_review_of_the_commit_tells_which_one_is_meant(hub, gone):
    hub.label()
    clock.sleep(60)
    hub.push(SECOND)
    if gone:
        hub.fork.gone = True
    else:
        hub.place.server.fault("GET", "/activity", status=404, times=-1)

    def look():
        clock.sleep(60)
        forge = hub.place.again()
        pull = forge.read_issue(hub.key).pull
        said = ForgeReports(forge).head_moved(hub.key, pull)
        forge.close()
        return said

    said = look()
    assert "cannot be found out" in said
    assert f"write a review of it, look at {SECOND[:12]} and ask for it again" in said
    hub.repo.review(1, "Fine.", "mallory")
    assert "cannot be found out" in look(), "a review of somebody without permission"
    hub.repo.review(1, "Fine.", "alice")
    assert look() == ""
    hub.push(THIRD)
    assert "cannot be found out" in look(), "the review is of another commit"


def test_a_gitlab_that_lists_no_versions_says_so(tmp_path):
    with clock.use(clock.FakeClock()):
        lab = Lab(tmp_path)
        lab.label()
        lab.item["versions"].clear()
        assert "GitLab lists no version of it" in moved(lab)
        lab.place.server.fault("GET", "/versions", status=404, times=-1, body={"message": "404 Not found"})
        assert "its versions cannot be read" in moved(lab)
        lab.place.close()


def test_a_merge_request_that_is_opened_with_its_label_is_worked_on(tmp_path):
    """GitLab makes the first version a moment after the merge request."""
    with clock.use(clock.FakeClock()):
        lab = Lab(tmp_path)
        lab.label()
        clock.sleep(5)
        lab.item["versions"][0]["created_at"] = lab.server.now()
        assert moved(lab) == ""
        lab.push(SECOND)
        assert f"asked for was the commit {FIRST[:12]}" in moved(lab)
        lab.place.close()


def test_a_source_that_cannot_tell_works_on_no_fork():
    assert "is not worked on" in ForgeReports(object()).head_moved(None, None)
