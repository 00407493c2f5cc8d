"""What cleanup removes: closed tasks by true times, folders and rows, and never one that runs."""

from datetime import timedelta

import pytest
from run_home import UUID

from agent import clock, disk
from agent.run.cleanup import cleanup, folder_of


def ended(here, number, status="completed", days=40.0, parent="completed"):
    """A closed row that ended `days` ago, with a folder."""
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=days))):
        claim = here.claim(number)
        here.ledger.end(claim.uuid, claim.attempt, status)
    folder = here.settings.base_dir / parent / claim.uuid
    folder.mkdir(parents=True)
    (folder / "messages.jsonl").write_text("x" * 100)
    return folder


def left(here):
    return [row.uuid for row in here.ledger.list()]


@pytest.mark.parametrize("status", ["completed", "failed", "stopped"])
def test_every_closed_status_goes_when_it_is_old_enough(place, status):
    here = place()
    old, new = ended(here, 1, status, days=31), ended(here, 2, status, days=29)
    (removed,) = cleanup(here.settings, here.ledger)
    assert (removed.uuid, removed.status, removed.size) == (UUID % 1, status, 100)
    assert not old.exists()
    assert new.exists()
    assert left(here) == [UUID % 2]


def test_times_are_compared_as_times_to_the_second(place):
    here = place()
    ended(here, 1, days=1 + 1 / 86400)
    ended(here, 2, days=1 - 5 / 86400)
    assert [one.uuid for one in cleanup(here.settings, here.ledger, days=1)] == [UUID % 1]


def test_a_dry_run_removes_nothing(place):
    here = place()
    folder = ended(here, 1)
    assert [one.uuid for one in cleanup(here.settings, here.ledger, dry_run=True)] == [UUID % 1]
    assert folder.exists()
    assert left(here) == [UUID % 1]


@pytest.mark.parametrize("status", ["queued", "running", "paused"])
def test_an_open_task_is_never_touched_however_old(place, status):
    here = place()
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=400))):
        uuid = here.row(1) if status == "queued" else here.claim(1).uuid
        if status == "paused":
            here.wiring.db.run("ledger_pause", outcome="asked", uuid=uuid, was="running", attempt=1)
    folder = here.settings.base_dir / "running" / uuid
    folder.mkdir(parents=True)
    assert cleanup(here.settings, here.ledger, days=0) == []
    assert folder.exists()


def test_a_folder_whose_lock_is_held_stays(place):
    here = place()
    folder = ended(here, 1, parent="running")
    lock = disk.lock(folder / "lock")
    try:
        assert cleanup(here.settings, here.ledger) == []
        assert folder.exists()
    finally:
        disk.unlock(lock)
    assert len(cleanup(here.settings, here.ledger)) == 1
    assert not folder.exists()


def test_a_row_without_a_folder_goes_too(place):
    here = place()
    folder = ended(here, 1)
    (folder / "messages.jsonl").unlink()
    folder.rmdir()
    assert [one.size for one in cleanup(here.settings, here.ledger)] == [0]
    assert left(here) == []


def test_a_row_whose_folder_lies_on_another_host_stays_for_that_host(place):
    here = place()
    folder = ended(here, 1)
    here.ledger.db.execute("UPDATE tasks SET hostname = 'another-host'")
    (folder / "messages.jsonl").unlink()
    folder.rmdir()
    assert cleanup(here.settings, here.ledger) == []
    assert len(here.ledger.list()) == 1


@pytest.mark.parametrize("name", ["../../precious", "..", ".", "", "completed", f"{UUID % 1}/../../precious"])
def test_a_uuid_that_is_a_path_is_never_one(place, name):
    here = place()
    precious = here.folder / "precious"
    precious.mkdir()
    (here.settings.base_dir / "completed").mkdir(parents=True)
    assert folder_of(here.settings, name) is None
    assert precious.exists()


def test_a_symlink_in_place_of_a_folder_is_not_followed(place):
    here = place()
    folder = ended(here, 1)
    precious = here.folder / "precious"
    folder.rename(precious)
    folder.symlink_to(precious)
    cleanup(here.settings, here.ledger)
    assert (precious / "messages.jsonl").exists()


def test_folders_that_were_made_read_only_go_too(place):
    """Go's module cache is such."""
    here = place()
    folder = ended(here, 1)
    cache = folder / "home" / "pkg"
    cache.mkdir(parents=True)
    (cache / "mod.go").write_text("x")
    cache.chmod(0o555)
    assert len(cleanup(here.settings, here.ledger)) == 1
    assert not folder.exists()
