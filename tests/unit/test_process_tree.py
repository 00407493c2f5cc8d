"""What /proc tells of trees: orphans stay below a subreaper, their memory counts, and no dead one is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from agent import proc, process_tree
from agent.sandbox.probe import trial

ENV = {"PATH": "/usr/bin:/bin"}


def python(code, **more):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **more).stdout


@pytest.fixture
def parent():
    """A subreaper below which a setsid child and a double-forked setsid grandchild live; yields (its pid, theirs)."""
    code = (
        "import os, subprocess, time\n"
        "from agent import proc\n"
        "proc.become_subreaper()\n"
        "script = 'setsid sleep 601 & (setsid sh -c \"setsid sleep 602 & exec sleep 603\" &) ; sleep 604'\n"
        f"subprocess.Popen(['/bin/sh', '-c', script], env={{'PATH': '/usr/bin:/bin', '{proc.MARK}': 'tree-1'}})\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"up\n"
    yield process
    proc.end_tree("tree-1")
    process.kill()
    process.wait()
    process.stdout.close()


def names(pids):
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found.append(file.read().replace(b"\0", b" ").decode().strip())
        except OSError:
            pass
    return sorted(name for name in found if name.startswith("sleep"))


ALL = ["sleep 601", "sleep 602", "sleep 603", "sleep 604"]


def test_setsid_and_double_forks_stay_below_a_subreaper_and_end_with_their_task(parent):
    while names(process_tree.descendants(parent.pid)) != ALL:
        pass
    assert names(proc.marked("tree-1")) == ALL
    proc.end_tree("tree-1")
    assert names(process_tree.descendants(parent.pid)) == []
    assert proc.marked("tree-1") == []


def test_what_a_whole_tree_holds_counts_once():
    code = "x = bytearray(b'1' * (60 << 20)); import os; pid = os.fork(); print('up', flush=True) if pid else 0; import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"up\n"
        held = process_tree.memory_of(process.pid)
        assert 60 << 20 <= held < 110 << 20, "shared between two, 60 MiB are 60 and not 120"
    finally:
        proc.kill_group(process.pid)
        process.wait()
        process.stdout.close()


def test_where_an_upper_bound_is_enough_no_page_table_is_walked(parent, monkeypatch):
    exact = process_tree.memory_of(parent.pid)
    walked, memory = [], process_tree._memory
    monkeypatch.setattr(process_tree, "_memory", lambda pid: walked.append(pid) or memory(pid))
    bound = process_tree.memory_of(parent.pid, enough=1 << 40)
    assert exact <= bound < 1 << 30
    assert walked == []
    assert process_tree.memory_of(parent.pid, enough=1) > 1
    assert parent.pid in walked, "what may be too much is counted exactly"


def test_one_look_at_all_processes_serves_for_many_trees(parent, monkeypatch):
    while names(process_tree.descendants(parent.pid)) != ALL:
        pass
    known = process_tree.parents()
    monkeypatch.setattr(process_tree, "parents", None)  # a second look is an error
    assert names(process_tree.descendants(parent.pid, known)) == ALL
    assert names(process_tree.descendants(parent.pid, known)) == ALL, "it is not used up"
    assert process_tree.descendants(1, {1: [2], 2: [3, 1], 3: [2]}) == [2, 3], "of two moments: it ends all the same"
    assert process_tree.memory_of(parent.pid, known=known) > 0


def test_a_process_that_is_gone_has_no_tree_and_holds_nothing():
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert process_tree.descendants(process.pid) == []
    assert process_tree.memory_of(process.pid) == 0
    assert not process_tree.is_stopped(process.pid)


def test_a_stopped_process_is_told_from_one_that_works():
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        assert not process_tree.is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        while not process_tree.is_stopped(process.pid):
            pass
    finally:
        process.kill()
        process.wait()


ORPHANS = """
import os, time
from agent import proc, process_tree
from agent.sandbox.probe import probe, trial
proc.become_subreaper()
env = {"PATH": "/usr/bin:/bin"}
proc.run(["/bin/sh", "-c", "setsid sh -c 'touch ready; exec sleep 0.2' >/dev/null 2>&1 & until [ -e ready ]; do sleep 0.01; done"], env=env, timeout=30)
count = 0
while count < 1:
    count += process_tree.reap_orphans()
print(count, process_tree.children())
"""


def test_a_dead_orphan_is_collected(tmp_path):
    assert python(ORPHANS, cwd=tmp_path).split() == ["1", "[]"]


BESIDE = """
import threading
from agent import proc, process_tree
from agent.sandbox.probe import probe, trial
proc.become_subreaper()
over = threading.Event()
def reap():
    while not over.is_set():
        process_tree.reap_orphans()
thread = threading.Thread(target=reap)
thread.start()
codes = [proc.run(["/bin/sh", "-c", "exit 7"], env={"PATH": "/bin"}, timeout=30).returncode for _ in range(100)]
over.set()
thread.join()
print(set(codes))
"""


def test_a_child_that_somebody_waits_for_is_left_to_him():
    assert python(BESIDE).strip() == "{7}"


def test_who_inherits_no_orphans_collects_nothing():
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert proc.reaps() or process_tree.reap_orphans() == 0
    child.wait()


HOLDS = """
import mmap, os, sys, time
size = 48 << 20
if sys.argv[1] == "memfd":
    held = os.memfd_create("x")
    for _ in range(size >> 20):
        os.write(held, b"x" * (1 << 20))
elif sys.argv[1] == "mapped":
    held = os.memfd_create("x")
    os.ftruncate(held, size)
    held = mmap.mmap(held, size)
    held.write(b"x" * size)
elif sys.argv[1] == "shared":
    held = mmap.mmap(-1, size)
    held.write(b"x" * size)
elif sys.argv[1] == "private":
    held = bytearray(b"x" * size)
else:
    with open(f"{sys.argv[2]}/large", "wb") as file:
        file.write(b"x" * size)
print("up", flush=True)
time.sleep(600)
"""


def test_data_in_sockets_is_of_the_kernel():
    """Nobody else of this machine lets so much go in the moment between."""
    pairs = []
    before = process_tree.kernel_memory()
    try:
        for _ in range(400):
            pairs.append(pair := socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
            pair[0].setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    pair[0].send(b"x" * 60_000)
        assert process_tree.kernel_memory() - before > 24 << 20
    finally:
        for one in (one for pair in pairs for one in pair):
            one.close()


def test_files_of_a_tmpfs_count_when_they_are_empty_too():
    verdict, tool = trial()
    if tool is None:
        pytest.skip(verdict.reason)
    code = (
        "import time\nfor n in range(20000): open(f'/mnt/{n}', 'w').close()\nprint('up', flush=True)\ntime.sleep(600)"
    )
    binds = ["--dev-bind", "/", "/", "--tmpfs", "/mnt", "--unshare-user", "--die-with-parent"]
    argv = [str(tool.path), *binds, "--", sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"up\n"
        assert process_tree.memory_of(process.pid) > 20_000 * process_tree.INODE
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("how", "place"),
    [
        *((how, "") for how in ("memfd", "mapped", "shared", "private")),
        *(("tmpfs", place) for place in ("/mnt", "/mnt/ä b\\n日本")),
    ],
)
def test_memory_is_counted_once_whatever_holds_it(how, place):
    """32 KB of Python in a command held 3 GiB in memfds, and no limit saw it."""
    argv = [sys.executable, "-c", HOLDS, how, place]
    if how == "tmpfs":
        verdict, tool = trial()
        if tool is None:
            pytest.skip(verdict.reason)
        binds = ["--dev-bind", "/", "/", "--tmpfs", "/mnt", "--tmpfs", place, "--unshare-user"]
        argv = [str(tool.path), *binds, "--die-with-parent", "--", *argv]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"up\n"
        held = process_tree.memory_of(process.pid)
        assert 48 << 20 <= held < 96 << 20
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_tree_is_stopped_while_it_grows_and_continues_where_it_was(tmp_path):
    count = tmp_path / "count"
    script = f"(while true; do echo x >> {count}; (sleep 0.001); done) & while true; do (sleep 0.001); done"
    child = subprocess.Popen(["/bin/bash", "-c", script], start_new_session=True)
    try:
        until = time.monotonic() + 10
        while not count.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert process_tree.freeze(child.pid)
        before = count.read_bytes()
        time.sleep(0.2)
        assert count.read_bytes() == before
        process_tree.thaw(child.pid)
        while count.read_bytes() == before and time.monotonic() < until:
            time.sleep(0.01)
        assert len(count.read_bytes()) > len(before)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_a_process_that_is_gone_counts_as_stopped():
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_tree.freeze(child.pid)
    process_tree.thaw(child.pid)
