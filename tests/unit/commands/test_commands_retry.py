"""What has failed since a time is put back, once for each issue."""

from datetime import timedelta

import pytest
from run_home import UUID

from agent import clock
from agent.commands.retry import failed_since, parse_moment, retry_task, start_description
from agent.errors import ForgeUnreachable, UsageError
from agent.forge.local.forge import LocalForge
from agent.values import Status


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as now:
        yield now


def fail(here, number, code="git"):
    here.issue(number, label="coding agent failed")
    claim = here.claim(number)
    here.ledger.finish(claim.uuid, claim.attempt, Status.FAILED, error_code=code)


def test_what_failed_since_then_goes_on_once_and_nothing_else_does(place, time):
    here = place()
    fail(here, 1)
    time.move(3 * 3600)
    fail(here, 2)
    fail(here, 3, "policy")
    here.row(4)
    done = failed_since(here.wiring, parse_moment("2h"), "git")
    assert [parent for _, parent in done.queued] == [UUID % 2]
    (made, _) = done.queued[0]
    row = here.ledger.get(made)
    assert (row.task_id, row.status, row.parent_uuid) == ("2", Status.QUEUED, UUID % 2)
    again = failed_since(here.wiring, parse_moment("2h"), "git")
    assert (again.queued, again.other_codes) == ([], {"policy": 1}), "once"
    assert [parent for _, parent in failed_since(here.wiring, parse_moment("1d")).queued] == [UUID % 1, UUID % 3]


def test_what_is_tried_again_keeps_its_priority_unless_another_is_given(place, time):
    here = place()
    for number in (1, 2):
        fail(here, number)
        here.wiring.db.execute("UPDATE tasks SET priority = 7 WHERE uuid = :uuid", uuid=UUID % number)
    kept, _ = retry_task(here.wiring, here.ledger.get(UUID % 1))
    assert here.ledger.get(kept).priority == 7
    ((given, _),) = failed_since(here.wiring, parse_moment("1h"), priority=-3).queued
    assert here.ledger.get(given).priority == -3


def test_an_issue_that_was_closed_is_left_with_the_reason(place, time):
    here = place()
    fail(here, 1)
    here.issue(1, label="coding agent failed", state="closed")
    done = failed_since(here.wiring, parse_moment("1h"))
    assert (done.queued, list(done.left)) == ([], [UUID % 1])
    assert "the issue is closed" in done.left[UUID % 1]


def test_a_forge_that_is_away_is_named_and_keeps_no_task_from_being_tried_again(place, time, monkeypatch):
    here = place()
    fail(here, 1)
    here.wiring.db.execute("UPDATE tasks SET branch = 'makimono/1'")

    def away(*_):
        raise ForgeUnreachable("the forge does not answer")

    monkeypatch.setattr(LocalForge, "find_pull", away)
    said = start_description(here.wiring, here.ledger.get(UUID % 1))
    assert said.startswith(f"follows {UUID % 1}; ")
    assert "the forge does not answer" in said


def test_a_time_is_how_long_ago_or_when(time):
    assert clock.now() - parse_moment("90m") == timedelta(minutes=90)
    assert clock.now() - parse_moment(" 1.5h") == timedelta(minutes=90)
    assert parse_moment("2026-01-31T09:15").isoformat() == "2026-01-31T09:15:00+00:00"
    for text in ("yesterday", "12", "h", "-2h", ""):
        with pytest.raises(UsageError, match="how long ago"):
            parse_moment(text)
