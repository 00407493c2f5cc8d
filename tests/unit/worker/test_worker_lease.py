"""The lease is kept while the work gets on, and no longer."""

import os
from datetime import timedelta

import pytest
from flow_home import until

from agent import clock, deadline, durable_files
from agent.context import TaskContextManager
from agent.context.manager import LEASE_SECONDS
from agent.errors import Fenced
from agent.worker import lease as leases
from agent.worker.lease import Lease
from agent.worker.task_run import TaskRun


@pytest.fixture
def held(place):
    """(place, claim) of issue 1."""
    here = place()
    here.issue(1)
    yield here, here.claim(1)
    deadline.finish()


def until_of(here, claim):
    return here.ledger.get(claim.uuid).lease_until


def test_it_is_renewed_while_a_step_has_time(held, monkeypatch):
    here, claim = held
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.02)
    before = until_of(here, claim)
    with Lease(here.ledger, claim.uuid, claim.attempt, here.events), deadline.within("clone", 3600):
        until(lambda: until_of(here, claim) > before, "a renewal")
        assert clock.parse(until_of(here, claim)) > clock.now() + timedelta(seconds=LEASE_SECONDS - 30)
    after = until_of(here, claim)
    assert deadline.current().name == "start"
    assert until_of(here, claim) == after


def test_a_step_that_hangs_loses_it_and_is_named_once(held):
    here, claim = held
    before = until_of(here, claim)
    lease = Lease(here.ledger, claim.uuid, claim.attempt, here.events)
    deadline.begin()
    with deadline.within("git", -deadline.MARGIN - 1):
        lease.renew()
        lease.renew()
    assert until_of(here, claim) == before
    assert here.named("step_overdue") == [{"uuid": claim.uuid, "step": "git", "seconds": -1}]
    lease.renew()
    assert until_of(here, claim) > before


def test_a_newer_attempt_cuts_the_step(held):
    here, claim = held
    here.ledger.release(claim.uuid, claim.attempt)
    here.ledger.claim(claim.uuid, "elsewhere:/x:1:1", 60)
    lease = Lease(here.ledger, claim.uuid, claim.attempt, here.events)
    deadline.begin()
    lease.renew()
    with pytest.raises(Fenced), deadline.within("push", 60):
        pass


def test_a_busy_database_costs_nothing(held):
    here, claim = held
    lease = Lease(here.ledger, claim.uuid, claim.attempt, here.events)
    deadline.begin()
    here.ledger.db._connection.execute("ALTER TABLE tasks RENAME TO away")
    lease.renew()
    here.ledger.db._connection.execute("ALTER TABLE away RENAME TO tasks")
    deadline.check()
    before = until_of(here, claim)
    lease.renew()
    assert until_of(here, claim) > before


def test_the_control_hears_that_the_task_is_lost(held):
    here, claim = held
    context = TaskContextManager(claim.key, claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db)
    run = TaskRun(here.wiring, context)
    deadline.begin()
    assert run.control.poll() is None
    deadline.interrupt(Fenced("another attempt"))
    run.control.row_at = -1000.0
    assert run.control.poll().code == "fenced"
    context.close()


def test_a_sync_that_takes_as_long_as_the_disk_wants_keeps_the_lease_and_is_noticed(held, tmp_path, monkeypatch):
    """The thread that works waits in fsync; the one that renews does not."""
    here, claim = held
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(durable_files, "SLOW", 0.01)
    real, seen = os.fsync, []

    def slow(descriptor):
        for _ in range(3):
            before = until_of(here, claim)
            until(lambda before=before: until_of(here, claim) > before, "a renewal while the disk works")
            seen.append(before)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with Lease(here.ledger, claim.uuid, claim.attempt, here.events):
        durable_files.write_file(tmp_path / "current.jsonl", b"x")
    assert len(set(seen)) == 6, "of the file and of its folder"
    assert here.named("step_overdue") == []
    told = here.named("disk_slow")
    assert {os.path.basename(one["file"]) for one in told} >= {"current.jsonl", tmp_path.name}
    assert all(one["seconds"] >= 0.01 and one["what"] in ("sync", "row") for one in told)
