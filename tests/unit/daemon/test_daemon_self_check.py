"""A daemon notices that base_dir, its lock or tasks.db was removed or replaced, and that the schema is newer."""

import os
import shutil

import pytest

from agent import clock, durable_files
from agent.daemon.program_version import lock_of
from agent.daemon.self_check import SelfCheck
from agent.daemon.supervisor import Supervisor
from agent.store import migrate
from agent.values import Status


@pytest.fixture
def stand(place):
    here = place("scheduling: {max_workers: 1}\n")
    here.settings.base_dir.mkdir()
    ground = SelfCheck(here.wiring, durable_files.lock(lock_of(here.settings)))
    yield here, ground
    ground.close()


def test_nothing_is_said_while_everything_is_as_it_was(stand):
    here, ground = stand
    here.row(1)
    assert not ground.check()
    assert (ground.why, here.said) == ("", [])


def test_a_base_dir_that_was_removed_is_made_again_with_its_lock_and_its_rows(stand):
    here, ground = stand
    here.row(1)
    shutil.rmtree(here.settings.base_dir)
    assert ground.check()
    assert ground.why == ""
    assert durable_files.is_locked(lock_of(here.settings)), "no second daemon may come beside it"
    paths = [fields["path"] for fields in here.named("ground_replaced")]
    assert paths == [str(here.settings.base_dir), str(here.settings.base_dir / "tasks.db")]
    assert here.ledger.list() == []
    assert here.row(2) is not None
    assert not ground.check(), "it is said once"


@pytest.mark.parametrize("names", [("tasks.db",), ("tasks.db", "tasks.db-wal", "tasks.db-shm")])
def test_a_tasks_db_that_was_removed_is_made_again_for_every_connection(stand, names):
    here, ground = stand
    here.row(1)
    for name in names:
        (here.settings.base_dir / name).unlink()
    assert ground.check()
    assert here.row(2) is not None
    with here.ledger.db.transaction():
        here.ledger.db.run("ledger_counts")
    from agent.wiring.wiring import Wiring

    other = Wiring(here.settings)
    try:
        assert [row.task_id for row in other.ledger.list()] == ["2"], "what was written is in the file that is there"
    finally:
        other.close()


def test_a_daemon_whose_lock_another_one_has_starts_nothing_and_says_so(stand):
    here, ground = stand
    lock_of(here.settings).unlink()
    other = durable_files.lock(lock_of(here.settings))
    ground.check()
    ground.check()
    assert "another daemon works on it now" in ground.why
    assert len(here.named("ground_unfit")) == 1
    durable_files.unlock(other)
    ground.check()
    assert ground.why == ""
    assert len(here.named("ground_fit")) == 1


@pytest.mark.parametrize("name", ["running", "completed"])
@pytest.mark.parametrize("kind", ["file", "dangling link", "not writable"])
def test_a_folder_of_tasks_that_cannot_be_used_is_a_reason_to_start_nothing(stand, monkeypatch, name, kind):
    """Workers ended before they owned their task, one after another, and `health` said "ready"."""
    here, ground = stand
    path = here.settings.base_dir / name
    if kind == "file":
        path.write_text("")
    elif kind == "dangling link":
        path.symlink_to("/no/such/folder")
    else:
        path.mkdir(mode=0o500)
        if os.geteuid() == 0:  # root may write everywhere; what the kernel says to others
            monkeypatch.setattr(os, "access", lambda asked, _mode: asked != path)
    ground.check()
    assert ground.why.startswith(f"{path} ")
    assert Supervisor(here.wiring, ground=ground).reasons_not_to_start() == [ground.why]
    assert here.named("ground_unfit") == [{"why": ground.why}]
    if path.is_dir():
        monkeypatch.undo()
        path.rmdir()
    else:
        path.unlink()
    ground.check()
    assert ground.why == ""


def test_a_daemon_whose_ledger_got_a_newer_schema_starts_nothing_and_says_so(stand):
    here, ground = stand
    here.row(1)
    newest = migrate.migrations(migrate.TASKS)[-1][0]
    here.ledger.db.execute(
        "INSERT INTO schema_version (version, name, applied_at) VALUES (:version, 'future', '')", version=newest + 1
    )
    supervisor = Supervisor(here.wiring, ground=ground)
    supervisor.step()
    assert supervisor.children == {}
    (said,) = here.named("ground_unfit")
    assert f"schema {newest + 1}, this version knows {newest}" in said["why"]


def test_a_worker_that_ends_unclaimed_while_its_task_waits_is_said_and_waits_longer_each_time(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    for seconds in (2.0, 4.0):
        supervisor.handle_unclaimed(uuid, 0, "its lock is held")
        assert here.named("worker_unclaimed")[-1] == {
            "uuid": uuid,
            "exit_code": 0,
            "why": "its lock is held",
            "seconds": seconds,
        }
        assert supervisor.startable() == []
    assert supervisor.exit_codes.worst() == 3, "`run --once` does not say that all went well"


def test_a_worker_that_came_second_leaves_nothing_to_be_said(place):
    here = place()
    supervisor = Supervisor(here.wiring)
    claim = here.claim(1)
    supervisor.handle_unclaimed(claim.uuid, 0, "task is running")
    here.ledger.release(claim.uuid, claim.attempt, clock.now().replace(year=2099))
    supervisor.handle_unclaimed(claim.uuid, 0, "task is not due")
    assert here.ledger.get(claim.uuid).status is Status.QUEUED
    assert (here.said, supervisor.delays.known) == ([], {})
