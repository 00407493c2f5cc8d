"""The work tree of a lost host is made again on another one: the same files, whatever was committed or pushed."""

import json
import os
import shutil

import pytest
from work_repos import sh

from agent.gitcmd import git
from agent.work import Mirror, Workspace, work_tree_snapshot
from agent.work.commit import Index
from agent.work.remote import Remote

WHO = {"name": "makimono", "email": "makimono@localhost"}
BRANCH = "makimono/7-11111111"


@pytest.fixture
def hosts(tmp_path, source, make_workspace):
    """(workspace of the first host, `revive()` → (workspace of the second, Revived)) of one bare repository."""
    there = tmp_path / "there.git"
    sh("git", "clone", "-q", "--bare", str(source.path), str(there), cwd=tmp_path)
    mirror = Mirror(tmp_path / "contexts", "local", "local", "repo", Remote(str(there)))
    mirror.fetch()
    first = make_workspace(source, mirror=mirror)
    made = []

    def revive(**kept):
        files = work_tree_snapshot.save(first).files
        folder = tmp_path / f"second{len(made)}" / "running" / "11111111-2222"
        folder.mkdir(parents=True)
        for name, data in (files | kept).items():
            (folder / name).write_bytes(data)
        other = Mirror(folder.parents[1], "local", "local", "repo", Remote(str(there)))
        other.fetch()
        made.append(Workspace(folder, other, branch=BRANCH, base=None))
        return made[-1], work_tree_snapshot.restore(made[-1], WHO["email"])

    return first, revive, there


def content(top):
    return {
        str(path.relative_to(top)): (path.readlink() if path.is_symlink() else path.read_bytes(), path.lstat().st_mode)
        for path in top.rglob("*")
        if (path.is_file() or path.is_symlink()) and path.name != ".git"
    }


def change(tree):
    (tree / "README.md").write_bytes(b"\0\1\2 binary \xff")
    (tree / "src" / "app.py").unlink()
    (tree / "new").mkdir()
    (tree / "new" / "größe.txt").write_text("one\r\ntwo")
    (tree / "new" / "run.sh").write_text("#!/bin/sh\n")
    (tree / "new" / "run.sh").chmod(0o755)
    (tree / "new" / "link").symlink_to("run.sh")
    (tree / "empty").write_bytes(b"")


def test_what_was_never_committed_is_there_again(hosts):
    first, revive, _ = hosts
    change(first.tree)
    second, said = revive()
    assert said.lacks == ""
    assert content(second.tree) == content(first.tree)
    assert second.head() == first.head() == second.base_commit
    assert second.uncommitted() == first.uncommitted()
    assert not (first.git_dir / "index.lock").exists()


def test_saving_changes_nothing_of_the_work(hosts):
    first, _, _ = hosts
    change(first.tree)
    before = (first.git_dir / "index").read_bytes(), content(first.tree), first.uncommitted()
    saved = work_tree_snapshot.save(first)
    assert set(saved.files) == {"tree.json", "tree.patch"}
    assert ((first.git_dir / "index").read_bytes(), content(first.tree), first.uncommitted()) == before
    assert work_tree_snapshot.save(first, saved) is saved, "nothing was changed since"
    (first.tree / "empty").write_text("no more")
    assert work_tree_snapshot.save(first, saved).files != saved.files


def test_the_tree_is_looked_at_once_for_each_saved_one(hosts, monkeypatch):
    first, _, _ = hosts
    change(first.tree)
    looks, look = [], Index.read_changes
    monkeypatch.setattr(Index, "read_changes", lambda stage: looks.append(stage.tree) or look(stage))
    assert work_tree_snapshot.save(first).files
    assert looks == [first.tree]


def test_commits_that_were_not_pushed_are_changes_that_are_not_committed(hosts):
    first, revive, _ = hosts
    (first.tree / "a").write_text("a")
    first.commit("one", **WHO)
    (first.tree / "b").write_text("b")
    second, said = revive()
    assert said.head == first.base_commit
    assert content(second.tree) == content(first.tree)
    assert sorted(second.uncommitted()) == ["a", "b"]
    assert second.commit("both", **WHO)


def push(workspace, there, commit):
    sh(
        "git",
        "--git-dir",
        str(workspace.git_dir),
        "push",
        "-q",
        "-f",
        str(there),
        f"{commit}:refs/heads/{BRANCH}",
        cwd=there,
    )


def published(first, there):
    """The commit of a file `a` that the first host has pushed."""
    (first.tree / "a").write_text("a")
    pushed = first.commit("one", **WHO)
    push(first, there, pushed)
    first.update_state(pushed=pushed)
    return pushed


def test_the_branch_stands_at_what_was_pushed(hosts):
    first, revive, there = hosts
    pushed = published(first, there)
    (first.tree / "a").unlink()
    (first.tree / "b").write_text("b")
    second, said = revive()
    assert said.head == second.head() == second.state.pushed == pushed
    assert second.base_commit == first.base_commit
    assert content(second.tree) == content(first.tree)
    assert sorted(second.uncommitted()) == ["a", "b"]


def test_commits_are_made_a_patch_once_and_later_work_is_small(hosts):
    """With 20 MB of commits each turn that changed a file made and sent a patch of 20 MB."""
    first, revive, _ = hosts
    (first.tree / "a").write_text("".join(f"line {number}\n" for number in range(1000)))
    first.commit("one", **WHO)
    saved = work_tree_snapshot.save(first)
    (first.tree / "a").write_text("".join(f"line {number}\n" for number in range(1001)))
    later = work_tree_snapshot.save(first, saved)
    assert later.files["committed.patch"] is saved.files["committed.patch"]
    assert len(later.files["tree.patch"]) < len(later.files["committed.patch"]) / 10
    second, said = revive()
    assert said.lacks == ""
    assert content(second.tree) == content(first.tree)
    first.commit("two", **WHO)
    last = work_tree_snapshot.save(first, later)
    assert b"line 1000" in last.files["committed.patch"]
    assert last.files["tree.patch"] == b""


def test_what_an_earlier_version_saved_is_one_patch_of_all(hosts):
    first, revive, _ = hosts
    (first.tree / "a").write_text("a")
    first.commit("one", **WHO)
    (first.tree / "b").write_text("b")
    whole = git(
        "diff",
        "--binary",
        first.base_commit,
        json.loads(work_tree_snapshot.save(first).files["tree.json"])["tree"],
        git_dir=first.git_dir,
    )
    second, said = revive(**{"committed.patch": b"", "tree.patch": whole.output})
    assert said.lacks == ""
    assert content(second.tree) == content(first.tree)


def test_a_branch_that_was_removed_costs_no_file(hosts):
    first, revive, _ = hosts
    (first.tree / "a").write_text("a")
    pushed = first.commit("one", **WHO)
    first.update_state(pushed=pushed)
    (first.tree / "b").write_text("b")
    second, said = revive()
    assert (said.head, said.lacks, second.state.pushed) == (first.base_commit, "", None)
    assert content(second.tree) == content(first.tree)


def test_what_we_pushed_after_the_last_save_is_gone_on_from(hosts):
    first, revive, there = hosts
    (first.tree / "a").write_text("a")
    files = work_tree_snapshot.save(first).files
    (first.tree / "late").write_text("of the turn that is lost")
    late = first.commit("late", **WHO)
    push(first, there, late)
    second, said = revive(**{"committed.patch": b"", **files})
    assert said.head == second.state.pushed == late
    assert (second.tree / "a").read_text() == "a"
    assert not (second.tree / "late").exists(), "the turn that wrote it is done again"
    assert second.uncommitted() == ["late"]


def test_what_somebody_else_pushed_is_not_taken_for_ours(hosts):
    first, revive, there = hosts
    pushed = published(first, there)
    files = work_tree_snapshot.save(first).files
    (first.tree / "theirs").write_text("x")
    push(first, there, first.commit("theirs", name="Bob", email="bob@example.com"))
    second, said = revive(**files)
    assert said.head == second.state.pushed == pushed
    assert not (second.tree / "theirs").exists()


def test_a_tree_that_cannot_be_had_leaves_what_was_published_and_says_so(hosts):
    first, revive, there = hosts
    pushed = published(first, there)
    second, said = revive(**{"tree.patch": b"no patch at all\n"})
    assert "cannot be applied" in said.lacks
    assert second.head() == pushed
    assert (second.tree / "a").read_text() == "a"
    other, said = revive(**{"tree.json": b"{}"})
    assert "cannot be read" in said.lacks
    assert other.head() == other.base_commit


def test_begun_again_after_a_kill_it_comes_to_the_same(hosts):
    first, revive, _ = hosts
    change(first.tree)
    second, _ = revive()
    (second.tree / "README.md").write_text("half")
    shutil.rmtree(second.git_dir / "refs")
    said = work_tree_snapshot.restore(second, WHO["email"])
    assert said.lacks == ""
    assert content(second.tree) == content(first.tree)
    assert work_tree_snapshot.is_waiting(second.context_dir)
    work_tree_snapshot.mark_restored(second.context_dir)
    assert not work_tree_snapshot.is_waiting(second.context_dir)
    second.open()
    assert content(second.tree) == content(first.tree)


def test_in_an_empty_repository_all_of_it_is_the_patch(tmp_path):
    there = tmp_path / "there.git"
    sh("git", "init", "-q", "--bare", "-b", "main", str(there), cwd=tmp_path)
    made = []
    for name in ("one", "two"):
        mirror = Mirror(tmp_path / name, "local", "local", "repo", Remote(str(there)))
        mirror.fetch()
        folder = tmp_path / name / "running" / "11111111-2222"
        folder.mkdir(parents=True)
        made.append(Workspace(folder, mirror, branch=BRANCH, base=None))
    first, second = made
    first.open()
    (first.tree / "a").write_text("a\n")
    for name, data in work_tree_snapshot.save(first).files.items():
        (second.context_dir / name).write_bytes(data)
    assert work_tree_snapshot.restore(second, WHO["email"]).lacks == ""
    assert content(second.tree) == content(first.tree)
    assert second.commit("first", **WHO)
    assert git("ls-tree", "--name-only", "HEAD", git_dir=second.git_dir).output == b"a\n"


def test_too_much_is_refused_and_ignored_files_are_none_of_it(hosts, monkeypatch):
    first, revive, there = hosts
    monkeypatch.setattr(work_tree_snapshot, "LARGEST", 1000)
    (first.tree / ".gitignore").write_text("build/\n")
    (first.tree / "build").mkdir()
    (first.tree / "build" / "large").write_bytes(os.urandom(5000))
    second, _ = revive()
    assert not (second.tree / "build").exists()
    (first.tree / "large").write_bytes(os.urandom(5000))
    pushed = first.commit("one", **WHO)
    push(first, there, pushed)
    first.update_state(pushed=pushed)
    (first.tree / "larger").write_bytes(os.urandom(6000))
    saved = work_tree_snapshot.save(first)
    assert saved.lacks == "1 changed files have 6,000 bytes; at most 1,000 are kept"
    assert list(saved.files) == ["tree.json"]
    assert work_tree_snapshot.save(first, saved) is saved
    second, said = revive()
    assert said.lacks == saved.lacks
    assert content(second.tree).keys() == {"README.md", "src/app.py", ".gitignore", "large"}, "what was pushed"
