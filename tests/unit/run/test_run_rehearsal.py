"""A rehearsal works a task off and leaves nothing but memory."""

import json
import os
import subprocess
import sys

CHILD = """
import gc, json, logging, os, signal, sys, threading
import agent.run.preload
from agent.run.wiring import Wiring
from agent.run.rehearsal import rehearse
def state():
    handlers = [type(one).__name__ for one in logging.getLogger().handlers]
    numbers = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
    held = sorted(os.readlink(f"/proc/self/fd/{n}") for n in numbers)
    wirings = sum(isinstance(one, Wiring) for one in gc.get_objects())
    return [held, threading.active_count(), handlers, str(signal.getsignal(signal.SIGTERM)), os.getcwd(), wirings]
before = state()
went = rehearse(tasks=2)
print(json.dumps([went, before, state()]))
"""


def rehearsed(place, **environment):
    place.mkdir()
    env = {**os.environ, "TMPDIR": str(place), **environment}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_rehearsal_leaves_no_files_threads_handlers_descriptors_or_objects(tmp_path):
    went, before, after = rehearsed(tmp_path / "t")
    assert went
    assert after == before
    assert list((tmp_path / "t").iterdir()) == []


def test_where_git_does_not_work_there_is_no_rehearsal_and_no_word_about_it(tmp_path):
    broken = tmp_path / "git"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    went, before, after = rehearsed(tmp_path / "t", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not went
    assert after == before
    assert list((tmp_path / "t").iterdir()) == []


PRELOAD = """
import gc, json, os, sys
import agent.run.preload_many as preload
from agent.run import worker
print(json.dumps([id(worker.main.__code__) in preload.ran, len(preload.ran), len(os.listdir("/proc/self/fd"))]))
"""


def test_the_preload_for_many_has_seen_a_whole_worker_and_holds_its_copies():
    done = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    still_the_old_code, seen, descriptors = json.loads(done.stdout)
    assert seen > 1000
    assert not still_the_old_code  # `main` ran in the forked worker, and was copied
    assert descriptors == 4  # the three of any process, and the listing
