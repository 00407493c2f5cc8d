"""What the working thread does, and until when."""

import threading
import time

import pytest

from agent import clock, disk, proc, step
from agent.errors import Fenced


@pytest.fixture(autouse=True)
def working():
    step.begin()
    yield
    step.finish()


def left():
    return step.current().until - time.monotonic()


def test_plain_work_has_the_allowance():
    assert step.current().name == "start"
    assert step.ALLOWANCE - 5 < left() <= step.ALLOWANCE
    assert not step.current().overdue


def test_a_step_has_its_own_end_and_gives_back_to_what_was_before():
    with step.within("clone", 3600):
        assert step.current().name == "clone"
        assert 3600 < left() <= 3600 + step.MARGIN
        with step.within("wait", 1):
            assert step.current().name == "wait"
            assert left() <= 1 + step.MARGIN
        assert step.current().name == "clone"
        assert left() > 3000
    assert step.current().name == "start"
    assert left() <= step.ALLOWANCE + step.MARGIN + 3600


def test_work_after_a_step_has_the_allowance_again():
    step.begin(allowance=-1)
    assert step.current().overdue
    with step.within("command", 1):
        assert not step.current().overdue
    assert left() > step.ALLOWANCE - 5


def test_a_step_that_outlives_its_end_is_overdue():
    with step.within("hangs", -step.MARGIN - 1):
        assert step.current().overdue


def test_another_thread_says_nothing():
    def beside():
        with step.within("beside", 99999):
            pass

    before = step.current()
    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert step.current() is before


def test_without_a_task_nothing_is_kept():
    step.finish()
    before = step.current()
    with step.within("a command line's git", 9):
        assert step.current() is before
    step.cut(Fenced("nobody hears it"))
    step.check()


def test_commands_waits_and_locks_say_how_long_they_may_take(tmp_path):
    seen = []

    def stop():
        seen.append((step.current().name, left()))
        return True

    assert proc.run(["/bin/sleep", "60"], env={}, timeout=60, stop=stop).timed_out
    name, seconds = seen[0]
    assert name == "sleep"
    assert 55 < seconds <= 60 + step.MARGIN
    watched = threading.Thread(target=lambda: (time.sleep(0.1), seen.append((step.current().name, left()))))
    watched.start()
    clock.sleep(0.3)
    watched.join()
    assert seen[-1][0] == "wait"
    before = step.current()
    with disk.locked(tmp_path / "lock"):
        assert step.current() is not before


def test_a_cut_ends_the_command_and_everything_after_it(tmp_path):
    marker = tmp_path / "still there"
    cutter = threading.Timer(0.3, step.cut, [Fenced("attempt 2 owns it")])
    cutter.start()
    started = time.monotonic()
    with pytest.raises(Fenced, match="attempt 2"):
        proc.run(["/bin/sh", "-c", f"sleep 30; touch '{marker}'"], env={"PATH": "/usr/bin:/bin"}, timeout=60)
    assert time.monotonic() - started < 25
    with pytest.raises(Fenced):
        proc.run(["/bin/true"], env={}, timeout=5)
    with pytest.raises(Fenced):
        clock.sleep(0)
    step.finish()
    clock.sleep(0)
    assert not marker.exists()
