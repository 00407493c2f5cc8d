"""A worker's claim, and what it leaves when it cannot work."""

import multiprocessing
import signal

import pytest
from run_home import UUID

from agent import clock, disk
from agent.errors import ConfigError, DiskError, Fenced, IssueUnreadable, LedgerError
from agent.run import worker
from agent.values import Status


@pytest.fixture
def signals():
    """Put back what a worker takes over."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["..", "a/b", "0D000000-0000-4000-8000-000000000001", ""])
def test_only_a_uuid_in_its_one_form_becomes_a_folder(place, name):
    here = place()
    with pytest.raises(ValueError):
        worker.make_folder(here.settings, name)
    assert not (here.settings.base_dir / "running").exists()


def test_a_task_that_somebody_holds_is_left_alone(place):
    here = place()
    uuid = here.row(1)
    lock = disk.lock(worker.make_folder(here.settings, uuid) / "lock")
    receive, send = multiprocessing.Pipe(duplex=False)
    assert worker.process_task(here.settings, uuid, send) == 0
    assert "is locked by another process" in receive.recv()
    assert here.ledger.get(uuid).status is Status.QUEUED
    disk.unlock(lock)
    receive.close()


def test_a_row_that_is_not_queued_is_left_alone(place):
    here = place()
    claim = here.claim(1)
    receive, send = multiprocessing.Pipe(duplex=False)
    assert worker.process_task(here.settings, claim.uuid, send) == 0
    assert f"task {claim.uuid} is running, held by" in receive.recv()
    assert here.ledger.get(claim.uuid).attempt == claim.attempt
    receive.close()


def test_a_source_that_is_not_configured_any_more_ends_the_task_with_that_word(place, signals):
    here = place()
    key = here.key(1) | {"instance": str(here.folder / "elsewhere")}
    uuid = here.ledger.put(key, uuid=UUID % 1)
    with pytest.raises(ConfigError, match="not configured"):
        worker.process_task(here.settings, uuid)
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "config")
    assert "not configured" in row.error_message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (IssueUnreadable("gone"), Status.FAILED),
        (DiskError("full"), Status.QUEUED),
        (LedgerError("the connection was cut"), Status.QUEUED),
        (Fenced("a newer attempt"), Status.RUNNING),
    ],
)
def test_a_row_that_was_left_running_is_let_go_as_the_error_wants(place, error, status):
    here = place()
    claim = here.claim(1)
    worker.give_up(here.wiring, claim, error)
    row = here.ledger.get(claim.uuid)
    assert row.status is status
    if status is Status.QUEUED:
        assert clock.parse(row.not_before) > clock.now()


def test_a_row_that_the_handler_ended_is_not_touched(place):
    here = place()
    claim = here.claim(1)
    here.ledger.end(claim.uuid, claim.attempt, "failed", error_code="verify_failed")
    worker.give_up(here.wiring, claim, IssueUnreadable("gone"))
    assert here.ledger.get(claim.uuid).error_code == "verify_failed"
