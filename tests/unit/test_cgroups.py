"""Control groups: what is started in one is found, held and ended; and where there is none nothing is missed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent import cgroups
from agent.cgroups import CgroupParent, GroupPlaces

NAME = f"test-of-makimono-{os.getpid()}-"  # not as a daemon names them: another session clears those away
ESCAPE = """
import os, sys, time
from pathlib import Path
from agent import cgroups
from agent.cgroups import CgroupParent, GroupPlaces
places = eval(sys.argv[1], {"PosixPath": Path, **vars(cgroups)})
print(cgroups.join(sys.argv[2], places, int(sys.argv[3]) or None), flush=True)
for number in (1, 2):
    os.dup2(os.open(os.devnull, os.O_RDWR), number)
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.execve("/bin/sleep", ["sleep", "600"], {})
"""
EAT = """
import subprocess, sys
from pathlib import Path
from agent import cgroups
from agent.cgroups import CgroupParent, GroupPlaces
places = eval(sys.argv[1], {"PosixPath": Path, **vars(cgroups)})
print(cgroups.join(sys.argv[2], places, int(sys.argv[3])), cgroups.ran_over(sys.argv[2], places))
eat = "open('/proc/self/oom_score_adj', 'w').write('1000'); x = bytearray(b'1' * (400 << 20))"
print(subprocess.run([sys.executable, "-c", eat]).returncode, cgroups.ran_over(sys.argv[2], places))
"""


def kinds():
    """Every way of this machine, each for itself: v2, and each hierarchy of v1."""
    found = cgroups.find()
    made = []
    for controllers, mounted in cgroups._mounts(Path("/proc/self")):
        if controllers is None:
            made += [GroupPlaces(one) for one in cgroups._v2(mounted, cgroups._own_cgroups(Path("/proc/self")).get(""))]
        elif wanted := set(controllers) & set(cgroups.V1_KILL):
            folder = cgroups._beneath(mounted, cgroups._own_cgroups(Path("/proc/self"))[min(wanted)])
            if folder is not None and cgroups._is_ours(folder):
                made.append(GroupPlaces(CgroupParent(folder, 1, memory="memory" in controllers)))
    return [*made, found] if found.kill else []


@pytest.fixture(params=kinds() or [None], ids=str)
def places(request):
    if request.param is None:
        pytest.skip(str(cgroups.find()))
    yield request.param
    cgroups.kill_groups(NAME, request.param)
    left = [
        one.name
        for parent in request.param.distinct_parents()
        for one in parent.folder.iterdir()
        if one.name.startswith(NAME)
    ]
    assert left == [], "a test leaves no group"


def run(code, places, memory=0):
    argv = [sys.executable, "-c", code, repr(places), f"{NAME}1", str(memory)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, start_new_session=True)
    return done.stdout.split()


def sleeping(places):
    """Numbers of the processes in the group, once it is a sleep that has left everything else behind."""
    while True:
        found = list(cgroups._members(NAME, places))
        if found and all(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in found):
            return found
        time.sleep(0.01)


def test_what_left_its_session_and_its_environment_is_still_found_and_ended(places):
    assert run(ESCAPE, places) == ["True"]
    (pid,) = sleeping(places)
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    assert cgroups.remove(NAME, places) == [], "a group in which something runs stays"
    assert cgroups.kill_groups(NAME, places) == 1
    assert list(cgroups._members(NAME, places)) == []
    assert cgroups.kill_groups(NAME, places) == 0


def test_who_ends_a_group_does_not_end_itself(places):
    code = (
        ESCAPE.partition("for number")[0]
        + "import subprocess; subprocess.Popen(['sleep', '600'])\nprint(cgroups.kill_groups(sys.argv[2], places))"
    )
    assert run(code, places) == ["True", "1"]
    assert cgroups.remove(NAME, places) == [f"{NAME}1"]


def test_only_groups_of_that_name_are_touched(places):
    assert run(ESCAPE, places) == ["True"]
    sleeping(places)
    assert cgroups.kill_groups(f"{NAME}2", places) == 0
    assert len(list(cgroups._members(NAME, places))) == 1


def test_the_kernel_ends_what_is_larger_than_the_group_may_be_and_it_is_said():
    places = cgroups.find()
    if places.memory is None:
        pytest.skip(str(places))
    try:
        assert run(EAT, places, 100 << 20) == ["True", "False", "-9", "True"]
    finally:
        assert f"{NAME}1" in cgroups.remove(NAME, places)


# --- machines that this one is not: what /proc says of them -----------------------------------------------------


class Machine:
    """A /proc/self and folders as the kernel shows them."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "proc").mkdir()
        self.lines = []
        self.own = []

    def mount(self, name, kind, own, options="rw", root="/"):
        top = self.folder / name
        top.mkdir(exist_ok=True)
        self.lines.append(f"30 23 0:26 {root} {top} rw,nosuid shared:9 - {kind} cgroup {options}")
        self.own.append(f"0::{own}" if kind == "cgroup2" else f"{len(self.own) + 1}:{options.split(',', 1)[1]}:{own}")
        return top

    def group(self, path, procs="", controllers="", handed="", mode=0o644):
        path.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("cgroup.procs", procs),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", handed),
            ("cgroup.type", "domain\n"),
        ):
            (path / name).write_text(text)
            (path / name).chmod(mode)
        return path

    def find(self):
        (self.folder / "proc" / "mountinfo").write_text("\n".join(self.lines) + "\n")
        (self.folder / "proc" / "cgroup").write_text("\n".join(self.own) + "\n")
        return cgroups.find(self.folder / "proc")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_service_with_a_group_of_its_own_can_only_end_trees(machine):
    """Its group has its process, and so cannot hand memory down."""
    top = machine.mount("fs", "cgroup2", "/system.slice/m.service")
    own = machine.group(top / "system.slice" / "m.service", procs="7\n", controllers="cpu memory\n")
    machine.group(own.parent, controllers="cpu memory\n", handed="cpu memory\n")
    if os.geteuid() == 0:  # an ordinary user owns what was made here: for it that is a delegation
        assert machine.find() == GroupPlaces(CgroupParent(own, 2, memory=False))


def test_a_subtree_that_was_given_with_a_group_below_for_the_daemon_holds_memory_too(machine):
    top = machine.mount("fs", "cgroup2", "/user.slice/m.service/daemon")
    given = machine.group(top / "user.slice" / "m.service", controllers="memory\n")
    machine.group(given / "daemon", procs="7\n", controllers="memory\n")
    try:
        os.setxattr(given, "user.delegate", b"1")
    except OSError:
        if os.geteuid() == 0:
            pytest.skip("no extended attributes here")
    assert machine.find() == GroupPlaces(*[CgroupParent(given, 2, memory=True)] * 2)


def test_a_hybrid_machine_uses_each_for_what_it_can(machine):
    two = machine.group(machine.mount("unified", "cgroup2", "/"), controllers="hugetlb\n")
    memory = machine.group(machine.mount("memory", "cgroup", "/a/b", "rw,memory") / "a" / "b")
    machine.group(machine.mount("pids", "cgroup", "/", "rw,pids"))
    assert machine.find() == GroupPlaces(CgroupParent(two, 2, memory=False), CgroupParent(memory, 1, memory=True))


def test_a_container_of_which_only_its_own_part_is_mounted_makes_groups_there(machine):
    top = machine.group(machine.mount("pids", "cgroup", "/docker/abc", "rw,pids", root="/docker/abc"))
    assert machine.find().kill == CgroupParent(top, 1, memory=False)


def test_a_part_that_is_not_mounted_is_none(machine):
    machine.group(machine.mount("pids", "cgroup", "/docker/abc", "rw,pids", root="/docker/ab"))
    machine.group(machine.mount("unified", "cgroup2", "/../other"))
    assert machine.find() == GroupPlaces()


def test_where_nothing_can_be_written_nothing_is_made_and_nothing_fails(machine, monkeypatch):
    top = machine.group(machine.mount("fs", "cgroup2", "/"), controllers="memory\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    places = machine.find()
    assert places == GroupPlaces()
    assert "no control group" in str(places)
    assert cgroups.join("makimono-x", places, 1 << 30) is False
    assert (cgroups.kill_groups("makimono-x", places), cgroups.remove("", places), cgroups.ran_over("x", places)) == (
        0,
        [],
        False,
    )
    assert sorted(one.name for one in top.iterdir() if one.is_dir()) == []


def test_a_machine_without_any_hierarchy_has_none(tmp_path):
    assert cgroups.find(tmp_path) == GroupPlaces()


def test_a_group_that_is_refused_at_the_try_is_left_out(tmp_path):
    """The folder looks right and the kernel says no: here, there is no cgroup.procs in a new one."""
    assert cgroups.join("makimono-x", GroupPlaces(CgroupParent(tmp_path, 2, memory=False))) is False


def test_the_memory_of_a_container_is_its_limit_and_not_the_machines(machine):
    phys = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    machine.find()
    assert cgroups.machine_memory(machine.folder / "proc") == phys
    top = machine.group(machine.mount("fs", "cgroup2", "/a/b"))
    machine.group(top / "a" / "b")
    (top / "a" / "b" / "memory.max").write_text("max\n")
    (top / "a" / "memory.max").write_text(f"{300 << 20}\n")
    machine.find()
    assert cgroups.machine_memory(machine.folder / "proc") == 300 << 20
    memory = machine.group(machine.mount("memory", "cgroup", "/c", "rw,memory") / "c")
    (memory / "memory.stat").write_text(f"cache 5\nhierarchical_memory_limit {200 << 20}\n")
    machine.find()
    assert cgroups.machine_memory(machine.folder / "proc") == 200 << 20


@pytest.mark.parametrize(
    ("version", "names"), [(2, ("anon", "shmem", "file")), (1, ("total_rss", "total_shmem", "rss"))]
)
def test_what_a_group_holds_is_pages_and_files_in_memory_and_no_cache(machine, version, names):
    group = machine.group(machine.folder / "own", procs=f"1\n{os.getpid()}\n")
    places = GroupPlaces(None, CgroupParent(machine.folder, version, memory=True))
    assert cgroups.memory_in_use("own", places) is None
    (group / "memory.stat").write_text("".join(f"{name} {7 * (place + 1)}\n" for place, name in enumerate(names)))
    assert cgroups.memory_in_use("own", places) == 21
    assert cgroups.memory_in_use("other", places) is None
    (group / "cgroup.procs").write_text("1\n")
    assert cgroups.memory_in_use("own", places) is None
    assert cgroups.memory_in_use("own", GroupPlaces()) is None


def test_a_real_group_counts_a_memfd_and_a_shared_segment(tmp_path):
    places = cgroups.find()
    if places.memory is None:
        pytest.skip(str(places))
    name = f"makimono-test-used-{os.getpid()}"
    code = (
        "import os, mmap, sys\n"
        "from agent import cgroups\n"
        f"places = cgroups.find()\nassert cgroups.join({name!r}, places, 1 << 30)\n"
        f"before = cgroups.memory_in_use({name!r}, places)\n"
        "held = os.memfd_create('x')\n"
        "for _ in range(16): os.write(held, b'x' * (1 << 20))\n"
        "shared = mmap.mmap(-1, 16 << 20)\nshared.write(b'x' * (16 << 20))\n"
        f"print(cgroups.memory_in_use({name!r}, places) - before)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert int(done.stdout) >= 31 << 20, done.stderr
    finally:
        cgroups.kill_groups(name, places)
