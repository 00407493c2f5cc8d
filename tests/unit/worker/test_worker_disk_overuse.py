"""A full disk: what the task that grew most gives up, so that its own commit has room too, and whom it waits for."""

import os
import threading
from types import SimpleNamespace

import pytest

from agent import durable_files
from agent.values import End, Outcome
from agent.wiring import disk_space
from agent.worker.disk_overuse import AGAIN, FAN_OUT, LOCK, DiskOveruse, Leftovers

INODES = 3000
LEAST = INODES // 100


@pytest.fixture
def full(place, monkeypatch):
    """A task whose commands left many files, on a file system that has room for INODES and for little else."""
    here = place("scheduling: {min_free: 1M}\n")
    folder = here.settings.base_dir / "running" / "one"
    tree = folder / "workspace"
    (tree / "d").mkdir(parents=True)
    taken = os.statvfs(here.folder)

    def statvfs(_path):
        files = sum(len(names) for _, _, names in os.walk(folder))
        facts = {name: getattr(taken, name) for name in ("f_flag", "f_frsize")}
        return SimpleNamespace(**facts, f_bavail=(1 << 40) // taken.f_frsize, f_files=INODES, f_favail=INODES - files)

    monkeypatch.setattr(disk_space.os, "statvfs", statvfs)

    def make(number, *, written=(), ignored=False):
        names = [f"d/{count}" for count in range(number)]
        for name in names:
            (tree / name).touch()
        return DiskOveruse(
            here.settings, folder, lambda: Leftovers(tree, here_now(), [] if ignored else here_now(), written)
        )

    def here_now():
        return [f"d/{one}" for one in os.listdir(tree / "d")]

    make.settings = here.settings
    make.left = lambda: len(here_now())
    make.here_now = here_now
    return make


def ends(one):
    one.outcome = Outcome(End.LIMIT, code="limit_disk")
    return one


def test_as_many_files_go_as_others_and_its_own_commit_need(full):
    """Each file that is left is kept once more, as an object of git."""
    said = ends(full(INODES)).free_space()
    left = full.left()
    assert INODES - left >= AGAIN * LEAST + left + FAN_OUT
    assert left > 1000, "no more than that"
    assert "files that git did not know were removed" in said[0]


def test_files_that_no_commit_takes_need_no_room_for_it(full):
    ends(full(INODES, ignored=True)).free_space()
    assert INODES - full.left() == AGAIN * LEAST


def test_what_tools_wrote_stays(full):
    written = [f"d/{count}" for count in range(2900)]
    ends(full(INODES, written=written)).free_space()
    assert sorted(full.here_now()) == sorted(written)


def test_what_could_not_be_committed_goes_whole_where_the_disk_is_full_again(full):
    one = ends(full(INODES, written=["d/7"]))
    one.free_space()
    assert one.free_space(whole=True) == [], "there is room: something else stood in the way"
    full(INODES)
    assert one.free_space(whole=True)
    assert full.here_now() == ["d/7"]


def test_nothing_goes_of_a_task_that_does_not_end(full):
    one = full(INODES)
    assert one.free_space() == one.free_space(whole=True) == []
    assert full.left() == INODES


def test_a_task_whose_write_failed_waits_for_one_that_looks_meanwhile(full):
    """One that paused instead would keep its files for ever: nobody ends a task that does not run."""
    one = full(INODES)
    held = durable_files.lock(full.settings.base_dir / LOCK)
    assert one() is None, "a look by the way does not wait"
    later = threading.Timer(0.3, lambda: durable_files.unlock(held))
    later.start()
    outcome = one.check_now()
    later.join()
    assert outcome is not None
    assert outcome.code == "limit_disk"
    one.free_space()
    durable_files.unlock(durable_files.lock(full.settings.base_dir / LOCK))
