"""What every sandbox promises (agent/sandbox/base.py), against each entry of the registry.

As root each runs twice: in a folder that the task's own user can reach, and in one that it cannot.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from agent import proc
from agent.config.host_allowlist import parse_all
from agent.errors import DiskError, ToolError
from agent.sandbox import SANDBOXES, Mounts, Streams, make_sandbox, probe

UUID = str(uuid4())
NAP = str(100_000 + os.getpid())  # seconds of a sleep that nobody else on this machine sleeps


def settings(kind, **limits):
    every = {"memory": None, "file_size": 1 << 20, "tmp_size": 1 << 22, "home_size": 1 << 22, "processes": None}
    return SimpleNamespace(
        sandbox=SimpleNamespace(
            kind=kind, read_only=(), seccomp=True, allow=(), limits=SimpleNamespace(**{**every, **limits})
        )
    )


@pytest.fixture(params=["reachable", "closed"] if os.geteuid() == 0 else ["closed"])
def folder(request):
    path = Path(tempfile.mkdtemp(prefix="makimono-contract-"))
    if request.param == "reachable":
        path.chmod(0o711)
    yield path
    shutil.rmtree(path)


class Room:
    def __init__(self, kind, folder):
        self.sandbox = make_sandbox(settings(kind), uuid=UUID, base_dir=folder)
        self.work = folder / "work"
        self.work.mkdir()
        if self.sandbox.uid is not None:
            os.chown(self.work, self.sandbox.uid, self.sandbox.uid)

    def run(self, command, **options):
        return self.sandbox.run(command, Mounts(self.work), **{"timeout": 60, **options})


@pytest.fixture(params=SANDBOXES.names())
def room(request, folder):
    if not probe(settings(request.param)).ok:
        pytest.skip("commands cannot be isolated on this machine")
    return Room(request.param, folder)


def test_it_says_what_it_is(room):
    assert room.sandbox.kind in ("bubblewrap", "none")
    assert room.sandbox.reason
    assert (room.sandbox.uid is None) or os.geteuid() == 0


def test_a_command_runs_in_the_work_tree_and_writes_there(room):
    finished = room.run("echo out; echo err >&2; echo x > made; pwd; ls; exit 3")
    assert finished.returncode == 3
    lines = finished.output.decode().splitlines()
    assert lines[:2] == ["out", "err"]
    assert lines[-1] == "made"
    assert (room.work / "made").read_text() == "x\n"
    assert not finished.timed_out


def test_nothing_of_this_process_environment_is_seen(room, monkeypatch):
    monkeypatch.setenv("MAKIMONO_TEST_TOKEN", "s3cr3t-of-the-parent")
    finished = room.run(
        "env; cat /proc/self/environ /proc/1/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'",
        env={"MINE": "1"},
    )
    text = finished.output.decode()
    assert "s3cr3t" not in text
    assert f"MAKIMONO_UUID={UUID}" in text
    for line in ("MINE=1", "CI=1", "PAGER=cat", "GIT_TERMINAL_PROMPT=0", "TERM=dumb", "LANG=C.UTF-8"):
        assert line in text.splitlines()


def test_the_mark_cannot_be_replaced(room):
    assert room.run("echo $MAKIMONO_UUID", env={"MAKIMONO_UUID": "other"}).output.decode().strip() == UUID


def test_home_and_tmp_are_there_and_empty_each_time(room):
    command = 'cd "$HOME" && ls -A . "$TMPDIR" && touch here "$TMPDIR/there"'
    assert room.run(command).returncode == 0
    second = room.run(command)
    assert "here" not in second.output.decode().split()
    assert "there" not in second.output.decode().split()


def test_a_home_that_is_given_is_kept(room, folder):
    home = folder / "home"
    home.mkdir()
    if room.sandbox.uid is not None:
        os.chown(home, room.sandbox.uid, room.sandbox.uid)
    mounts = Mounts(room.work, home=home)
    room.sandbox.run('echo kept > "$HOME/file"', mounts, timeout=60)
    assert room.sandbox.run('cat "$HOME/file"', mounts, timeout=60).output == b"kept\n"


def test_stdin_is_empty(room):
    assert room.run("cat; read x; echo $?").output == b"1\n"


def test_a_shell_line_with_everything_in_it_arrives_whole(room):
    finished = room.run("""printf '%s\\n' "a b" 'c"d' $(echo "ü 日本") | cat; if true; then echo 'multi
line'; fi""")
    assert finished.output.decode() == 'a b\nc"d\nü\n日本\nmulti\nline\n'


def test_a_time_out_kills_everything_and_keeps_what_was_printed(room):
    finished = room.run(f"trap '' TERM; echo before; (setsid sleep {NAP} &); sleep {NAP}", timeout=1.0)
    assert finished.timed_out
    assert b"before" in finished.output
    assert not alive(NAP)


def test_stop_ends_a_command(room):
    asked = threading.Event()
    asked.set()
    finished = room.run(f"sleep {NAP}", stop=asked.is_set)
    assert finished.timed_out
    assert not alive(NAP)


def test_it_returns_with_the_direct_child_and_nothing_lives_on(room):
    finished = room.run(f"(setsid sh -c 'sleep {NAP}; sleep {NAP}' >/dev/null 2>&1 &); sleep {NAP} & echo started")
    assert finished.output == b"started\n"
    assert not finished.timed_out
    assert not alive(NAP)


def test_a_daemon_that_throws_its_environment_away_does_not_live_on(room):
    line = f"(env -i setsid sh -c '(setsid sleep {NAP} &) ; exec sleep {NAP}' >/dev/null 2>&1 &); echo started"
    assert room.run(line).output == b"started\n"
    assert not alive(NAP)
    assert room.run(f"{line}; sleep 60", timeout=0.5).timed_out
    assert not alive(NAP)


COUNT = f"""for one in /proc/[0-9]*/cmdline; do
    if [ "$(tr '\\0' ' ' 2>/dev/null < $one)" = 'sleep {NAP} ' ]; then echo one; fi
done 2>/dev/null"""


def test_what_runs_in_a_thread_beside_it_is_not_taken_for_what_a_command_left(room):
    """The one that ends first leaves the other its daemons, whoever their parent is; the last one ends them all."""
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(room.run, f"(env -i setsid sleep {NAP} &); sleep 0.6; {COUNT}")
        time.sleep(0.2)
        assert room.run("true").returncode == 0
        counted = long.result().output.split()
    assert counted == [b"one"]
    assert not alive(NAP)
    own = [subprocess.Popen(["sleep", NAP], start_new_session=apart) for apart in (False, True)]
    assert room.run("(env -i setsid sleep 0.1 &)").returncode == 0
    for child in own:
        assert child.poll() is None
        child.kill()
        child.wait()


def alive(seconds):
    """Whether a `sleep` of that many seconds runs; a killed one may need a moment to be reaped."""
    for _ in range(200):
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and command_of(pid) == ["sleep", seconds]]
        if not found:
            return []
        time.sleep(0.01)
    return found


def command_of(pid):
    try:
        return Path("/proc", pid, "cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return []


def test_output_is_head_and_tail_and_whole_in_the_spool(room, tmp_path):
    spool = tmp_path / "out.txt"
    finished = room.run("echo first; head -c 200000 /dev/zero | tr '\\0' x; echo; echo last", cap=1000, spool=spool)
    assert finished.output.startswith(b"first\n")
    assert finished.output.endswith(b"last\n")
    assert len(finished.output) <= 1001
    assert finished.dropped > 190_000
    assert spool.read_bytes() == b"first\n" + b"x" * 200_000 + b"\nlast\n"
    assert spool.stat().st_mode & 0o777 == 0o600


def test_endless_output_is_bounded(room):
    finished = room.run("yes", timeout=1.0, cap=10_000)
    assert finished.timed_out
    assert len(finished.output) <= 10_001


def test_a_signal_is_128_and_its_number(room):
    assert room.run("kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    assert room.run("sh -c 'kill -TERM $$'; exit $?").returncode == 128 + signal.SIGTERM


def test_a_command_that_does_not_exist_is_127(room):
    finished = room.run("no-such-command-here")
    assert finished.returncode == 127
    assert b"not found" in finished.output


def test_a_file_larger_than_allowed_is_cut(room):
    finished = room.run("head -c 3000000 /dev/zero > big; echo $?")
    assert finished.output.split()[-1] != b"0"
    assert (room.work / "big").stat().st_size == 1 << 20


def test_no_core_is_dumped(room):
    assert room.run("ulimit -c").output == b"0\n"


def test_memory_that_is_written_is_limited(folder, room):
    kind = "none" if room.sandbox.kind == "none" else "bubblewrap"
    limited = make_sandbox(settings(kind, memory=64 << 20), uuid=UUID, base_dir=folder)
    finished = limited.run("head -c 100000000 /dev/zero | tail -n 1 | wc -c", Mounts(room.work), timeout=60)
    assert b"100000000" not in finished.output


def test_a_line_that_no_kernel_passes_on_is_told_to_the_model(room):
    with pytest.raises(ToolError, match="write_file"):
        room.run("echo " + "x" * 200_000)
    with pytest.raises(ToolError, match="NUL"):
        room.run("echo \0")
    assert room.run("echo " + "x" * 100_000).returncode == 0


def test_a_spool_that_cannot_be_written_is_a_disk_error(room, tmp_path):
    with pytest.raises(DiskError):
        room.run("seq 1000", cap=100, spool=tmp_path / "missing" / "out.txt")


def test_output_that_is_kept_whole_needs_no_spool(room, tmp_path):
    finished = room.run("echo once", spool=tmp_path / "out.txt")
    assert (finished.output, finished.dropped) == (b"once\n", 0)
    assert not (tmp_path / "out.txt").exists()


def test_commands_of_several_threads_do_not_end_each_other(room):
    ended = {}

    def one(number):
        ended[number] = room.run(f"sleep 0.{number}; echo {number}").output

    threads = [threading.Thread(target=one, args=(number,)) for number in (1, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == {number: f"{number}\n".encode() for number in (1, 3, 5)}


def test_a_command_can_be_found_by_its_task(room):
    seen = []

    def look():
        seen.extend(proc.marked(UUID))
        return bool(seen)

    room.run("sleep 60", stop=look)
    assert seen
    assert proc.end_tree(UUID) == 0


def test_hosts_that_may_be_reached_are_given_and_the_command_runs_as_without_them(room):
    done = room.run("echo hi; exit 125", network=parse_all(["a.example", "index.corp@10.0.0.0/8"]))
    assert (done.returncode, done.output, done.contacts) == (125, b"hi\n", ())
    asked = "import socket; socket.create_connection(('127.0.0.1', 31280), 5).close()"
    reached = room.run(f'python3 -c "{asked}"', network=parse_all(["a.example"])).returncode == 0
    assert reached == (room.sandbox.kind == "bubblewrap"), "where nothing is isolated there is no proxy either"


def test_streams_of_the_caller_are_stdin_and_stdout_and_the_result_has_stderr(room):
    (inside, feed), (answers, outside) = os.pipe(), os.pipe()
    ended = threading.Event()
    found = []

    def serve():
        with os.fdopen(inside, "rb"), os.fdopen(outside, "wb"):
            streams = Streams(inside, outside)
            line = "echo ready >&2; while read line; do echo got $line; done; echo over >&2"
            found.append(room.run(line, timeout=float("inf"), streams=streams, stop=ended.is_set))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with os.fdopen(answers, "rb", buffering=0) as reader, os.fdopen(feed, "wb", buffering=0) as writer:
            for word in (b"one", b"two"):
                writer.write(word + b"\n")
                assert reader.read(100) == b"got " + word + b"\n"
            writer.close()  # the command sees the end of its stdin
            assert reader.read(100) == b""
    finally:
        thread.join(20)
        ended.set()
    assert (found[0].returncode, found[0].output, found[0].timed_out) == (0, b"ready\nover\n", False)


def test_a_command_without_a_time_limit_ends_by_stop(room):
    began = time.monotonic()
    done = room.run(f"sleep {NAP}", timeout=float("inf"), stop=lambda: time.monotonic() - began > 0.5)
    assert done.timed_out
    assert not alive(NAP)


def test_the_values_of_variables_are_in_no_argument_list(room):
    secret = uuid4().hex
    found = []

    def look():
        found.extend(pid for pid in os.listdir("/proc") if pid.isdigit() and secret in command_line(pid))
        return len(found) > 0

    done = room.run('sleep 0.6; echo "$TOKEN"', env={"TOKEN": secret}, stop=look)
    assert done.output.decode().strip() == secret
    assert found == []


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
