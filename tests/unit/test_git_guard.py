"""Files that git reads as rules are looked at before git: no pipe, no device, nothing too large for memory."""

import os
import re
import threading

import pytest

from agent import deadline, durable_files, git_guard, gitcmd, proc
from agent.errors import GitError, RulesRefused, StopHeard
from agent.gitcmd import git
from agent.tools.work_tree import Tree


@pytest.fixture
def tree(tmp_path):
    """A work tree with a git directory beside it."""
    top = tmp_path / "tree"
    (top / "sub" / "deep").mkdir(parents=True)
    git("init", "-q", "--bare", "--template=", str(tmp_path / "git"))
    return top


def ran():
    """Somebody else's program has run: whatever was known of trees is no longer known."""
    proc.run(["true"], env={}, timeout=60, foreign=True)


def listed(tree, **options):
    options = {"git_dir": tree.parent / "git", "work_tree": tree, **options}
    return git("ls-files", "-z", "--others", "--exclude-standard", **options).output


def large(path, size=900 << 20):
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("name", ["a pipe", "a socket", "a device", "a large one", "a link that git follows"])
def test_what_git_would_wait_for_or_hold_in_memory_is_refused(tree, name):
    place = tree / "sub" / "deep" / ".gitignore"
    match name:
        case "a pipe":
            os.mkfifo(place)
        case "a socket":
            os.mknod(place, 0o140600)
        case "a device":
            if os.geteuid() != 0:
                pytest.skip("only root makes devices")
            os.mknod(place, 0o020600, os.makedev(1, 5))
        case "a large one":
            large(place)
        case _:
            place = tree / ".gitmodules"
            place.symlink_to("/dev/zero")
    ran()
    with pytest.raises(RulesRefused, match=place.relative_to(tree).as_posix()) as error:
        listed(tree)
    assert "remove it" in str(error.value)
    place.unlink()
    ran()
    assert listed(tree) == b""


def test_three_nested_rule_files_of_900_mb_are_named_and_cost_no_memory(tree):
    for folder in (tree, tree / "sub", tree / "sub" / "deep"):
        large(folder / ".gitignore")
    ran()
    with pytest.raises(RulesRefused) as error:
        listed(tree)
    assert len(error.value.findings) == 3


def test_many_files_that_are_small_one_by_one_are_counted_together(tree):
    for number in range(9):
        (tree / str(number)).mkdir()
        large(tree / str(number) / ".gitattributes", 1 << 20)
    ran()
    with pytest.raises(RulesRefused, match=r"9\.0 MiB together"):
        listed(tree)
    (tree / "0" / ".gitattributes").unlink()
    ran()
    assert listed(tree).count(b".gitattributes") == 8


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_a_pattern_that_git_could_match_for_ever_is_refused(tree, name):
    (tree / "sub" / ("a" * 200 + "1")).write_text("x")
    (tree / "sub" / name).write_text("*.log\n**/a*b/*.py[co]\n# * * * * * * * * * * *\n" + "*a" * 100 + "b\n")
    ran()
    with pytest.raises(RulesRefused, match=rf"line 4 of sub/{re.escape(name)} has more than 8 stars"):
        listed(tree)
    with pytest.raises(RulesRefused, match="line 4"):
        git_guard.check_tree(tree, paths=["sub/x"])
    (tree / "sub" / name).write_text("*a" * 8 + "\n********* x\n")
    (tree / "sub" / ("a" * 200 + "1")).unlink()
    ran()
    assert listed(tree) == f"sub/{name}\0".encode()


def test_what_git_passes_over_itself_refuses_nothing(tree):
    (tree / ".gitignore").symlink_to("/dev/zero")
    (tree / "sub" / ".gitattributes").mkdir()
    (tree / "sub" / "deep" / "x").write_text("x")
    ran()
    assert b"sub/deep/x" in listed(tree, check=False)


def test_a_tree_is_looked_at_again_only_when_a_command_ran(tree):
    ran()
    listed(tree)
    os.mkfifo(tree / ".mailmap")  # not read by this command
    assert listed(tree) == b""
    ran()
    with pytest.raises(RulesRefused):
        listed(tree)


def test_a_rules_file_that_a_tool_of_the_model_writes_is_looked_at(tree):
    ran()
    listed(tree)
    Tree(tree).replace("sub/.gitignore", b"*a" * 100 + b"b\n")
    with pytest.raises(RulesRefused, match="more than 8 stars"):
        listed(tree)


def test_a_rules_file_of_a_commit_is_looked_at(tree):
    places = {"git_dir": tree.parent / "git"}
    blob = git("hash-object", "-w", "--stdin", stdin=b"*a" * 100 + b"b\n", **places).output.decode().strip()
    made = git("mktree", stdin=f"100644 blob {blob}\t.gitignore\n".encode(), **places).output.decode().strip()
    ran()
    git("read-tree", "--reset", "-u", made, work_tree=tree, **places)
    with pytest.raises(RulesRefused, match="more than 8 stars"):
        listed(tree)


def test_while_a_command_runs_nothing_is_known_of_a_tree(tree):
    started, go_on = threading.Event(), threading.Event()

    def stop():
        started.set()
        return go_on.is_set()

    other = threading.Thread(
        target=proc.run, args=(["sleep", "60"],), kwargs={"env": {}, "timeout": 60, "stop": stop, "foreign": True}
    )
    other.start()
    assert started.wait(10)
    try:
        git_guard.check_tree(tree)
        os.mkfifo(tree / ".gitignore")
        with pytest.raises(RulesRefused):
            git_guard.check_tree(tree)
    finally:
        go_on.set()
        other.join()


def test_a_question_about_one_path_looks_at_the_folders_above_it_alone(tree):
    os.mkfifo(tree / "sub" / "deep" / ".gitignore")
    ran()
    git_guard.check_tree(tree, paths=["sub/x", "elsewhere/there/y"])
    with pytest.raises(RulesRefused):
        git_guard.check_tree(tree, paths=["sub/deep/x"])
    git_guard.check_tree(tree.parent / "not there")
    git_guard.check_tree(tree.parent / "not there", paths=["x"])


def test_git_beside_a_work_tree_has_a_bounded_memory(tree, monkeypatch):
    alias = {"config": ("alias.limits=!ulimit -d",), "git_dir": tree.parent / "git"}
    assert int(git("limits", work_tree=tree, **alias).output) << 10 == gitcmd.memory()
    assert git("limits", **alias).output != git("limits", work_tree=tree, **alias).output
    assert gitcmd.memory() <= gitcmd.MEMORY
    for name in ("LARGEST", "TOGETHER"):
        monkeypatch.setattr(git_guard, name, 1 << 40)
    monkeypatch.setattr(git_guard, "PATTERNS", frozenset())
    large(tree / ".gitignore", gitcmd.memory() + (1 << 20))
    ran()
    with pytest.raises(GitError, match=r"ls-files wanted more than the [0-9,]+ MiB"):
        listed(tree, check=False)


def test_git_beside_a_work_tree_ends_when_the_task_is_told_to(tree):
    lock = tree.parent / "git" / "index.lock"
    options = {"git_dir": tree.parent / "git", "config": (f"alias.wait=!touch {lock}; sleep 60",)}
    with deadline.listening(lock.exists), pytest.raises(StopHeard, match="git wait"):
        git("wait", work_tree=tree, **options)
    assert not lock.exists(), "the next git is not kept out"
    assert not deadline.is_stopping()


def test_only_the_thread_that_works_on_the_task_hears(tree):
    heard = []
    with deadline.listening(lambda: True):
        other = threading.Thread(target=lambda: heard.append(deadline.is_stopping()))
        other.start()
        other.join()
        assert (heard, deadline.is_stopping()) == ([False], True)
        with pytest.raises(StopHeard):
            listed(tree)
        git("rev-parse", "--git-dir", git_dir=tree.parent / "git")  # what ends by itself does


def test_a_wait_for_a_lock_ends_when_the_task_is_told_to(tmp_path):
    held = durable_files.lock(tmp_path / "lock")
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 2

    with deadline.listening(stop), pytest.raises(StopHeard, match="lock"), durable_files.locked(tmp_path / "lock"):
        pass
    durable_files.unlock(held)
    with durable_files.locked(tmp_path / "lock"):
        assert durable_files.is_locked(tmp_path / "lock")
