"""Whether commands can be isolated, who they run as, and what is said when they cannot."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import UUID as UUID_TYPE
from uuid import uuid4

import pytest
from rooms import Room, settings

from agent.errors import ConfigError, SandboxUnavailable
from agent.sandbox import Mounts, Refused, make_sandbox, probe, sandbox_user, seccomp
from agent.sandbox.bubblewrap import Bubblewrap, counts_in_namespace, interpreter
from agent.sandbox.environment import accounts, inside, limited
from agent.sandbox.launch import BubblewrapBinary, Command, launch, needs_stage
from agent.sandbox.probe import advice, attempt, candidates, packaged_tool, trial, version_of

UUID = "3b241101-e2bb-4255-8caf-4136c566a962"


def test_the_verdict_names_the_binary_and_is_kept():
    verdict = probe(settings())
    assert verdict is trial(seccomp.make_filter(settings()))[0]
    if verdict.ok:
        assert verdict.kind == "bubblewrap"
        assert verdict.binary.is_absolute()
        assert "bubblewrap" in verdict.reason
    else:
        assert verdict.kind == "refused"
        assert "sandbox.kind: none" in verdict.advice


def test_none_is_only_what_was_asked_for():
    assert probe(settings("none")).kind == "none"
    assert "not isolated" in probe(settings("none")).reason
    assert probe(settings("auto")).kind in ("bubblewrap", "refused")


def test_an_unknown_kind_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="auto, bubblewrap, none"):
        make_sandbox(settings("docker"), uuid=UUID, base_dir=tmp_path)


def test_a_dotted_path_is_a_plug_in(tmp_path):
    made = make_sandbox(settings("agent.sandbox.unconfined:Unconfined"), uuid=UUID, base_dir=tmp_path)
    assert made.kind == "none"


def test_a_refusing_sandbox_runs_nothing_and_gives_its_advice(tmp_path):
    refused = Refused("no namespaces", "ask your administrator")
    assert refused.kind == "refused"
    with pytest.raises(SandboxUnavailable, match="no namespaces\nask your administrator"):
        refused.run(f"touch {tmp_path}/x", Mounts(tmp_path), timeout=5)
    assert not (tmp_path / "x").exists()


def test_the_packaged_bubblewrap_is_found_and_runs():
    tool = packaged_tool()
    assert tool is not None
    assert version_of(tool.path) == tool.version != "unknown"
    assert tool.libraries.is_dir()
    assert candidates()


def test_a_bubblewrap_that_fails_is_told_in_its_own_words(tmp_path):
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="did not start the command: bwrap: setting up uid map"):
        launch_with(BubblewrapBinary(script), tmp_path)
    with pytest.raises(SandboxUnavailable, match="cannot be started"):
        launch_with(BubblewrapBinary(tmp_path / "missing"), tmp_path)


def launch_with(tool, work):
    command = Command(["true"], {}, Mounts(work), settings().sandbox.limits)
    return launch(tool, command, uid=None, uuid=UUID, timeout=10, cap=1000)


def test_a_command_that_prints_like_bubblewrap_is_still_a_command(room):
    finished = room.run("echo 'bwrap: setting up uid map: Permission denied'; exit 1")
    assert finished.returncode == 1


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "apparmor_parser"),
        ("proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces"),
        ("proc/sys/kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone"),
        (".dockerenv", "", "container"),
        ("nothing", "", "bubblewrap needs a folder /tmp"),
        ("tmp/nothing", "", "docs/security.md"),
    ],
)
def test_advice_fits_what_the_system_says(tmp_path, name, value, word):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value + "\n")
    text = advice(Path("/usr/bin/bwrap"), tmp_path)
    assert word in text
    assert "sandbox.kind: none" in text


def test_a_uuid_has_one_uid_which_nobody_else_hands_out():
    whole = [(0, 0xFFFF_FFFE)]
    assert sandbox_user.uid_of(UUID, whole) == sandbox_user.uid_of(UUID, whole)
    found = {sandbox_user.uid_of(str(uuid4()), whole) for _ in range(1000)}
    assert len(found) > 990
    assert all(sandbox_user.FIRST <= uid <= sandbox_user.LAST for uid in found)


def test_a_small_user_namespace_gives_what_it_has():
    assert sandbox_user.uid_of(UUID, [(0, 65535)]) == sandbox_user.NOBODY
    assert 100_000 <= sandbox_user.uid_of(UUID, [(0, 200_000)]) <= 200_000
    assert sandbox_user.uid_of("not a uuid", [(0, 0xFFFF_FFFE)]) >= sandbox_user.FIRST
    assert sandbox_user.spans()


@pytest.mark.parametrize(
    "mapped",
    [
        [(0, 0xFFFF_FFFE)],
        [(0, 200_000)],
        [(0, 65535), (100_000, 165_535)],
        [(sandbox_user.FIRST, sandbox_user.LAST)],
        [(0, 65535)],
    ],
)
def test_no_task_has_the_number_of_the_group_that_reads_the_mirrors(mapped):
    first = str(UUID_TYPE(int=0))
    uid = sandbox_user.uid_of(first, mapped)
    assert uid == sandbox_user.NOBODY or uid != sandbox_user.readers(mapped)
    assert any(low <= uid <= high for low, high in mapped)


def test_a_root_that_is_root_of_nothing_runs_commands_as_itself(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t00000000000000c1\n")
    assert sandbox_user.can_become(5, [(0, 9)], status)
    assert not sandbox_user.can_become(5, [(0, 0), (6, 9)], status)
    status.write_text("CapEff:\t00000000000000c0\n")
    assert not sandbox_user.can_become(5, [(0, 9)], status)
    assert sandbox_user.can_become(5, [(0, 9)], tmp_path / "none")


def test_an_ordinary_user_has_no_other_uid():
    assert (sandbox_user.own_uid(UUID) is None) == (os.geteuid() != 0)
    assert sandbox_user.reachable(Path("/root/x"), None)


def test_reachable_looks_at_every_folder_on_the_way(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    me = os.getuid()
    if me != 0:
        assert sandbox_user.reachable(folder, me)
    assert not sandbox_user.reachable(folder, 0x7000_0001) or stat.S_IMODE(tmp_path.stat().st_mode) & 0o011
    (tmp_path / "a").chmod(0o700)
    assert not sandbox_user.reachable(folder, 0x7000_0001)
    assert sandbox_user.reachable(Path("/usr/bin/true"), 0x7000_0001)


def test_read_only_paths_must_exist_and_be_free(tmp_path, isolated):
    with pytest.raises(ConfigError, match=r"sandbox\.read_only: /no/such must be"):
        Bubblewrap(settings(read_only=("/no/such",)), uuid=UUID, base_dir=tmp_path)
    with pytest.raises(ConfigError, match="/proc inside the sandbox is its own"):
        Bubblewrap(settings(read_only=("/proc/self",)), uuid=UUID, base_dir=tmp_path)


def test_read_only_paths_are_seen(tmp_path, isolated):
    extra = tmp_path / "extra"
    extra.mkdir()
    extra.chmod(0o755)
    (extra / "f").write_text("shown\n")
    base = tmp_path / "base"
    base.mkdir()
    room = Room(base, UUID, settings(read_only=(extra,)))
    assert room.says(f"cat {extra}/f") == "shown"


def test_an_interpreter_that_would_show_a_home_or_our_files_is_not_shown(tmp_path):
    assert interpreter(tmp_path, "/usr") is None
    assert interpreter(tmp_path, "/") is None
    assert interpreter(tmp_path / "contexts", str(tmp_path)) is None
    assert interpreter(tmp_path, pwd.getpwuid(os.getuid()).pw_dir) is None
    assert interpreter(tmp_path / "contexts", str(tmp_path / "python")) == tmp_path / "python"


def test_the_kernel_that_counts_processes_per_namespace_is_known():
    assert counts_in_namespace("5.14.0-427.el9")
    assert counts_in_namespace("6.1")
    assert not counts_in_namespace("5.10.0-30-amd64")
    assert not counts_in_namespace("strange")


def test_the_environment_is_made_and_not_taken():
    made = inside(UUID, home="/h", tmp="/t", path="/p", shell_path="/bin/sh", extra={"CI": "", "A": "b"})
    assert made["CI"] == ""
    assert made["A"] == "b"
    assert made["MAKIMONO_UUID"] == UUID
    assert "LD_LIBRARY_PATH" not in made


def test_a_limit_that_is_lower_already_stays(tmp_path):
    limits = settings(file_size=1 << 30, processes=None).sandbox.limits
    argv = limited("ulimit -f; echo ran", limits, 10, processes=False, shell_path="/bin/sh")
    done = subprocess.run(["/bin/sh", "-c", 'ulimit -f 100; exec "$@"', "sh", *argv], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["100", "ran"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the way over the stage")
def test_a_base_dir_that_the_uid_cannot_reach_works_over_the_stage(tmp_path, isolated):
    tmp_path.chmod(0o700)
    room = Room(tmp_path, UUID)
    assert not sandbox_user.reachable(room.work, room.sandbox.uid)
    assert room.says("echo x > f; id -u; cat f") == f"{room.sandbox.uid}\nx"
    assert room.says("ls /mnt 2>&1; grep -c /mnt /proc/mounts").endswith("0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the way over the stage")
def test_a_packaged_bubblewrap_below_a_private_folder_finds_its_libraries(tmp_path, isolated):
    tool = packaged_tool()
    package = tool.path.parent.parent
    place = tmp_path / "private"
    place.mkdir(mode=0o700)
    shutil.copytree(package, place / package.name)
    libraries = None if tool.libraries is None else shutil.copytree(tool.libraries, place / tool.libraries.name)
    attempt(BubblewrapBinary(place / tool.path.relative_to(package.parent), tool.version, libraries))


def test_a_tree_that_the_uid_can_reach_needs_no_stage(isolated):
    base = Path(tempfile.mkdtemp(prefix="makimono-reachable-"))
    try:
        base.chmod(0o711)
        room = Room(base, UUID)
        room.sandbox.read_only = ()  # an interpreter below /root alone would need it
        command = Command(["true"], {}, Mounts(room.work), room.sandbox.limits)
        if sandbox_user.reachable(room.sandbox.tool.path, room.sandbox.uid):
            assert not needs_stage(room.sandbox.tool, room.sandbox.uid, command)
        assert room.says("echo x > f; cat f; touch /usr/x 2>&1 | grep -c Read-only") == "x\n1"
        assert set(room.says("ls /proc/self/fd").split()) <= {"0", "1", "2", "3"}
        assert room.run("sleep 300", timeout=0.5).timed_out
    finally:
        shutil.rmtree(base)


def test_this_interpreter_is_first_after_what_an_administrator_put_in_front(room):
    path = room.says("echo $PATH").split(":")
    assert path[0] == "/usr/local/bin"
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        assert path[1] == f"{sys.base_prefix}/bin"


@pytest.mark.parametrize("number", [0, 1000])
def test_every_group_that_a_command_may_have_inside_has_a_name(number):
    files = accounts(number, number, "/home/agent", "/bin/sh")
    groups = {line.split(":")[2] for line in files["/etc/group"].decode().splitlines()}
    assert groups == {str(number), "0", "65534"}
    assert files["/etc/passwd"].decode().startswith(f"agent:x:{number}:{number}:")
