"""Who has an issue, among daemons that share nothing but the forge."""

from datetime import timedelta
from uuid import uuid4

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.errors import TakenElsewhere
from agent.forge.markers import marker, with_markers
from agent.issue import claims

A, B, C = (str(uuid4()) for _ in range(3))
QUIET = timedelta(minutes=15)
DONE = "coding agent done"


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as fake:
        yield fake


@pytest.fixture(params=[GitHubPlace, GitLabPlace, ForgejoPlace], ids=["github", "gitlab", "forgejo"])
def place(request, tmp_path, time):
    made = request.param(tmp_path)
    yield made
    made.forge.close()
    made.close()


def claim(place, key, uuid, forge=None, take=None, **more):
    forge = forge or place.again()
    take = take or (lambda: forge.mark_taken(key))
    return claims.claim(forge, key, uuid, lambda: "Queued.", QUIET, home="0a0b0c0d", take=take, **more)


def check(place, key, uuid, *, posted, started_by=None):
    forge = place.again()
    more = {"issue": forge.read_issue(key), "posted": posted, "started_by": started_by}
    claims.check(forge, key, uuid, lambda: "Started.", QUIET, home="0a0b0c0d", **more)


def holders(place, key):
    return [
        mark.split(":")[1] for one in place.forge.marked_comments(key) for mark in one.markers if ":of-" not in mark
    ]


def end(place, key, uuid):
    place.forge.post_comment(key, with_markers("The end.", marker(uuid, "final")))
    place.forge.move_label(key, "done")


class Late:
    """A forge that shows what others wrote only half a second later, as one with several machines may."""

    def __init__(self, forge, own):
        self.forge = forge
        self.own = own

    def __getattr__(self, name):
        return getattr(self.forge, name)

    def marked_comments(self, key):
        now = clock.now()
        seen = self.__dict__.setdefault("seen", {})
        found = self.forge.marked_comments(key)
        for one in found:
            seen.setdefault(one.id, now)
        return tuple(
            one
            for one in found
            if marker(self.own, "progress") in one.markers or now - seen[one.id] >= timedelta(seconds=0.5)
        )


def test_an_older_claim_that_is_shown_later_than_the_younger_one_counts(place):
    key = place.issue()
    place.forge.post_comment(
        key, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d")
    )  # A is about to look whether it is alone
    assert not claim(place, key, B, Late(place.again(), B))
    assert holders(place, key) == [A]
    assert claim(place, key, A)
    assert holders(place, key) == [A]
    assert place.labels(key) == ["coding agent processing"]


def test_an_issue_that_was_listed_without_comments_is_read_after_the_claim_and_the_oldest_has_it(place):
    key = place.issue()
    assert claim(place, key, A, has_comments=False)
    assert len(place.server.asked("GET", r"/(comments|notes)")) == 1
    other = place.issue()
    place.forge.post_comment(other, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d"))  # after the list
    assert not claim(place, other, B, has_comments=False)
    assert holders(place, other) == [A]
    assert place.labels(other) == ["coding agent"]


def test_a_claim_is_the_tasks_whoever_comes_with_it(place):
    key = place.issue()
    assert claim(place, key, A)
    check(place, key, A, posted=False)  # the worker, on any host of the same ledger
    check(place, key, A, posted=True)  # its next attempt
    assert holders(place, key) == [A]
    with pytest.raises(TakenElsewhere):
        check(place, key, B, posted=False)
    assert holders(place, key) == [A]


def test_who_died_before_the_label_moved_goes_on_when_he_is_back(place, time):
    key = place.issue()
    place.forge.post_comment(key, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d"))
    time.move(120)
    assert not claim(place, key, B)
    assert claim(place, key, A)
    assert holders(place, key) == [A]


@pytest.mark.parametrize("how", ["before the label", "in the middle"])
def test_a_dead_daemons_claim_is_none_when_the_issue_has_waited_for_long(place, time, how):
    """It never moved the label; or it did, and a person set it again since nothing happened any more."""
    key = place.issue()
    if how == "in the middle":
        assert claim(place, key, A)
        time.move(7200)
        place.put_labels(key, "coding agent", "coding agent processing")
    else:
        place.forge.post_comment(key, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d"))
    time.move(QUIET.total_seconds() - 60)
    assert not claim(place, key, B), "perhaps it is about to move the label"
    place.comment(key, "Is anybody there?")
    time.move(120)
    assert not claim(place, key, B)
    time.move(QUIET.total_seconds())
    assert claim(place, key, B)
    assert holders(place, key) == [B]
    assert place.labels(key) == ["coding agent processing"]
    assert not claim(place, key, C)
    for posted in (True, False):
        with pytest.raises(TakenElsewhere):
            check(place, key, A, posted=posted)  # it comes back
    end(place, key, B)
    for posted in (True, False):
        with pytest.raises(TakenElsewhere):
            check(place, key, A, posted=posted)
    assert holders(place, key) == [B, B]


def test_of_two_that_find_a_dead_claim_one_has_the_issue(place, time):
    key = place.issue()
    place.forge.post_comment(key, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d"))
    time.move(2 * QUIET.total_seconds())
    won = []

    class Between:
        """B has posted when C, which found the same, posts too."""

        def __init__(self, forge):
            self.forge = forge

        def __getattr__(self, name):
            return getattr(self.forge, name)

        def post_comment(self, key, body):
            made = self.forge.post_comment(key, body)
            won.append(claim(place, key, C))
            return made

    won.append(claim(place, key, B, Between(place.again())))
    assert won == [False, True]
    assert holders(place, key) == [B]


def test_who_finds_that_it_waits_no_more_takes_his_claim_back(place):
    key = place.issue()
    assert not claim(place, key, A, take=lambda: False)
    assert holders(place, key) == []


def test_a_process_that_was_suspended_leaves_the_claim_to_the_one_that_went_on_with_the_task(place):
    key = place.issue("Round", "Please.", ["coding agent"])

    def take():  # it wakes up after another host has done the work
        end(place, key, A)
        return False

    assert not claim(place, key, A, take=take, is_ours=lambda: False)
    assert holders(place, key) == [A, A], "the progress comment and the last one"


def test_an_ended_task_claims_nothing_and_the_label_again_is_a_new_start(place):
    key = place.issue()
    assert claim(place, key, A)
    end(place, key, A)
    place.put_labels(key, DONE, "coding agent")
    assert claim(place, key, B)
    assert holders(place, key) == [A, A, B]
    assert place.labels(key) == ["coding agent processing"]


def test_a_task_of_this_ledger_that_has_ended_is_no_claim_although_nobody_could_be_told_yet(place):
    key = place.issue()
    assert claim(place, key, A)
    place.put_labels(key, "coding agent", "coding agent processing")
    forge = place.again()
    known = {"take": lambda: forge.mark_taken(key), "is_over": {A: True}.get}
    assert claims.claim(forge, key, B, lambda: "Queued.", QUIET, home="0a0b0c0d", **known)
    assert holders(place, key) == [A, B]


def test_a_claim_whose_answer_was_lost_is_one(place):
    key = place.issue()
    path = r"/issues/1/notes$" if place.forge.source == "gitlab" else r"/issues/1/comments$"
    place.server.fault("POST", path, status=502, after=True, cut=True)
    assert claim(place, key, A)
    assert holders(place, key) == [A]


def test_a_poller_and_a_worker_that_both_posted_leave_the_older_comment(place):
    key = place.issue()
    for _ in range(2):
        place.forge.post_comment(key, claims.with_claim_markers("Queued.", A, None, "0a0b0c0d"))
    assert claim(place, key, A)
    assert holders(place, key) == [A]


def test_a_comment_on_a_closed_issue_makes_nobody_write_and_stir_it_again(place):
    key = place.issue(labels=(DONE,), state="closed")
    forge = place.again()
    asked = {"started_by": "7", "take": lambda: forge.mark_taken(key, again=True)}
    assert not claims.claim(forge, key, A, lambda: "Queued.", QUIET, home="0a0b0c0d", **asked)
    assert [verb for verb, *_ in place.server.asked() if verb != "GET"] == []


def test_what_people_say_to_the_task_of_another_ledger_is_that_ones(place):
    key = place.issue()
    assert claim(place, key, A)
    end(place, key, A)
    assert not claims.is_held(place.forge, key, A)
    place.put_labels(key, "coding agent")
    assert claim(place, key, B)
    assert claims.is_held(place.forge, key, A)
    assert not claims.is_held(place.forge, key, B)
    place.put_labels(key, DONE)  # a claim that was left is not a task
    assert not claims.is_held(place.forge, key, A)
