"""A row whose task has ended elsewhere is closed only if nobody has changed the row since it was read."""

import pytest
from run_home import Place

from agent.errors import ClaimLost
from agent.issue.close_ended_row import adopt_end
from agent.values import Status


@pytest.fixture
def here(tmp_path):
    return Place(tmp_path)


def closed_by_a_person(here, row):
    here.ledger.request(row.uuid, "stop")


def claimed(here, row):
    here.ledger.offer(row.uuid)
    here.ledger.claim(row.uuid, "another", 60)


def closed_by_its_worker(here, row):
    here.ledger.finish(row.uuid, row.attempt, "completed")


def claimed_again(here, row):
    here.ledger.release(row.uuid, row.attempt)
    claimed(here, row)


@pytest.mark.parametrize(
    ("is_running", "change"),
    [(False, closed_by_a_person), (False, claimed), (True, closed_by_its_worker), (True, claimed_again)],
)
def test_every_change_by_another_process_is_the_same_error_and_stays(here, is_running, change):
    uuid = here.claim(1).uuid if is_running else here.row(1)
    row = here.ledger.get(uuid)
    change(here, row)
    changed = here.ledger.get(uuid)
    with pytest.raises(ClaimLost, match=uuid):
        adopt_end(here.ledger, row, "me", "failed")
    assert here.ledger.get(uuid) == changed


def test_a_row_that_nobody_changed_gets_the_end(here):
    row = here.ledger.get(here.row(1))
    adopt_end(here.ledger, row, "me", "failed", error_code="bug", error_message="it broke")
    assert (here.ledger.get(row.uuid).status, here.ledger.get(row.uuid).error_code) == (Status.FAILED, "bug")
