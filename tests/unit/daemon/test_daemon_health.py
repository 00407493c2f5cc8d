"""What is said of a daemon's health, by whoever asks from outside."""

import os
import time

import pytest

from agent import clock, durable_files
from agent.daemon.health import BEAT_SECONDS, SILENT_SECONDS, HealthFile, path_of, read_health
from agent.daemon.program_version import lock_of
from agent.daemon.start_delays import LONGEST_WHY, StartDelays
from agent.daemon.start_holds import StartHolds


@pytest.fixture
def daemon(place):
    """A place whose daemon's lock is held."""
    here = place()
    here.settings.base_dir.mkdir()
    lock = durable_files.lock(lock_of(here.settings))
    yield here
    durable_files.unlock(lock)


def test_nobody_there_is_neither_live_nor_ready(place):
    here = place()
    found = read_health(here.settings)
    assert (found.live, found.ready) == (False, False)
    assert found.why == (f"no daemon works on {here.settings.base_dir}; `main.py run` starts one",)


def test_a_daemon_that_goes_round_is_ready_and_one_that_starts_nothing_says_why(daemon):
    pulse = HealthFile(daemon.settings)
    assert not read_health(daemon.settings).live, "it has said nothing yet"
    pulse.write([])
    assert read_health(daemon.settings) == (found := read_health(daemon.settings))
    assert (found.live, found.ready, found.why) == (True, True, ())
    pulse.write(["", "the disk is full"])
    found = read_health(daemon.settings)
    assert (found.live, found.ready, found.why) == (True, False, ("the disk is full",))


def test_words_that_are_no_text_or_have_no_end_stop_no_daemon(daemon):
    delays = StartDelays()
    delays.delay_start("u", 5, "the path \udcff" + "x" * 100_000)
    HealthFile(daemon.settings).write(["the disk of \udcff is full"], delays.explained())
    found = read_health(daemon.settings)
    assert found.why == ("the disk of \ufffd is full",)
    assert found.delays["u"].why.startswith("the path \ufffdx")
    assert len(found.delays["u"].why) < LONGEST_WHY + 50


def test_a_daemon_that_hangs_cannot_say_that_it_is_well(daemon):
    HealthFile(daemon.settings).write([])
    long_ago = time.time() - SILENT_SECONDS - 5
    os.utime(path_of(daemon.settings), (long_ago, long_ago))
    found = read_health(daemon.settings)
    assert not found.live
    assert "has not gone round for 65 s" in found.why[0]


def test_a_beat_touches_the_file_and_writes_it_only_for_news(daemon):
    pulse, path = HealthFile(daemon.settings), path_of(daemon.settings)
    with clock.use(clock.FakeClock(clock.now())) as now:
        pulse.write([])
        os.utime(path, (1, 1))
        pulse.write([])
        assert path.stat().st_mtime == 1, "a few times a minute is enough"
        inode = path.stat().st_ino
        now.move(BEAT_SECONDS)
        pulse.write([])
        assert path.stat().st_mtime > 1
        assert path.stat().st_ino == inode
        path.unlink()
        now.move(BEAT_SECONDS)
        pulse.write([])
        assert read_health(daemon.settings).ready


def test_held_starts_are_a_reason_but_for_those_of_one_repository(daemon):
    HealthFile(daemon.settings).write([])
    holds = StartHolds(daemon.settings, daemon.ledger, daemon.events)
    for first, kind in ((2, "repository"), (5, "host")):
        for number in range(first, first + 3):
            holds._count_failure(kind, "git_starved", daemon.ledger.get(daemon.row(number)))
    holds._write()
    found = read_health(daemon.settings)
    assert (found.live, found.ready, len(found.why)) == (True, False, 1)
    assert found.why[0].startswith("this host ")
