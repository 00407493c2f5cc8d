"""Trees that somebody else wrote: links in the place of folders, modes that lock out, thousands of folders deep."""

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest
from deep_tree import DEEP, make_deep
from open_descriptors import open_below

from agent import filetree, treecopy
from agent.filetree import walk

ROOT = os.geteuid() == 0


@pytest.fixture
def host(tmp_path):
    """A folder of the host that no tree may lead to."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "keep.txt").write_text("the host's")
    (folder / "keep.txt").chmod(0o640)
    yield folder
    assert (folder / "keep.txt").read_text() == "the host's"
    status = (folder / "keep.txt").lstat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o640)
    assert os.listdir(folder) == ["keep.txt"]


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    top.mkdir()
    yield top
    if os.path.lexists(top):
        filetree.remove(top)


def test_a_deep_tree_is_walked_measured_given_copied_and_removed(tree, tmp_path):
    make_deep(tree)
    assert sum(1 for entry in walk(tree) if entry.left) == DEEP
    assert filetree.size(tree) == 5000
    *_, use = filetree.measuring(tree)
    assert use.size >= 5000
    filetree.change_owner(tree, os.geteuid(), os.getegid())
    copy = treecopy.Copy()
    copy.tree(tree, tmp_path / "copy")
    assert (copy.size, copy.missed) == (5000, [])
    assert filetree.size(tmp_path / "copy") == 5000
    (tmp_path / "into").mkdir()
    treecopy.merge(tmp_path / "copy", tmp_path / "into")
    treecopy.merge(tree, tmp_path / "into")  # both have every folder
    assert filetree.size(tmp_path / "into") == 5000
    for top in (tree, tmp_path / "into"):
        filetree.remove(top)
        assert not top.exists()
    assert open_below(tmp_path) == []


def test_a_link_is_an_entry_and_no_way(tree, host, tmp_path):
    (tree / "link").symlink_to(host)
    (tree / "sub").mkdir()
    (tree / "sub" / "up").symlink_to("../..")
    assert sorted(entry.path for entry in walk(tree) if not entry.left) == ["link", "sub", "sub/up"]
    assert filetree.size(tree) == 0
    filetree.change_owner(tree, 1234 if ROOT else os.geteuid(), 1234 if ROOT else os.getegid())
    filetree.grant("link", os.open(tree, os.O_RDONLY), 0o777)
    treecopy.Copy().tree(tree, tmp_path / "copy")
    assert os.readlink(tmp_path / "copy" / "link") == str(host)
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "sub").symlink_to(host)  # what the target has is no way either
    treecopy.merge(tmp_path / "copy", tmp_path / "into")
    assert sorted(os.listdir(tmp_path / "into")) == ["link", "sub"]
    filetree.remove(tree / "link")
    filetree.remove(tree)


@pytest.mark.parametrize("what", ["walk", "copy", "open"])
def test_a_top_that_became_a_link_is_refused(tree, host, tmp_path, what):
    tree.rmdir()
    tree.symlink_to(host)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        {
            "walk": lambda: list(walk(tree)),
            "copy": lambda: treecopy.Copy().tree(tree, tmp_path / "copy"),
            "open": lambda: filetree.open_folder(tree),
        }[what]()


@pytest.mark.parametrize("do", ["remove", "give", "copy", "size"])
def test_a_folder_that_is_swapped_for_a_link_in_the_midst_of_it(tree, host, tmp_path, monkeypatch, do):
    """The swap comes after the entry was looked at and before it is entered."""
    for name in ("a", "b", "c"):
        (tree / name).mkdir()
        (tree / name / "keep.txt").write_text("the tree's")
    real, swapped = filetree.descent.open_folder, []

    def open_folder(name, within=None, *, repair=False):
        if name == "b" and not swapped:
            swapped.append(name)
            os.rename(tree / "b", tmp_path / "was b")
            os.symlink(host, tree / "b")
        return real(name, within, repair=repair)

    monkeypatch.setattr(filetree.descent, "open_folder", open_folder)
    if do == "remove":
        with pytest.raises(NotADirectoryError):
            filetree.remove(tree)
    elif do == "give":
        filetree.change_owner(tree, os.geteuid(), os.getegid())
    elif do == "copy":
        treecopy.Copy().tree(tree, tmp_path / "copy")
        assert os.listdir(tmp_path / "copy" / "b") == []
    else:
        assert filetree.size(tree) == 20
    assert swapped


def test_a_tree_that_is_moved_during_the_walk_ends_it_and_leads_nowhere(tree, host):
    make_deep(tree, 100)
    entries = walk(tree)
    while next(entries).depth < 90:
        pass
    os.rename(tree / "/".join(["deep"] * 30), host.parent / "elsewhere")
    with pytest.raises(OSError, match="moved while"):
        list(entries)
    filetree.remove(host.parent / "elsewhere")


def test_read_only_and_closed_folders_are_removed(tree):
    (tree / "pkg" / "mod").mkdir(parents=True)
    (tree / "pkg" / "mod" / "a.go").write_text("x")
    (tree / "pkg" / "mod").chmod(0o555)
    (tree / "closed").mkdir()
    (tree / "closed" / "x").write_text("x")
    (tree / "closed").chmod(0)
    filetree.remove(tree)
    assert not tree.exists()


@contextmanager
def without_rights_of_root():
    """In this block the process has the rights of an ordinary user, the owner of the tree."""
    if ROOT:
        os.seteuid(65534)
    try:
        yield
    finally:
        if ROOT:
            os.seteuid(0)


def test_folders_that_may_be_listed_but_not_entered_end_no_measurement(tree, monkeypatch):
    closed = {f"closed{number}" for number in range(10)}
    for name in (*closed, *(f"open{number}" for number in range(10))):
        (tree / name).mkdir()
        (tree / name / "file").write_bytes(b"x" * 1000)
        (tree / name / "link").hardlink_to(tree / name / "file")
    if ROOT:
        for path in (tree, *tree.glob("**/*")):
            os.chown(path, 65534, 65534)
    for name in closed:
        (tree / name).chmod(0o444)
    monkeypatch.chdir(tree)
    missed = []
    with without_rights_of_root():
        assert filetree.size(".") == 10 * 2 * 1000
        *_, use = filetree.measuring(".")
        entries = [
            (entry.path, entry.left) for entry in walk(".", on_error=lambda entry, _error: missed.append(entry.path))
        ]
        with pytest.raises(PermissionError):
            list(walk("."))
    assert (use.files, use.whole) == (30, True)
    assert sorted(missed) == sorted(closed)
    assert {path for path, left in entries if left} == set(os.listdir(tree))
    for name in closed:
        (tree / name).chmod(0o755)


class ClosedBefore(list):
    """The names of a folder, which may not be entered while one of two names is read."""

    def __init__(self, names, folder, closed):
        super().__init__(names)
        self.folder, self.closed = folder, closed

    def __iter__(self):
        for name in super().__iter__():
            self.folder.chmod(0o444 if name in self.closed else 0o755)
            yield name


def test_entries_after_one_that_cannot_be_read_are_yielded(tree, monkeypatch):
    """The first such entry ended the listing of its folder; a folder below may have such entries too."""
    below = tree / "middle" / "d" / "e"
    below.mkdir(parents=True)
    for path in (*(tree / "middle" / name for name in "abcfg"), *(below / name for name in "hijk")):
        path.write_text("x")
    if ROOT:
        for path in (tree, *tree.glob("**/*")):
            os.chown(path, 65534, 65534)
    folders = {1: Path("middle"), 3: Path("middle/d/e")}  # below a folder that only root may enter

    def order(names, depth):
        return ClosedBefore(sorted(names), folders[depth], "bfhj") if depth in folders else sorted(names)

    monkeypatch.chdir(tree)
    missed = []
    with without_rights_of_root():
        found = [
            (entry.path, entry.left)
            for entry in walk(".", order=order, on_error=lambda entry, error: missed.append((entry.path, error.errno)))
        ]
    assert [path for path, left in found if not left] == [
        *("middle", "middle/a", "middle/c", "middle/d", "middle/d/e", "middle/d/e/i", "middle/d/e/k", "middle/g")
    ]
    assert [path for path, left in found if left] == ["middle/d/e", "middle/d", "middle"]
    assert missed == [("middle/d/e", errno.EACCES), ("middle", errno.EACCES)]


def test_what_is_not_there_and_what_is_no_folder(tree):
    (tree / "file").write_text("x")
    filetree.remove(tree / "file")
    with pytest.raises(FileNotFoundError):
        filetree.remove(tree / "file")
    assert filetree.size(tree / "file") == 0


def test_a_copy_has_modes_times_holes_and_files_of_several_names(tree, tmp_path):
    (tree / "store").mkdir()
    (tree / "store" / "one").write_text("x")
    (tree / "store" / "one").chmod(0o4755)
    os.utime(tree / "store" / "one", (1, 2))
    (tree / "pkg").mkdir()
    os.link(tree / "store" / "one", tree / "pkg" / "two")
    with (tree / "holes").open("wb") as file:
        file.write(b"begin" * 20000)
        file.seek(1 << 40)
        file.write(b"end")
    os.mkfifo(tree / "pipe")
    copy = treecopy.Copy()
    copy.tree(tree, tmp_path / "copy")
    made = (tmp_path / "copy" / "store" / "one").stat()
    assert (made.st_mtime, stat.S_IMODE(made.st_mode)) == (2, 0o755), "no set-uid bit of a command's"
    assert made.st_ino == (tmp_path / "copy" / "pkg" / "two").stat().st_ino
    holes = tmp_path / "copy" / "holes"
    assert (holes.stat().st_size, holes.stat().st_blocks < 4096) == ((1 << 40) + 3, True)
    with holes.open("rb") as file:
        assert file.read(100000) == b"begin" * 20000
        file.seek(1 << 40)
        assert file.read() == b"end"
    assert not (tmp_path / "copy" / "pipe").exists()


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_a_file_with_another_name_elsewhere_is_not_given_away(tree, host):
    os.link(host / "keep.txt", tree / "mine.txt")
    (tree / "own.txt").write_text("x")
    filetree.change_owner(tree, 1234, 1234)
    assert (tree / "own.txt").stat().st_uid == 1234
    filetree.change_owner(tree, 99, 99, only_from=0)


def test_a_name_that_the_file_system_of_the_copy_refuses_is_missed_and_the_rest_is_copied(tree, tmp_path, monkeypatch):
    """vfat refuses these signs (`vfat_bad_char`, fs/fat/namei_vfat.c); it ended the backup of every task after it."""
    (tree / "a:b").mkdir()
    (tree / "a:b" / "below").write_text("x")
    (tree / "c:d").write_text("x")
    (tree / "e?f").symlink_to("x")
    (tree / "good").mkdir()
    (tree / "good" / "x").write_text("x")

    def refusing(called):
        real = getattr(os, called)

        def call(name, *rest, **more):
            made = more.get("dir_fd") is not None and (called != "open" or rest[0] & os.O_CREAT)
            if made and any(sign in str(rest[0] if called == "symlink" else name) for sign in ":?"):
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(name, *rest, **more)

        return call

    for name in ("mkdir", "open", "symlink"):
        monkeypatch.setattr(os, name, refusing(name))
    copy = treecopy.Copy()
    copy.tree(tree, tmp_path / "copy")
    assert sorted(copy.missed) == [f"{name}: Invalid argument" for name in ("a:b", "c:d", "e?f")]
    assert (tmp_path / "copy" / "good" / "x").read_text() == "x"
    assert os.listdir(tmp_path / "copy") == ["good"]
