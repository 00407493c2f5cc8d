"""The token of a person's own account: the person starts, answers and ends tasks, and the program's comments do not."""

import re

import pytest
from forges.real_hosts import OWN_PLACES

from agent.forge.base import ForgeReports
from agent.forge.markers import marker, with_markers
from agent.values import Public, Status


@pytest.fixture
def places():
    return OWN_PLACES


def later(watching, key, body):
    watching.time.move(5)
    watching.place.comment(key, body, author="alice")
    watching.time.move(5)
    return watching.poll()


def test_the_owners_issue_with_the_owners_label_becomes_a_task_of_the_owner(watching):
    key = watching.place.issue(author="alice")
    (uuid,) = watching.poll()
    assert watching.ledger.get(uuid).user == "alice"
    assert watching.place.labels(key) == ["coding agent processing"]
    assert watching.home.named("issue_skipped") == []
    watching.time.move(60)
    assert watching.poll() == []


@pytest.mark.parametrize("lost", [None, r"<!--.*?-->", r"<[^>]*>"], ids=["marked", "no html comments", "no tags"])
def test_a_question_is_answered_by_its_owner_and_never_by_itself(watching, lost):
    """`lost`: the host removes this from every comment before anybody reads it."""
    key = watching.place.issue(labels=("coding agent paused",))
    claim = watching.ledger.claim(watching.ledger.enqueue(key), "me", 60)
    watching.ledger.db.run("ledger_pause", outcome="asked", uuid=claim.uuid, was="running", attempt=claim.attempt)
    watching.time.move(5)
    question = with_markers(Public("**I need an answer to go on.**\n\nRed, @alice?"), marker(claim.uuid, "final"))
    number = watching.place.forge.post_comment(key, question)
    if lost is not None:
        (text,) = [body for _, body in watching.place.comments(key)]
        watching.place.edit_comment(key, number, re.sub(lost, "", text))
    for _ in range(3):
        watching.time.move(5)
        watching.poll()
    assert watching.ledger.get(claim.uuid).status is Status.PAUSED
    later(watching, key, "Blue.")
    assert watching.ledger.get(claim.uuid).status is Status.QUEUED


def test_an_order_of_the_owner_to_a_waiting_task_is_obeyed(watching):
    key = watching.place.issue(labels=("coding agent processing",))
    uuid = watching.ledger.enqueue(key)
    later(watching, key, "/stop")
    assert watching.ledger.get(uuid).status is Status.STOPPED
    assert [one["author"] for one in watching.home.named("order_obeyed")] == ["alice"]


@pytest.mark.parametrize("lost", [None, r"<!--.*?-->"], ids=["marked", "no html comments"])
def test_after_the_end_the_owner_goes_on_and_no_comment_of_the_program_does(watching, lost):
    key = watching.place.issue(labels=())
    ended = watching.ended(key)
    names = ("final", "answer-7", "reply-8", "ci-tried")
    for name in names:
        text = Public("/retry\n\nTo have something changed, say what in a comment that mentions @alice.")
        number = watching.place.forge.post_comment(key, with_markers(text, marker(ended, name)))
        if lost is not None:
            shown = watching.place.comments(key)[-1][1]
            watching.place.edit_comment(key, number, re.sub(lost, "", shown))
    for _ in range(3):
        watching.time.move(5)
        assert watching.poll() == []
    (uuid,) = later(watching, key, "@alice now the other file")
    row = watching.ledger.get(uuid)
    assert (row.parent_uuid, row.user) == (ended, "alice")


def test_a_closed_issue_is_ended_by_its_owner(watching):
    key = watching.place.issue(labels=("coding agent processing",))
    uuid = watching.begun(key)
    watching.place.close_issue(key)
    if watching.place.forge.source == "gitlab":
        watching.place.item(key)["closed_by"] = watching.place.server.user("alice")
    watching.time.move(5)
    watching.poll()
    assert watching.ledger.get(uuid).status is Status.STOPPED
    assert ForgeReports(watching.place.forge).who_ended(key, "closed") == "alice"
