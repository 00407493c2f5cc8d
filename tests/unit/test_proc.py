"""Commands of this program: bounded output, an end in time, and no process left."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from agent import proc

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def run(script, **options):
    return proc.run(["/bin/sh", "-c", script], env=ENV, **{"timeout": 30, **options})


def test_output_and_exit_code_are_kept():
    done = run("echo out; echo err >&2; exit 3")
    assert (done.returncode, sorted(done.output.split()), done.timed_out) == (3, [b"err", b"out"], False)


def test_the_environment_is_exactly_what_is_given():
    done = proc.run(["/usr/bin/env"], env={"ONLY": "this"}, timeout=30)
    assert done.output == b"ONLY=this\n"


def test_standard_input_is_closed_unless_it_is_given():
    assert run("cat").output == b""
    assert run("cat", stdin=b"x" * 300_000, cap=1 << 20).output == b"x" * 300_000


def test_long_output_keeps_head_and_tail_and_says_how_much_is_missing(tmp_path):
    done = run("seq 1 100000", cap=1000, spool=tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    assert whole == b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert done.output.startswith(b"1\n2\n")
    assert done.output.endswith(b"100000\n")
    assert done.dropped == len(whole) - 1000
    assert (tmp_path / "whole").stat().st_mode & 0o777 == 0o600


def test_what_was_printed_before_a_stop_is_kept_and_a_flood_does_not_hold_it(tmp_path):
    seen = tmp_path / "begun"

    def stop():  # only when all of it lies in the pipe
        while not seen.exists():
            time.sleep(0.01)
        return True

    done = run(f"seq 1 5000; touch {seen}; sleep 60", stop=stop, cap=1 << 20)
    assert (done.timed_out, done.output.endswith(b"\n5000\n")) == (True, True)
    assert run("exec cat /dev/zero", stop=lambda: True, cap=1000).timed_out


def test_the_whole_group_is_killed_at_the_time_out_and_what_was_said_is_kept():
    nap = str(300_000 + os.getpid())  # seconds that nobody else on this machine sleeps
    done = run(f"echo said; sleep {nap} & sleep {nap}", timeout=0.5)
    assert done.timed_out
    assert done.output == b"said\n"
    assert nap.encode() not in subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout


def test_the_kernel_ends_what_outlives_a_killed_worker(tmp_path):
    """A worker that `kill -9` ended left a git that computed for more than an hour, with nobody to end it."""
    told = tmp_path / "pid"
    script = f"echo $$ > {told}.new; mv {told}.new {told}; while :; do :; done"
    code = f"from agent import proc; proc.run(['/bin/sh', '-c', {script!r}], env={ENV!r}, timeout=3)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2]) as worker:
        while not told.exists() and worker.poll() is None:
            time.sleep(0.01)
        left = int(told.read_text())
        # The limit is set just after the start: only then the kernel is sure to end the command.
        while resource.prlimit(left, resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY and worker.poll() is None:
            time.sleep(0.01)
        worker.kill()
    assert worker.returncode == -signal.SIGKILL, "it was killed before its own time-out"
    try:
        assert proc.wait_gone(left, 300, collect=False)
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def test_a_stop_ends_it():
    done = run("sleep 60", stop=lambda: True)
    assert done.timed_out
    assert done.returncode == -signal.SIGKILL


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us():
    started = time.monotonic()
    done = run("echo done; sleep 55 &")
    assert done.output == b"done\n"
    assert time.monotonic() - started < 40


def test_a_program_that_is_not_there_is_an_os_error():
    with pytest.raises(FileNotFoundError):
        proc.run(["/nonexistent/program"], env=ENV, timeout=5)


def test_a_tree_is_found_by_its_uuid_even_after_setsid_and_ended():
    uuid = "11111111-2222-3333-4444-555555555555"
    environment = {**ENV, proc.MARK: uuid}
    child = subprocess.Popen(["/bin/sh", "-c", "setsid sleep 66.6 & sleep 66.6"], env=environment)
    try:
        deadline = time.monotonic() + 30
        while len(proc.marked(uuid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(proc.marked(uuid)) >= 3
        assert proc.end_tree(uuid) >= 3
        assert proc.marked(uuid) == []
    finally:
        child.kill()
        child.wait()


def test_a_uuid_that_begins_alike_is_another_task():
    child = subprocess.Popen(["/bin/sleep", "60"], env={**ENV, proc.MARK: "abc-2"})
    try:
        assert proc.marked("abc") == []
    finally:
        child.kill()
        child.wait()


def test_a_process_is_named_for_its_task_and_keeps_its_environment_visible():
    code = (
        "from agent import proc; proc.title('makimono: x'); import os;"
        "print(open('/proc/self/cmdline').read().strip(chr(0)), b'SEEN=1' in open('/proc/self/environ','rb').read())"
    )
    environment = {**ENV, "SEEN": "1", "PYTHONPATH": os.environ["PYTHONPATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "makimono: x True\n"


DAEMON = """
import os, subprocess, sys
from agent import proc
proc.become_subreaper()
env = {"PATH": "/usr/bin:/bin", "MARK": "m1"}
proc.run(["/bin/sh", "-c", "true"], env=env, timeout=30)
print(proc.end_tree("m1", name="MARK", own=True))
script = "setsid sh -c 'echo > there; exec sleep 600' >/dev/null 2>&1 & until [ -e there ]; do sleep 0.02; done"
proc.run(["/bin/sh", "-c", script], env=env, timeout=30)
print(proc.end_tree("m1", name="MARK", own=True), proc.marked("m1", "MARK"))
"""


def test_what_a_command_left_behind_is_found_and_nothing_is_searched_where_nothing_can_be(tmp_path):
    command = [sys.executable, "-c", DAEMON]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "[]"]


def test_a_process_that_is_just_being_executed_is_waited_for(tmp_path, monkeypatch):
    """In that moment it runs and shows no environment, as one does here for longer."""
    monkeypatch.setattr(proc, "EXECUTING_SECONDS", 60)
    mark = str(uuid4())
    script = f"export MARK={mark}; echo > there; until [ -e go ]; do :; done; exec /bin/sleep 600"
    busy = subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, env={}, start_new_session=True)
    while not (tmp_path / "there").exists():
        time.sleep(0.01)
    after = threading.Timer(0.2, (tmp_path / "go").touch)
    after.start()
    assert proc.end_tree(mark, 60, name="MARK") == 1
    assert busy.wait() == -signal.SIGKILL
    after.join()


def test_without_being_told_of_orphans_everything_is_searched():
    mark = str(uuid4())  # of this run alone: others may test here too
    env = {**ENV, "MARK": mark}
    left = subprocess.Popen(["/bin/sleep", "600"], env=env, start_new_session=True)
    assert proc.end_tree(mark, name="MARK", own=True) == 1
    assert left.wait() == -signal.SIGKILL
