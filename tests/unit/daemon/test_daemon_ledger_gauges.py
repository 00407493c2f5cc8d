"""The gauges against real rows."""

import pytest

from agent import clock
from agent.daemon.ledger_gauges import snapshot
from agent.daemon.task_reasons import REASONS
from agent.forge.rate_limiter import RateLimiter
from agent.observe.gauges import RateLimit


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


def test_reasons_rate_limits_and_the_disk_are_told(place, time):
    here = place()
    here.row(1)
    here.ledger.claim(here.row(2), here.wiring.owner, 60)
    limiter = RateLimiter(here.settings.base_dir / "limits", "api.github.com")
    limiter.note_budget("core", remaining=7, limit=60, reset_in=60)
    limiter.slow_down("search", 60, "slowly")
    found = snapshot(here.settings)
    assert {code: count for code, count in found.waiting.items() if count} == {"daemon": 2}
    assert set(found.waiting) == set(REASONS) - {"ci"}
    assert found.limits == (RateLimit("api.github.com", "core", 7, 60),)
    assert 0 < found.disk[0] < found.disk[1]
    assert found.jobs == (0 if here.settings.memory.enabled else None)
