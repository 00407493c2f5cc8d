"""What cleanup removes beside tasks: only what nobody used for as long, and never what a task borrows."""

import os
import time
from datetime import timedelta

import pytest
from run_home import UUID

from agent import clock, durable_files
from agent.commands.cleanup import cleanup


@pytest.fixture
def here(place):
    made = place()
    made.row(1)  # a queued task: a cleanup looks past it
    return made


def aged(path, days):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - days * 86400,) * 2)
    return path.parent


def mirror(here, days, name="r"):
    return aged(here.settings.base_dir / "repos" / "host" / "owner" / f"{name}.git" / "made", days)


def borrow(here, mirror, parent="completed"):
    path = here.settings.base_dir / parent / (UUID % 7) / "git" / "objects" / "info" / "alternates"
    path.parent.mkdir(parents=True)
    path.write_text(f"{mirror}/objects\n")


def gone(here, **options):
    return [(one.status, one.uuid) for one in cleanup(here.settings, here.ledger, **options)]


def test_a_mirror_goes_when_nobody_used_it_for_as_long_as_tasks_are_kept(here):
    old, new = mirror(here, 31, "old"), mirror(here, 29, "new")
    assert gone(here, dry_run=True) == [("mirror", "host/owner/old.git")]
    assert old.is_dir()
    assert gone(here) == [("mirror", "host/owner/old.git")]
    assert not old.exists()
    assert new.is_dir()


@pytest.mark.parametrize("parent", ["completed", "running", "quarantine", "replays/x/completed"])
def test_a_mirror_from_which_a_kept_task_borrows_stays(here, parent):
    lent = mirror(here, 400)
    borrow(here, lent, parent)
    assert gone(here) == []
    assert lent.is_dir()


def test_a_mirror_that_is_being_fetched_or_was_used_just_now_stays_whatever_the_age(here):
    busy, fresh = mirror(here, 400, "busy"), mirror(here, 0, "fresh")
    lock = durable_files.lock(busy.with_name(".busy.git.lock"))
    assert gone(here, days=0) == []
    durable_files.unlock(lock)
    assert gone(here, days=0) == [("mirror", "host/owner/busy.git")]
    assert fresh.is_dir()


def test_a_link_among_the_mirrors_is_not_followed(here):
    precious = here.folder / "precious"
    aged(precious / "owner" / "r.git" / "made", 400)
    (here.settings.base_dir / "repos").mkdir(parents=True)
    (here.settings.base_dir / "repos" / "host").symlink_to(precious)
    assert gone(here) == []
    assert (precious / "owner" / "r.git" / "made").exists()


def test_a_cached_set_up_goes_by_its_last_use(here):
    old = aged(here.settings.base_dir / "setup" / ("a" * 32) / "done.json", 31)
    new = aged(here.settings.base_dir / "setup" / ("b" * 32) / "done.json", 29)
    lock = durable_files.lock(old.with_name(f".{old.name}.lock"))
    assert gone(here) == []
    durable_files.unlock(lock)
    assert gone(here) == [("setup", "a" * 32)]
    assert new.is_dir()


def test_what_is_in_quarantine_or_has_no_row_goes_when_it_has_lain_there_long_enough(here):
    aside = here.settings.base_dir / "quarantine" / "strange"
    aside.mkdir(parents=True)
    (aside.parent / "link").symlink_to("/etc")
    lost = here.settings.base_dir / "completed" / (UUID % 9)
    lost.mkdir(parents=True)
    open_task = here.settings.base_dir / "completed" / (UUID % 1)
    open_task.mkdir()
    assert gone(here) == []
    with clock.use(clock.FakeClock(clock.now() + timedelta(days=31))):
        assert sorted(gone(here)) == [("quarantine", "link"), ("quarantine", "strange"), ("unlisted", UUID % 9)]
    assert not aside.exists()
    assert not lost.exists()
    assert open_task.is_dir()
