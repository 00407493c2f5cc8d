"""The gauges against real rows."""

import pytest

from agent import clock
from agent.daemon.ledger_gauges import snapshot


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as fake:
        yield fake


def test_rows_are_told_by_status_host_and_age(place, time):
    here = place()
    first, second = here.row(1), here.row(2)
    time.move(30)
    waiting = here.row(3)
    here.ledger.claim(first, here.wiring.owner, 60)
    claimed = here.ledger.claim(second, "0123456789ab:/other/contexts:7:99", 60)
    time.move(10)
    held = here.ledger.enqueue(here.key(4), not_before=clock.now().replace(year=2099))
    found = snapshot(here.settings)
    assert found.workers == 1, "the other base_dir has its own"
    host = here.ledger.get(first).hostname
    by = {(one.status, one.host): (one.count, one.age) for one in found.groups}
    assert by["running", host] == (2, 10.0)
    assert by["queued", ""] == (2, 10.0), "the third waits for 10 s, the fourth is not due"
    here.ledger.release(second, claimed.attempt)
    time.move(5)
    by = {(one.status, one.host): (one.count, one.age) for one in snapshot(here.settings).groups}
    assert by["queued", host] == (1, 15.0), "since its last sign"
    assert {waiting, held} <= {row.uuid for row in here.ledger.list("queued")}
