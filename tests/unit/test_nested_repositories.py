"""A folder of the work tree that could be a repository: git opens no pipe, no device and no place of the host in it."""

import os
import subprocess

import pytest

from agent import git_guard, nested_repositories
from agent.errors import RulesRefused, StopHeard
from agent.gitcmd import git

COMMIT = "1" * 40


@pytest.fixture
def tree(tmp_path):
    """A work tree with a folder that git takes for a repository, and a git directory beside it."""
    inner = tmp_path / "tree" / "sub" / ".git"
    (inner / "refs" / "heads").mkdir(parents=True)
    (inner / "objects").mkdir()
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    git("init", "-q", "--bare", "--template=", str(tmp_path / "git"))
    return tmp_path / "tree"


def large(path, size=3 << 30):
    with path.open("wb") as file:
        file.truncate(size)


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path, target="/dev/zero"):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def elsewhere(tree, way="gitdir: ../other\n"):
    """`sub/.git` is a file that names a git directory in which git would hang."""
    (tree / "sub" / ".git").rename(tree / "other")
    (tree / "sub" / ".git").write_text(way)
    return tree / "other"


def in_a_worktree(tree, common="../..\n"):
    """`sub/.git` names a git directory that names another one for its refs."""
    other = elsewhere(tree, "gitdir: ../other/worktrees/one\n")
    own = other / "worktrees" / "one"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text(common)
    return other


HOSTILE = {
    "a pipe as HEAD": lambda tree: pipe(tree / "sub/.git/HEAD"),
    "a pipe as commondir": lambda tree: pipe(tree / "sub/.git/commondir"),
    "a pipe as config": lambda tree: pipe(tree / "sub/.git/config"),
    "a pipe as packed-refs": lambda tree: pipe(tree / "sub/.git/packed-refs"),
    "a pipe as ref": lambda tree: pipe(tree / "sub/.git/refs/heads/main"),
    "a device behind commondir": lambda tree: link(tree / "sub/.git/commondir"),
    "a device behind a ref": lambda tree: link(tree / "sub/.git/refs/heads/main"),
    "a device behind HEAD": lambda tree: link(tree / "sub/.git/HEAD"),
    "a large commondir": lambda tree: large(tree / "sub/.git/commondir"),
    "a large ref": lambda tree: large(tree / "sub/.git/refs/heads/main"),
    "a ref that names another file": lambda tree: (tree / "sub/.git/refs/heads/main").write_text("ref: hooks/x\n"),
    "a pipe behind a .git file": lambda tree: pipe(elsewhere(tree) / "HEAD"),
    "a .git file to the host": lambda tree: elsewhere(tree, "gitdir: /dev/fd\n"),
    "a .git file upwards": lambda tree: elsewhere(tree, "gitdir: ../../git\n"),
    "a .git file by a name and up again": lambda tree: elsewhere(tree, "gitdir: ../x/../other\n"),
    "a .git file through a link": lambda tree: (elsewhere(tree, "gitdir: ../way/x\n"), link(tree / "way", "/dev")),
    "a link named .git": lambda tree: link(elsewhere(tree) / "../sub/.git", "../other"),
    "linked refs": lambda tree: (
        (tree / "sub/.git/refs").rename(tree / "r"),
        link(tree / "sub/.git/refs", "../../r"),
    ),
    "a pipe behind commondir": lambda tree: pipe(in_a_worktree(tree) / "refs/heads/main"),
    "a commondir to the host": lambda tree: in_a_worktree(tree, "/dev/fd\n"),
}


def looked(tree, *args):
    git_guard._judged.clear()
    return git(*args, git_dir=tree.parent / "git", work_tree=tree, timeout=60, check=False)


@pytest.mark.parametrize("how", HOSTILE)
def test_what_git_would_wait_for_or_follow_out_of_the_tree_is_refused(tree, how):
    HOSTILE[how](tree)
    for args in (("ls-files", "-z", "--others"), ("diff-files", "-z", "--name-only", "--ignore-submodules=all")):
        with pytest.raises(RulesRefused, match=r"sub/|other") as error:
            looked(tree, *args)
        assert "remove it" in str(error.value)
    git_guard._judged.clear()
    with pytest.raises(RulesRefused):
        git_guard.check_tree(tree, paths=["sub/x"])


def honest(tree, how):
    inner = tree / "sub" / ".git"
    match how:
        case "a clone":
            subprocess.run(["git", "init", "-q", str(tree / "made")], check=True)
            identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
            commit = ["git", "-C", str(tree / "made"), *identity, "commit", "-q", "--allow-empty", "-m", "x"]
            subprocess.run(commit, check=True)
        case "a worktree":
            in_a_worktree(tree)
        case "the HEAD of a remote":
            (inner / "refs" / "remotes" / "origin").mkdir(parents=True)
            (inner / "refs" / "remotes" / "origin" / "HEAD").write_text("ref: refs/remotes/origin/main\n")
        case "a .git file to nothing":
            elsewhere(tree, "gitdir: ../.git/modules/sub\n")
        case "a .git file with other words":
            elsewhere(tree, "hello\n")
        case "a pipe that git passes over":
            inner.rename(tree / "other")
            pipe(inner)
        case "a pipe that git does not read":
            pipe(inner / "fsmonitor--daemon.ipc")
        case "a large index":
            large(inner / "index")


@pytest.mark.parametrize(
    "how",
    [
        *("a clone", "a worktree", "the HEAD of a remote", "a .git file to nothing"),
        *("a .git file with other words", "a pipe that git passes over", "a pipe that git does not read"),
        "a large index",
    ],
)
def test_a_repository_inside_the_tree_is_looked_at_as_before(tree, how):
    honest(tree, how)
    (tree / "new").write_text("x")
    assert b"new\0" in looked(tree, "ls-files", "-z", "--others").output


def test_a_submodule_of_the_index_is_judged_too(tree):
    git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},sub", git_dir=tree.parent / "git")
    assert looked(tree, "diff-files", "-z", "--name-only").returncode == 0
    pipe(tree / "sub" / ".git" / "HEAD")
    with pytest.raises(RulesRefused, match=r"sub/\.git/HEAD is a named pipe"):
        looked(tree, "diff-files", "-z", "--name-only")


def test_many_refs_are_not_in_the_way_of_a_stop(tree):
    for number in range(200):
        (tree / "sub" / ".git" / "refs" / "heads" / str(number)).write_text(f"{COMMIT}\n")
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 2

    git_guard._judged.clear()
    with pytest.raises(StopHeard):
        git_guard.check_tree(tree, stop=stop)
    assert nested_repositories.LARGEST < nested_repositories.LARGEST_PACKED


def test_the_git_of_the_tree_itself_is_nobodys_repository(tree):
    (tree / ".git").mkdir()
    pipe(tree / ".git" / "HEAD")
    assert looked(tree, "ls-files", "-z", "--others").returncode == 0
