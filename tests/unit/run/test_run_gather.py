"""What runs lies together after `gather`, and does what it did."""

import json
import os
import signal
import subprocess
import sys
import threading

from agent.run.gather import gather, watched

WORKER_CODE = """
import gc, json
from types import FunctionType
import agent.run.preload
from agent.run.gather import gather, watched
from agent.run.rehearsal import rehearse
def places(ran):
    codes = {id(f.__code__) for f in gc.get_objects() if type(f) is FunctionType and id(f.__code__) in ran}
    return len({code >> 12 for code in codes}) / len(codes)
gc.unfreeze()
code, ran = watched(rehearse)
before = places(ran)
changed = gather(ran)
again, copies = watched(rehearse)
print(json.dumps([code, again, changed, len(ran & copies), before, places(copies)]))
"""


def doubled(number):
    def twice():
        return number * 2

    return [twice() for _ in range(2)]


def idle():
    return "never called"


def test_a_gathered_function_has_another_code_object_and_does_the_same():
    before, unused = doubled.__code__, idle.__code__
    inner = next(const for const in before.co_consts if getattr(const, "co_name", "") == "twice")
    code, ran = watched(lambda: doubled(1))
    assert code == 0
    assert gather(ran) >= 1
    assert doubled.__code__ is not before
    assert doubled.__code__ == before
    assert all(const is not inner for const in doubled.__code__.co_consts)
    assert idle.__code__ is unused
    assert doubled(21) == [42, 42]


def test_what_runs_in_a_thread_is_watched_too_and_so_is_what_any_fork_runs_first():
    def call():
        thread = threading.Thread(target=doubled, args=(1,))
        thread.start()
        thread.join()

    _, ran = watched(call)
    assert id(doubled.__code__) in ran
    assert id(threading._after_fork.__code__) in ran
    assert id(idle.__code__) not in ran
    assert sys.getprofile() is None
    assert threading.getprofile() is None


def test_what_is_watched_changes_nothing_here_and_its_exit_code_is_told():
    def call():
        changed.append(1)
        doubled(1)
        sys.exit(3)

    changed = []
    code, ran = watched(call)
    assert (code, changed) == (3, [])
    assert id(doubled.__code__) in ran


def test_a_watched_process_that_is_killed_has_shown_nothing():
    code, ran = watched(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert (code, ran) == (-signal.SIGKILL, set())


def test_the_code_of_a_task_takes_far_fewer_pages_once_it_is_gathered():
    command = [sys.executable, "-c", WORKER_CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, again, changed, same, before, after = json.loads(done.stdout)
    assert (code, again) == (0, 0)
    assert changed > 1000
    assert same < changed / 20  # what runs from now on are the copies, but for what no function holds
    assert after < before / 2
