"""What is said of a daemon's health, by whoever asks from outside."""

import os
import time

import pytest

from agent import clock, disk
from agent.run.health import BEAT_SECONDS, SILENT_SECONDS, Pulse, look, path_of
from agent.run.holds import Holds
from agent.run.installed import lock_of


@pytest.fixture
def daemon(place):
    """A place whose daemon's lock is held."""
    here = place()
    here.settings.base_dir.mkdir()
    lock = disk.lock(lock_of(here.settings))
    yield here
    disk.unlock(lock)


def test_nobody_there_is_neither_live_nor_ready(place):
    here = place()
    found = look(here.settings)
    assert (found.live, found.ready) == (False, False)
    assert found.why == (f"no daemon works on {here.settings.base_dir}",)


def test_a_daemon_that_goes_round_is_ready_and_one_that_starts_nothing_says_why(daemon):
    pulse = Pulse(daemon.settings)
    assert not look(daemon.settings).live, "it has said nothing yet"
    pulse.beat([])
    assert look(daemon.settings) == (found := look(daemon.settings))
    assert (found.live, found.ready, found.why) == (True, True, ())
    pulse.beat(["", "the disk is full"])
    found = look(daemon.settings)
    assert (found.live, found.ready, found.why) == (True, False, ("the disk is full",))


def test_a_daemon_that_hangs_cannot_say_that_it_is_well(daemon):
    Pulse(daemon.settings).beat([])
    long_ago = time.time() - SILENT_SECONDS - 5
    os.utime(path_of(daemon.settings), (long_ago, long_ago))
    found = look(daemon.settings)
    assert not found.live
    assert "has not gone round for 65 s" in found.why[0]


def test_a_beat_touches_the_file_and_writes_it_only_for_news(daemon):
    pulse, path = Pulse(daemon.settings), path_of(daemon.settings)
    with clock.use(clock.FakeClock(clock.now())) as now:
        pulse.beat([])
        os.utime(path, (1, 1))
        pulse.beat([])
        assert path.stat().st_mtime == 1, "a few times a minute is enough"
        inode = path.stat().st_ino
        now.move(BEAT_SECONDS)
        pulse.beat([])
        assert path.stat().st_mtime > 1
        assert path.stat().st_ino == inode
        path.unlink()
        now.move(BEAT_SECONDS)
        pulse.beat([])
        assert look(daemon.settings).ready


def test_held_starts_are_a_reason_but_for_those_of_one_repository(daemon):
    Pulse(daemon.settings).beat([])
    holds = Holds(daemon.settings, daemon.ledger, daemon.events)
    row = daemon.ledger.get(daemon.row(1))
    for first, place in ((2, holds._repository(row)), (5, holds._host())):
        for number in range(first, first + 3):
            holds._failed(place, "git_starved", daemon.ledger.get(daemon.row(number)))
    holds._write()
    found = look(daemon.settings)
    assert (found.live, found.ready, len(found.why)) == (True, False, 1)
    assert found.why[0].startswith("this host ")
