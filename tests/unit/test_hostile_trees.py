"""Whatever a command makes of a tree, and while it goes on doing so: every operation ends, and nothing outside
changes."""

import os
import socket
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deep_tree import make_deep
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from open_descriptors import open_below

from agent import filetree, git_guard, treecopy
from agent.errors import MakimonoError
from agent.tools.work_tree import Tree
from agent.work import setup
from agent.work.untrusted_tree import closed_folders, enterable, write_gitfile

ROOT = os.geteuid() == 0
DEEP, MANY = 3000, 100_000
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # removing a folder takes 3 ms on some disks

SECRET = b"the host's"

# --- hostile trees ------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "c", "lib", ".git", "GIT~1", ".gitignore", ".gitattributes", "node_modules", "keep.txt"]
    ),
    st.binary(min_size=1, max_size=12).map(
        lambda raw: os.fsdecode(raw.replace(b"/", b"\xff").replace(b"\0", b"\n")) if raw not in (b".", b"..") else "dot"
    ),
    st.sampled_from(["x" * 255, "é" * 127, os.fsdecode(b"\xff" * 255), "-rf", "*", "\n", " ", "$(id)"]),
)
LEAVES = st.sampled_from(
    [
        *("file", "sparse", "closed file", "out", "out file", "up", "loop", "nowhere", "proc"),
        *("fifo", "socket", "hard link", *(("device",) if ROOT else ())),
    ]
)
MODES = st.sampled_from([0o755, 0o755, 0o700, 0o555, 0o444, 0o111, 0o000, 0o7777])
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(MODES, st.dictionaries(NAMES, inner, max_size=5)), max_leaves=25
).filter(lambda tree: isinstance(tree, tuple))


def make(tree, within, host):
    """Make the entries of `tree` in the folder with that descriptor."""
    mode, entries = tree
    for name, entry in entries.items():
        with suppress(FileExistsError):
            if isinstance(entry, tuple):
                os.mkdir(name, 0o755, dir_fd=within)
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=within)
                make(entry, below, host)
                os.close(below)
            else:
                leaf(entry, name, within, host)
    os.fchmod(within, mode)


def leaf(kind, name, within, host):
    links = {"out": host, "out file": host / "keep.txt", "up": "..", "loop": name, "nowhere": "/nowhere/x"}
    match kind:
        case "file" | "sparse" | "closed file":
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=within)
            os.write(made, b"the tree's")
            if kind == "sparse":
                os.ftruncate(made, 1 << 40)
            if kind == "closed file":
                os.fchmod(made, 0)
            os.close(made)
        case "proc":
            os.symlink(f"/proc/{os.getpid()}/root{host}", name, dir_fd=within)
        case "fifo":
            os.mkfifo(name, dir_fd=within)
        case "socket":
            made = socket.socket(socket.AF_UNIX)
            with suppress(OSError):  # a name that is too long
                made.bind(os.fsencode(f"/proc/self/fd/{within}/") + os.fsencode(name))
            made.close()
        case "device":
            os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(1, 5), dir_fd=within)
        case "hard link":
            os.link(host / "linked.txt", name, dst_dir_fd=within)
        case _:
            os.symlink(links[kind], name, dir_fd=within)


def state_of(host):
    """All that may not change of the folder outside; the count of names of a file is the tree's doing."""
    found = {}
    for path in [host, *sorted(host.rglob("*"))]:
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else os.listdir(path)
        found[str(path)] = status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, sorted(data)
    return found


# --- what is done to them -----------------------------------------------------------------------------------------


def to_remove(top, _beside):
    filetree.remove(top)


def to_measure(top, _beside):
    filetree.size(top)
    list(filetree.measuring(top))


def to_give(top, _beside):
    filetree.change_owner(top, 4321 if ROOT else os.geteuid(), 4321 if ROOT else os.getegid())


def to_copy(top, beside):
    try:
        treecopy.Copy(4321 if ROOT else None).tree(top, beside / "copy")
    finally:
        for entry in filetree.walk(beside / "copy", on_error=lambda *_: None):
            if entry.is_file and entry.status.st_size == len(SECRET):
                file = os.open(entry.name, os.O_RDONLY, dir_fd=entry.folder)
                assert os.read(file, 10) != SECRET
                os.close(file)


def to_merge(top, beside):
    (beside / "into").mkdir()
    into = _open(beside / "into")
    make((0o755, {"a": (0o755, {"b": "file"}), "lib": "out", "b": "out"}), into, beside.parent / "host")
    os.close(into)
    treecopy.merge(top, beside / "into")


def to_judge(top, _beside):
    git_guard.check_tree(top)


def to_sift(top, _beside):
    setup._sift(top, {"a": {"b": {}}, "lib": {"keep.txt": {}}, "c": {}})


def to_list(top, _beside):
    tree = Tree(top, owner_uid=4321)
    for found in tree.walk("", []):
        with suppress(MakimonoError), tree.open(found.path, known=True) as descriptor:
            assert os.read(descriptor, 10) != SECRET
    for path in ("a/b", "lib/keep.txt", "new/x"):
        with suppress(MakimonoError):
            tree.replace(path, b"written")


def to_look(top, _beside):
    closed_folders(top)
    enterable(top)
    write_gitfile(top)


OPERATIONS = [to_remove, to_measure, to_give, to_copy, to_merge, to_judge, to_sift, to_list, to_look]


def _open(folder):
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


@contextmanager
def place():
    """(the tree's folder, a folder beside it, one of the host)."""
    base = Path(tempfile.mkdtemp(prefix="makimono-hostile-", dir=FAST))
    host = base / "host"
    try:
        (host / "sub").mkdir(parents=True)
        for path in (host / "keep.txt", host / "sub" / "keep.txt", host / "b"):
            path.write_bytes(SECRET)
        (host / "keep.txt").chmod(0o640)
        (host / "linked.txt").write_text("of both")
        for name in ("tree", "beside"):
            (base / name).mkdir()
        yield base / "tree", base / "beside", host
    finally:
        filetree.remove(base)


MOMENTS = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(lambda few: few * 60)
"""What the adversary does at each call, again and again: 0 nothing, 1 a link to a folder, 2 to a file, 3 one that
stays, 4 another name of a file of the host."""


class Adversary:
    """A command that goes on while its tree is worked on, and is as quick as it can be: before a call that names an
    entry of the tree it puts a link to the host in its place, and often takes it away again after it."""

    CALLS = ("open", "stat", "unlink", "rmdir", "mkdir", "chown", "chmod", "link", "readlink", "symlink", "rename")

    def __init__(self, top, host, numbers):
        self.top, self.host, self.numbers = os.fspath(top), host, iter(numbers)
        self.real = {name: getattr(os, name) for name in (*self.CALLS, "listdir")}
        self.swaps = 0

    def __enter__(self):
        for name in self.CALLS:
            setattr(os, name, self._hostile(name))

    def __exit__(self, *_):
        for name in self.CALLS:
            setattr(os, name, self.real[name])

    def _hostile(self, called):
        real = self.real[called]

        def call(name, *rest, **more):
            folder = more.get("dir_fd", more.get("src_dir_fd"))
            number = next(self.numbers, 0) if folder is not None and self._is_ours(folder, name) else 0
            swapped = number and self._swap(name, folder, number)
            try:
                return real(name, *rest, **more)
            finally:
                if swapped and number != 3:
                    self._back(name, folder)

        return call

    def _is_ours(self, folder, name):
        with suppress(OSError):
            if isinstance(name, str) and "/" not in name:
                return self.real["readlink"](f"/proc/self/fd/{folder}").startswith(self.top)
        return False

    def _swap(self, name, folder, number):
        with suppress(OSError):
            self.real["rename"](name, f"{name[:60]}.away", src_dir_fd=folder, dst_dir_fd=folder)
            if number == 4:
                self.real["link"](self.host / "linked.txt", name, dst_dir_fd=folder)
            else:
                self.real["symlink"](self.host / ("keep.txt" if number == 2 else ""), name, dir_fd=folder)
            self.swaps += 1
            return True
        return False

    def _back(self, name, folder):
        with suppress(OSError):
            self.real["unlink"](name, dir_fd=folder)
            self.real["rename"](f"{name[:60]}.away", name, src_dir_fd=folder, dst_dir_fd=folder)


MANNERS = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def attempt(do, top, beside):
    """Errors are answers; one that nobody foresaw, or a wait without end, is none."""
    with suppress(OSError, MakimonoError):
        do(top, beside)


@pytest.mark.parametrize("do", OPERATIONS)
@given(tree=TREES)
@MANNERS
def test_nothing_outside_a_hostile_tree_changes_and_every_operation_ends(do, tree):
    with place() as (top, beside, host):
        descriptor = _open(top)
        make(tree, descriptor, host)
        os.close(descriptor)
        before = state_of(host)
        attempt(do, top, beside)
        assert state_of(host) == before
        assert open_below(os.path.dirname(top)) == [], "no descriptor is left open"


@pytest.mark.parametrize("do", OPERATIONS)
@given(
    trees=st.lists(TREES, min_size=3, max_size=3),
    numbers=MOMENTS,
)
@example(trees=[(0o755, {}), (0o755, {}), (0o555, {})], numbers=[0, 0, 4] * 60)
@settings(MANNERS, max_examples=25)
def test_nor_while_its_entries_become_links_under_it(do, trees, numbers):
    with place() as (top, beside, host):
        descriptor = _open(top)
        make((0o755, dict(zip(("a", "lib", "c"), trees, strict=True))), descriptor, host)
        os.close(descriptor)
        before = state_of(host)
        with Adversary(top, host, numbers):
            attempt(do, top, beside)
        assert state_of(host) == before


def test_every_operation_ends_on_a_tree_of_3000_folders_in_each_other():
    with place() as (top, beside, _):
        make_deep(top, DEEP)
        for do in (to_list, to_judge, to_look, to_copy):
            do(top, beside)
        assert filetree.size(beside / "copy") == filetree.size(top)
        to_remove(top, beside)
        assert not top.exists()


def test_every_operation_ends_on_a_folder_of_100_000_names():
    with place() as (top, beside, _):
        descriptor = _open(top)
        for number in range(MANY):  # some file systems take 65,000 names of one file
            if number % 50_000 == 0:
                first = str(number)
                os.mknod(first, 0o100644, dir_fd=descriptor)
            else:
                os.link(first, str(number), src_dir_fd=descriptor, dst_dir_fd=descriptor)
        os.close(descriptor)
        *_, use = filetree.measuring(top)
        assert use.files == 2
        for do in (to_judge, to_remove):
            do(top, beside)
        assert not top.exists()


@pytest.mark.parametrize("do", [to_measure, to_judge, to_remove, to_copy, to_sift])
def test_large_folders_in_each_other_are_listed_as_they_are_asked_for(do, monkeypatch):
    """More of them than listings may stay open, and each larger than what is held at once."""
    monkeypatch.setattr(filetree.descent, "LISTED", 3)
    monkeypatch.setattr(filetree.descent, "LARGE", 4)
    with place() as (top, beside, _):
        here = top
        for _ in range(12):
            for number in range(7):
                (here / f"file {number}").write_text("x")
            here = here / "below"
            here.mkdir()
        assert sum(not entry.left for entry in filetree.walk(top)) == 12 * 8
        do(top, beside)
        if do is to_copy:
            assert sum(not entry.left for entry in filetree.walk(beside / "copy")) == 12 * 8
        assert do is not to_remove or not top.exists()
