"""Issues that show that somebody has them, and whose rows are gone."""

from datetime import timedelta
from uuid import uuid4

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from run_home import UUID

from agent import clock
from agent.forge.marks import marker
from agent.observe.items import Items
from agent.run import claims
from agent.run.left import take_up
from agent.run.producer import Poller
from agent.run.repair import repair
from agent.values import Status

MINUTES, HOURS = 16, 25


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as fake:
        yield fake


@pytest.fixture(params=[GitHubPlace, GitLabPlace], ids=["github", "gitlab"])
def there(request, tmp_path, time, place):
    """(a place of a real forge's kind, a ledger beside it)."""
    made = request.param(tmp_path / "forge")
    yield made, place()
    made.forge.close()
    made.close()


def compare(place, here, *, surely=False):
    failed = []
    items = Items(lambda item, why: failed.append((item, why)))
    found = take_up(here.settings, here.ledger, place.again(), here.events, items, surely=surely)
    items.end()
    assert failed == []
    return found


def left(place, here, label="processing", home=None):
    """An issue as a task of this ledger's home leaves it, and its uuid."""
    key, uuid = place.issue(labels=(f"coding agent {label}", "bug")), str(uuid4())
    place.forge.post_comment(key, claims.signed("Started.", uuid, None, home or claims.home_of(here.settings)))
    return key, uuid


@pytest.mark.parametrize("label", ["processing", "paused"])
def test_a_lost_task_of_this_home_is_queued_again_under_its_own_uuid(there, label):
    place, here = there
    key, uuid = left(place, here, label)
    assert compare(place, here, surely=True) == [uuid]
    row = here.ledger.get(uuid)
    assert (row.key, row.status, row.not_before) == (key, Status.QUEUED, None)
    assert row.user
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert len(place.forge.marked_comments(key)) == 1, "its own claim stands"
    assert compare(place, here, surely=True) == [], "once"


def test_nobody_knows_that_the_ledger_is_lost_then_the_issue_must_have_been_quiet(there, time):
    place, here = there
    _, uuid = left(place, here)
    assert compare(place, here) == [], "it may have been taken at this moment"
    time.move(MINUTES * 60)
    assert compare(place, here) == [uuid]


def test_a_task_of_another_home_is_left_to_it_for_a_day_and_for_ever_while_it_waits_for_a_person(there, time):
    place, here = there
    key, foreign = left(place, here, home="0a0b0c0d")
    left(place, here, "paused", home="0a0b0c0d")
    time.move(MINUTES * 60)
    assert compare(place, here, surely=True) == []
    time.move(HOURS * 3600)
    (uuid,) = compare(place, here)
    assert uuid != foreign
    assert here.ledger.get(uuid).key == key
    (claim,) = place.forge.marked_comments(key)
    assert marker(uuid, "progress") in claim.markers, "a daemon that comes back finds that it has lost the issue"


def test_a_task_that_the_ledger_knows_is_left_alone(there, time):
    place, here = there
    open_key, open_uuid = left(place, here)
    here.ledger.put(open_key, uuid=open_uuid)
    time.move(HOURS * 3600)
    untold_key, untold = left(place, here)
    here.ledger.put(untold_key, uuid=untold)
    here.ledger.request(untold, "stop")  # the poller is about to tell it
    time.move(HOURS * 3600)
    assert compare(place, here, surely=True) == []


def test_a_poller_compares_at_its_start_and_when_rows_were_lost(place):
    here = place()
    path = here.issue(1, label="coding agent processing")

    from threading import Event

    lost = Event()
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events, lost=lost, compares=True)
    assert poller.poll(everything=True) == [], "perhaps a daemon beside this one has it"
    lost.set()
    (uuid,) = poller.poll()
    assert here.ledger.get(uuid).key.task_id == "1"
    assert not lost.is_set()
    assert here.named("issue_taken_up")[0]["uuid"] == uuid
    assert "coding agent processing" in path.read_text()


def test_repair_takes_up_what_has_neither_row_nor_folder(place):
    here = place()
    here.issue(1, label="coding agent paused")
    here.issue(2, label="coding agent done")
    done = repair(here.wiring)
    (uuid,) = done.issues
    assert (here.ledger.get(uuid).task_id, done.rows, done.unasked) == ("1", 0, {})
    assert uuid != UUID % 1


def test_the_home_of_a_ledger_outlives_it_and_names_nothing(place):
    here = place()
    home = claims.home_of(here.settings)
    assert home == claims.home_of(here.settings)
    assert len(home) == 8
    shared = here.settings.model_copy(
        update={
            "taskqueue": here.settings.taskqueue.model_copy(
                update={"ledger": "postgresql://one:secret@db.example/makimono"}
            )
        }
    )
    other = here.settings.model_copy(
        update={
            "taskqueue": here.settings.taskqueue.model_copy(
                update={"ledger": "postgresql://two:word@db.example/makimono"}
            )
        }
    )
    assert claims.home_of(shared) == claims.home_of(other) != home


def test_the_times_are_such_that_a_living_daemon_is_not_robbed(place):
    assert claims.quiet_of(place().settings) >= timedelta(minutes=15)
