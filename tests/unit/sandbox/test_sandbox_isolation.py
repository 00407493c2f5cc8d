"""What a command can and cannot reach in bubblewrap: each row of docs/security.md, "Commands"."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import pytest
from rooms import TRIED, Room, settings

from agent.config import library_credentials
from agent.sandbox import Mounts


@pytest.mark.parametrize("place", ["/work", "/tmp", "$HOME", "/dev/shm"])
def test_these_are_writable(room, place):
    assert room.says(f"cd {place} && echo x > file && cat file") == "x"


@pytest.mark.parametrize("place", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/home", "/usr/local/bin"])
def test_these_are_read_only(room, place):
    assert "Read-only file system" in room.says(f"touch {place}/x")


@pytest.mark.parametrize(
    "place", ["/var/lib", "/var/log", "/run", "/sys", "/etc/shadow", "/boot", "/opt", "/srv", "/mnt"]
)
def test_these_are_not_there(room, place):
    assert room.run(f"ls -d {place}").returncode != 0


def test_who_it_is_has_a_name_and_can_commit_in_a_repository_of_its_own(room):
    own = os.getuid() if room.sandbox.uid is None else room.sandbox.uid
    assert room.says("whoami; id -un; id -gn; id -u") == f"agent\nagent\nagent\n{own}"
    asked = "import os, pwd, grp; print(pwd.getpwuid(os.getuid()).pw_dir, grp.getgrgid(os.getgid()).gr_name)"
    assert room.says(f"python3 -c '{asked}'") == "/home/agent agent"
    assert room.says("echo x > /var/tmp/f && cat /var/tmp/f && ls /var") == "x\ntmp"
    assert room.says("cat /etc/passwd /etc/group | grep -c .") == ("5" if own else "3")
    made = room.says("git init -q t && cd t && git commit -q --allow-empty -m x && git log --format='%an %s'")
    assert made.splitlines()[-1] == "agent x"
    if shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"):
        assert room.says("node -p 'require(\"os\").userInfo().username'") == "agent"


def test_the_home_of_this_user_is_not_there(room):
    home = Path(os.path.expanduser("~"))
    seen = room.says(f"ls -A {home} 2>/dev/null")
    # The interpreter may lie below it; then its own folder is all that is there.
    assert set(seen.split()) <= {"." + part for part in ("pyenv", "local", "conda")} | {"miniconda3"}
    assert room.says(f"cat {home}/.ssh/id_rsa {home}/.gitconfig {home}/.aws/credentials 2>/dev/null") == ""


def test_no_other_process_is_seen(room):
    assert int(room.says("ls -d /proc/[0-9]* | wc -l")) <= 5


def test_the_launcher_has_no_secret_in_any_environ(room, monkeypatch):
    monkeypatch.setenv("MAKIMONO_TEST_TOKEN", "s3cr3t-of-the-parent")
    text = room.says("cat /proc/*/environ | tr '\\0' '\\n'")
    assert "MAKIMONO_UUID" in text
    assert "s3cr3t" not in text


@pytest.mark.parametrize("kind", ["auto", "none"])
@pytest.mark.usefixtures("isolated")
def test_no_credential_of_a_library_is_in_a_commands_environment(tmp_path, monkeypatch, kind):
    tmp_path.chmod(0o711)
    for name in (*library_credentials.VARIABLES, *library_credentials.FILES, "FSSPEC_S3_SECRET"):
        monkeypatch.setenv(name, "s3cr3t-of-the-daemon")
    text = Room(tmp_path, str(uuid4()), settings(kind)).says("env; tr '\\0' '\\n' < /proc/self/environ")
    assert "MAKIMONO_UUID" in text
    assert "s3cr3t" not in text


def test_no_descriptor_of_this_program_is_inherited(room):
    assert set(room.says("ls /proc/self/fd").split()) <= {"0", "1", "2", "3"}
    assert "memfd" not in room.says("ls -l /proc/*/fd 2>/dev/null")


def test_nothing_listens_and_nothing_is_reached(room):
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("127.0.0.1", 0))
        server.listen()
        abstract.bind(f"\0makimono-{os.getpid()}")
        abstract.listen()
        script = f"""{TRIED}
print(tried(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {server.getsockname()[1]})))
print(tried(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
print(tried(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)))
print(tried(socket.AF_UNIX, socket.SOCK_STREAM, "\\0makimono-{os.getpid()}"))
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except OSError:
    print("refused")
print(socket.gethostbyname("localhost"))
print([name for _, name in socket.if_nameindex()])
"""
        (room.work / "net.py").write_text(script)
        assert room.says("python3 net.py").splitlines() == [*["refused"] * 5, "127.0.0.1", "['lo']"]


def test_a_unix_socket_of_the_host_is_not_there(room, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        server.listen()
        assert room.run(f"test -e {tmp_path}/docker.sock").returncode != 0


def test_a_server_on_the_loopback_inside_works(room):
    (room.work / "serve.py").write_text(
        "import socket, threading\n"
        "s = socket.create_server(('localhost', 0))\n"
        "threading.Thread(target=lambda: s.accept()[0].sendall(b'hello')).start()\n"
        "print(socket.create_connection(s.getsockname()).recv(9))\n"
    )
    assert room.says("python3 serve.py") == "b'hello'"


def test_there_are_no_capabilities_and_none_can_be_had(room):
    status = dict(line.split(":\t") for line in room.says("cat /proc/self/status").splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split()[0] != "0"
    assert status["Groups"].split() in (
        [],
        [status["Gid"].split()[0]],
        *[status["Groups"].split()] * (room.sandbox.uid is None),
    )


@pytest.mark.parametrize(
    "command",
    [
        "unshare -U true",
        "unshare -m true",
        "unshare -Ur mount -t tmpfs x /tmp",
        "mount -t tmpfs x /tmp",
        "mount -o remount,rw,bind /",
        "umount /work",
        "mknod /tmp/disk b 8 0",
        "python3 -c 'import os; os.setuid(0)'",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
        "chroot /work true",
        "echo 1 > /proc/sys/kernel/printk",
        "su root -c true",
        "kill -9 1 && sleep 1 && test ! -d /proc/1",
    ],
)
def test_this_is_refused(room, command):
    assert room.run(command).returncode != 0


def test_a_setuid_program_in_the_work_tree_gives_nothing(room):
    assert room.says("cp /usr/bin/id ./id && chmod u+s ./id && ./id -u") == room.says("id -u")


def test_files_made_inside_belong_to_the_task(room):
    room.run("mkdir d && echo x > d/f")
    assert (room.work / "d" / "f").stat().st_uid == (os.getuid() if room.sandbox.uid is None else room.sandbox.uid)


@pytest.mark.parametrize(("place", "size"), [("/tmp", 2 << 20), ("$HOME", 1 << 20), ("/dev/shm", 2 << 20)])
def test_what_lives_in_memory_is_limited(room, place, size):
    command = f"for n in 1 2 3; do head -c 1500000 /dev/zero > {place}/$n 2>/dev/null; done; cat {place}/[123] | wc -c"
    assert int(room.says(command)) <= size


def test_a_loop_is_killed_at_the_time_out(room):
    finished = room.run("while :; do :; done", timeout=0.5)
    assert finished.timed_out
    assert finished.returncode == -9


def test_cpu_is_limited_by_the_time_out_and_cannot_be_raised(room):
    assert int(room.says("ulimit -t", timeout=7)) == 7 * (os.cpu_count() or 1) + 1
    assert room.run("ulimit -t unlimited").returncode != 0


def test_a_fork_bomb_ends_at_the_limit_and_leaves_nothing(room):
    finished = room.run("bomb() { bomb | bomb & }; bomb; sleep 0.3; ls -d /proc/[0-9]* | wc -l; echo end", timeout=10)
    assert room.says("echo alive") == "alive"
    counts = [int(word) for word in finished.output.split() if word.isdigit()]
    assert all(count <= 70 for count in counts)


def test_processes_of_the_same_user_elsewhere_do_not_count(room):
    # RLIMIT_NPROC counts per user namespace since Linux 5.14; before, only a uid of the task's own is limited.
    assert room.says("for n in $(seq 40); do sleep 1 & done; jobs | wc -l") == "40"


def test_a_daemon_is_gone_with_its_command(room):
    (room.work / "daemon.py").write_text(
        "import os, signal, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for n in range(3000):\n"
        "    open('beat', 'w').write(str(n)); time.sleep(0.01)\n"
    )
    assert room.run("python3 daemon.py >/dev/null 2>&1; until test -s beat; do sleep 0.02; done").returncode == 0
    before = (room.work / "beat").stat().st_mtime_ns
    room.run("sleep 0.1")
    assert (room.work / "beat").stat().st_mtime_ns == before


WORKER = """
import sys
from pathlib import Path
sys.path[:0] = [{here!r}, {root!r}]
from rooms import Room
room = Room(Path(sys.argv[1]), sys.argv[2])
if {direct!r}:
    room.sandbox.read_only = ()  # an interpreter below /root alone would need the stage
room.run("echo $$ > started; (setsid sleep {nap} &); sleep {nap}")
"""


@pytest.mark.parametrize("mode", [0o700, 0o711])
def test_everything_dies_with_the_worker(tmp_path, isolated, mode):
    here = Path(__file__).parent
    nap = str(200_000 + os.getpid())
    base = Path(tempfile.mkdtemp(prefix="makimono-worker-"))
    base.chmod(mode)  # as root: with and without the stage
    script = WORKER.format(here=str(here), root=str(here.parents[2]), nap=nap, direct=mode == 0o711)
    worker = subprocess.Popen([sys.executable, "-c", script, str(base), str(uuid4())])
    try:
        wait_for(lambda: (base / "work" / "started").exists() and sleepers(nap))
    finally:
        worker.kill()
        worker.wait()
    wait_for(lambda: not sleepers(nap))
    shutil.rmtree(base)


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within 20 s")


def sleepers(nap):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{nap}\0".encode():
                found.append(path)
        except OSError:
            continue
    return found


def test_paths_that_are_named_are_readable_only(room, tmp_path):
    extra = tmp_path / "extra"
    extra.mkdir(mode=0o755)
    (extra / "file").write_text("here\n")
    mounts = Mounts(room.work, read_only=(extra,))
    assert room.says(f"cat {extra}/file; touch {extra}/x", mounts).splitlines()[0] == "here"
    assert not (extra / "x").exists()
    assert room.run(f"ls {extra}").returncode != 0


def test_links_out_of_the_work_tree_lead_nowhere(room):
    (room.work / "shadow").symlink_to("/etc/shadow")
    (room.work / "up").symlink_to(room.folder)
    assert room.run("cat shadow").returncode != 0
    assert room.run("ls up/").returncode != 0


def test_python_and_pytest_of_the_interpreter_work(room):
    (room.work / "test_x.py").write_text("def test_x():\n    assert 1 + 1 == 2\n")
    assert room.says("python3 -c 'import json, ssl, sqlite3; print(1)'") == "1"
    assert sorted(room.says("ls -A").split()) == ["test_x.py"]
    if room.run("python3 -c 'import pytest'").returncode == 0:
        alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        assert "1 passed" in room.says("python3 -m pytest -q -p no:cacheprovider test_x.py", env=alone)
