"""A real daemon over workers that do not listen, are too large, or leave processes behind."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from flow_home import Held, do, finish, finished, until, write
from pysqlite3 import dbapi2 as sqlite3

from agent import cgroups, proc, process_tree


def test_a_worker_that_does_not_drain_in_time_is_ended_and_its_row_given_back(home):
    held = Held(finish())
    here = home({"Deaf": [write("a.txt"), held]}, config="scheduling: {drain_seconds: 1}\n")
    here.issue(1, "Deaf")
    daemon = here.start("run")
    held.arrived()
    os.kill(here.worker(1), signal.SIGSTOP)  # it cannot drain
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert "drain_overdue" in text
    assert here.worker(1) is None
    row = here.row(1)
    assert (row["status"], row["deaths"]) == ("queued", 0)
    held.go()
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "finish"]


EAT = "python3 -c \"x = bytearray(b'1' * (400 << 20)); import time; time.sleep(600)\""


def test_a_task_that_eats_memory_ends_alone(home):
    held = Held(finish("Small", "It is done."))
    here = home(
        {"Greedy": [do("run_command", command=EAT, timeout=900), finish()], "Neighbour": [write("a.txt"), held]},
        config="limits: {memory: 300M}\n",
    )
    here.issue(1, "Greedy")
    here.issue(2, "Neighbour")
    daemon = here.start("run")
    held.arrived()
    until(lambda: here.row(1).get("status") == "failed", "the end of the greedy one")
    assert here.row(1)["error_code"] == "memory"
    until(lambda: here.label(1) == "coding agent failed", "the label")
    assert proc.marked(here.row(1)["uuid"]) == []
    assert daemon.poll() is None
    held.go()
    until(lambda: here.row(2).get("status") == "completed", "the neighbour's end")
    assert "`limits.memory` is 300M" in here.said(1)[0]
    assert here.row(2)["attempt"] == 1
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def zombies(pid):
    found = []
    for one in process_tree.descendants(pid):
        try:
            stat = Path(f"/proc/{one}/stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] == "Z":
            found.append(stat)
    return found


def test_what_commands_leave_behind_is_no_zombie_while_the_task_goes_on(home):
    """A command that starts something in a session of its own, twice removed, and ends."""
    held = Held(finish())
    leave = "setsid sh -c 'setsid sleep 0.1 & exec sleep 0.1' >/dev/null 2>&1 &"
    steps = [do("run_command", command=leave), do("run_command", command="sleep 1"), do("list_files"), held]
    here = home({"Leaves": steps})
    here.issue(1, "Leaves")
    daemon = here.start("run")
    held.arrived()
    worker = here.worker(1)
    assert zombies(worker) == []
    assert proc.marked(here.row(1)["uuid"]) == []
    os.kill(worker, signal.SIGKILL)
    held.go()
    until(lambda: here.row(1).get("status") == "completed", "the end")
    until(lambda: zombies(daemon.pid) == [], "the end of every zombie")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def is_sleep(pid, seconds):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{seconds}\0".encode()
    except OSError:
        return False


def is_alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def groups_of(places, uuid):
    return [one for parent in places.distinct_parents() for one in parent.folder.glob(f"makimono-*-{uuid}-*")]


def test_what_threw_its_session_and_its_environment_away_ends_with_a_dead_attempt(home):
    """Without a sandbox, while its command runs; only the control group still knows whose it is."""
    places = cgroups.find()
    if places.kill is None:
        pytest.skip(str(places))
    nap = str(100_000 + os.getpid())
    escape = f"setsid setsid env -i sleep {nap} >/dev/null 2>&1 & exec setsid sleep 600"
    held = Held(finish())
    here = home({"Escape": [do("run_command", command=escape), held]})
    here.issue(1, "Escape")
    daemon = here.start("run")
    until(lambda: here.row(1).get("status") == "running", "the worker")
    uuid, worker = here.row(1)["uuid"], here.worker(1)

    def in_the_group():
        for group in groups_of(places, uuid):  # one in each hierarchy
            for pid in (group / "cgroup.procs").read_text().split():
                if is_sleep(pid, nap):
                    return int(pid)
        return None

    escaped = until(in_the_group, "the escape")
    assert escaped not in proc.marked(uuid)
    os.kill(worker, signal.SIGKILL)
    until(lambda: here.row(1)["attempt"] == 2, "the next attempt")
    assert not is_alive(escaped)
    held.go()
    until(lambda: here.row(1).get("status") == "completed", "the end")
    until(lambda: groups_of(places, uuid) == [], "the end of its groups")
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def without_groups():
    """In a new process: no control group can be made."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = 1 << 14 | 1 << 18  # MS_REC, MS_PRIVATE
    if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, private, None):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(b"none", b"/sys/fs/cgroup", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hides control groups")
@pytest.mark.parametrize("end", ["worker", "daemon"])
def test_what_threw_everything_away_ends_with_a_dead_attempt_also_without_control_groups(home, end):
    """It is a child of the daemon then."""
    nap = str(200_000 + os.getpid())
    escape = f"setsid setsid env -i sleep {nap} >/dev/null 2>&1 & exec setsid sleep 600"
    held = Held(finish())
    here = home({"Escape": [do("run_command", command=escape), held]})
    here.issue(1, "Escape")
    here.drain_seconds = 60  # the second signal comes while the daemon waits
    try:
        daemon = here.start("run", preexec_fn=without_groups)
    except subprocess.SubprocessError:
        pytest.skip("no mount namespace can be made here")

    def escaped():
        return next((int(one) for one in os.listdir("/proc") if one.isdigit() and is_sleep(int(one), nap)), None)

    pid = until(escaped, "the escape")
    until(lambda: here.row(1).get("status") == "running", "the worker")
    if end == "worker":
        os.kill(here.worker(1), signal.SIGKILL)
        until(lambda: here.row(1)["attempt"] == 2, "the next attempt")
    else:
        held.arrived()  # a worker between two turns would end the drain at once
        daemon.send_signal(signal.SIGTERM)
        until(lambda: "daemon_stopping" in daemon.stdout.readline(), "the drain")
        daemon.send_signal(signal.SIGTERM)
        finished(daemon)
        assert daemon.returncode == 130
    assert not is_alive(pid)
    held.go()
    if end == "worker":
        until(lambda: here.row(1).get("status") == "completed", "the end")
        daemon.send_signal(signal.SIGTERM)
        finished(daemon)


QUICK = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = sys.argv[2:]
from agent.daemon import watchdog
watchdog.SECONDS, watchdog.HUNG_SECONDS = 0.2, 1.0
import main
sys.exit(main.start())
"""


def test_a_worker_whose_turn_hangs_is_traced_and_ended_and_the_task_goes_on(home):
    """A real daemon, only quicker in its judgement, and a real worker, which waits for a model that does not answer; its
    lease, which a step that hangs does not renew, is over.  One that somebody stopped is left alone before."""
    held = Held(finish())
    here = home({"Hang": [write("a.txt"), held]})
    here.issue(1, "Hang")
    daemon = here.start("run", program=["-c", QUICK, str(here.main.parent)])
    held.arrived()
    uuid, worker = here.row(1)["uuid"], here.worker(1)
    over = threading.Event()

    def lose_the_lease():
        with closing(sqlite3.connect(here.contexts / "tasks.db", timeout=30, isolation_level=None)) as rows:
            while not over.wait(0.05):
                rows.execute("UPDATE tasks SET lease_until = '2020-01-01T00:00:00.000000Z' WHERE attempt = 1")

    loser = threading.Thread(target=lose_the_lease)
    os.kill(worker, signal.SIGSTOP)
    try:
        loser.start()
        started = time.monotonic()
        until(lambda: time.monotonic() - started > 3, "three times as long as a hang is looked at")
        assert here.row(1)["attempt"] == 1, "who is stopped waits"
        os.kill(worker, signal.SIGCONT)
        until(lambda: here.row(1)["attempt"] == 2, "the next attempt")
    finally:
        over.set()
        loser.join()
    assert not is_alive(worker)
    log = (here.contexts / "running" / uuid / "worker.log").read_text()
    assert "Current thread" in log or "Thread 0x" in log
    assert "in get_response" in log, "the trace says where it hung"
    held.go()
    until(lambda: here.row(1).get("status") == "completed", "the end")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert "worker_hung" in text
    assert [one["tool"] for one in here.lines(1, "tools.jsonl")] == ["write_file", "finish"]
    assert len(here.said(1)) == len(here.pulls()) == 1
