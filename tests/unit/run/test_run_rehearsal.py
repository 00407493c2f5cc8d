"""A rehearsal works a task off and leaves nothing but memory."""

import json
import os
import subprocess
import sys

CHILD = """
import json, logging, os, signal, sys, threading
import agent.run.preload
from agent.run.rehearsal import rehearse
def state():
    handlers = [type(one).__name__ for one in logging.getLogger().handlers]
    numbers = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
    held = sorted(os.readlink(f"/proc/self/fd/{n}") for n in numbers)
    return [held, threading.active_count(), handlers, str(signal.getsignal(signal.SIGTERM)), os.getcwd()]
before = state()
went = rehearse()
print(json.dumps([went, before, state()]))
"""


def rehearsed(place, **environment):
    place.mkdir()
    env = {**os.environ, "TMPDIR": str(place), **environment}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_rehearsal_leaves_no_files_threads_handlers_or_descriptors(tmp_path):
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
