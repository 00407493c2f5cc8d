"""What the working thread does, and until when."""

import threading
import time

import pytest

from agent import clock, deadline, durable_files, proc
from agent.errors import Fenced


@pytest.fixture(autouse=True)
def working():
    deadline.begin()
    yield
    deadline.finish()


def left():
    return deadline.current().until - time.monotonic()


def test_plain_work_has_the_allowance():
    assert deadline.current().name == "start"
    assert deadline.ALLOWANCE - 5 < left() <= deadline.ALLOWANCE
    assert not deadline.current().overdue


def test_a_step_has_its_own_end_and_gives_back_to_what_was_before():
    with deadline.within("clone", 3600):
        assert deadline.current().name == "clone"
        assert 3600 < left() <= 3600 + deadline.MARGIN
        with deadline.within("wait", 1):
            assert deadline.current().name == "wait"
            assert left() <= 1 + deadline.MARGIN
        assert deadline.current().name == "clone"
        assert left() > 3000
    assert deadline.current().name == "start"
    assert left() <= deadline.ALLOWANCE + deadline.MARGIN + 3600


def test_work_after_a_step_has_the_allowance_again():
    deadline.begin(allowance=-1)
    assert deadline.current().overdue
    with deadline.within("command", 1):
        assert not deadline.current().overdue
    assert left() > deadline.ALLOWANCE - 5


def test_a_step_that_outlives_its_end_is_overdue():
    with deadline.within("hangs", -deadline.MARGIN - 1):
        assert deadline.current().overdue


def test_another_thread_says_nothing():
    def beside():
        with deadline.within("beside", 99999):
            pass

    before = deadline.current()
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert deadline.current() is before


def test_without_a_task_nothing_is_kept():
    deadline.finish()
    before = deadline.current()
    with deadline.within("a command line's git", 9):
        assert deadline.current() is before
    deadline.interrupt(Fenced("nobody hears it"))
    deadline.check()


def test_commands_waits_and_locks_say_how_long_they_may_take(tmp_path):
    seen = []

    def stop():
        seen.append((deadline.current().name, left()))
        return True

    assert proc.run(["/bin/sleep", "60"], env={}, timeout=60, stop=stop).timed_out
    name, seconds = seen[0]
    assert name == "sleep"
    assert 55 < seconds <= 60 + deadline.MARGIN
    watched = threading.Thread(target=lambda: (time.sleep(0.1), seen.append((deadline.current().name, left()))))
    watched.start()
    clock.sleep(0.3)
    watched.join()
    assert seen[-1][0] == "wait"
    before = deadline.current()
    with durable_files.locked(tmp_path / "lock"):
        assert deadline.current() is not before


def test_a_cut_ends_the_command_and_everything_after_it(tmp_path):
    marker = tmp_path / "still there"
    cutter = threading.Timer(0.3, deadline.interrupt, [Fenced("attempt 2 owns it")])
    cutter.start()
    started = time.monotonic()
    with pytest.raises(Fenced, match="attempt 2"):
        proc.run(["/bin/sh", "-c", f"sleep 30; touch '{marker}'"], env={"PATH": "/usr/bin:/bin"}, timeout=60)
    assert time.monotonic() - started < 25
    with pytest.raises(Fenced):
        proc.run(["/bin/true"], env={}, timeout=5)
    with pytest.raises(Fenced):
        clock.sleep(0)
    deadline.finish()
    clock.sleep(0)
    assert not marker.exists()
