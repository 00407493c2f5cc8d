"""A workspace is opened once, taken up as it was left, and runs nothing of what is in it."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from work_repos import ENV, OTHER_UID, Source, commit, files_of, mode, remove, sh

from agent import deadline, git_guard
from agent.errors import BaseMissing, WorkError
from agent.gitcmd import git
from agent.work import Mirror, Workspace
from agent.work.gitdir import WorkspaceState, read_state
from agent.work.remote import Remote

ROOT = os.geteuid() == 0


def test_the_tree_is_the_base_commit_on_our_branch(source, make_workspace):
    workspace = make_workspace(source)
    assert (workspace.tree / "src/app.py").read_bytes() == b"a = 1\nb = 2\nc = 3\n"
    assert workspace.base == "main"
    assert workspace.head() == workspace.base_commit == source.git("rev-parse", "HEAD").strip()
    assert git("symbolic-ref", "HEAD", git_dir=workspace.git_dir).output == b"refs/heads/makimono/7-11111111\n"
    assert not workspace.has_commits()
    assert files_of(workspace) == ["README.md", "src/app.py"]


def test_the_git_file_means_something_only_where_commands_run(source, make_workspace):
    workspace = make_workspace(source)
    assert (workspace.tree / ".git").read_bytes() == b"gitdir: /git\n"
    assert workspace.mounts(read_only=("/x",))["read_only"] == ("/x",)
    assert workspace.mounts()["mirror"] == workspace.mirror.path


def test_without_a_sandbox_git_works_in_the_tree(source, make_workspace):
    workspace = make_workspace(source, isolated=False)
    assert sh("git", "status", "--short", cwd=workspace.tree) == ""
    (workspace.tree / "README.md").write_text("new\n")
    assert sh("git", "status", "--short", cwd=workspace.tree) == " M README.md\n"
    assert workspace.guard() == []


def test_objects_are_borrowed_from_the_mirror(source, make_workspace):
    workspace = make_workspace(source)
    alternates = (workspace.git_dir / "objects/info/alternates").read_text()
    assert alternates == f"{workspace.mirror.path}/objects\n"
    assert not list((workspace.git_dir / "objects").glob("pack/*.pack"))


def test_a_moved_base_dir_is_found_again(source, make_workspace, tmp_path):
    workspace = make_workspace(source)
    (tmp_path / "contexts").rename(tmp_path / "moved")
    mirror = Mirror(tmp_path / "moved", "local", "local", "repo", Remote(str(source.path)))
    again = Workspace(tmp_path / "moved/running/11111111-2222", mirror, branch="makimono/x", base=None)
    again.open()
    assert again.head() == workspace.base_commit
    assert again.branch == "makimono/7-11111111"
    assert commit(again) is None


def test_a_base_named_by_the_issue_is_used(source, make_workspace):
    source.git("checkout", "-q", "-b", "release/1.x")
    wanted = source.commit("on the release")
    source.git("checkout", "-q", "main")
    workspace = make_workspace(source, base="release/1.x")
    assert (workspace.base, workspace.base_commit) == ("release/1.x", wanted)


def test_a_base_that_is_not_there_names_those_that_are(source, make_workspace):
    source.git("branch", "develop")
    with pytest.raises(BaseMissing, match=r"'mian' does not exist.*There are: develop, main"):
        make_workspace(source, base="mian")


def test_without_a_default_branch_the_message_asks_for_a_base(tmp_path, make_workspace):
    source = Source(tmp_path / "s", branch="one")
    source.commit()
    source.git("branch", "two")
    source.git("symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(BaseMissing, match="has no default branch; name one as `base`"):
        make_workspace(source)


@pytest.mark.parametrize("name", ["-x", "a b", "a..b", "a/.git/../x~1", ""])
def test_a_branch_name_that_git_refuses_is_refused(name, source, make_workspace):
    with pytest.raises(WorkError, match="not the name of a branch"):
        make_workspace(source, branch=name)


def test_an_empty_repository_gets_a_first_commit(tmp_path, make_workspace):
    workspace = make_workspace(Source(tmp_path / "s"))
    assert workspace.head() is None
    assert workspace.base == "main"
    assert workspace.base_commit is None
    assert commit(workspace) is None
    assert workspace.read_at_base("AGENTS.md") is None
    (workspace.tree / "a.txt").write_text("a\n")
    made = commit(workspace)
    assert made == workspace.head()
    assert workspace.has_commits()
    assert git("rev-list", "--count", "HEAD", git_dir=workspace.git_dir).output == b"1\n"
    assert str(workspace.diff_stat()) == "1 file changed, +1 -0"
    assert workspace.changed_paths() == ["a.txt"]
    assert b"+a" in b"".join(workspace.history())
    workspace.take_back()
    assert workspace.head() is None
    assert commit(workspace) is not None


def test_opening_again_keeps_commits_and_what_is_not_committed(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "new.txt").write_text("kept\n")
    made = commit(workspace)
    (workspace.tree / "README.md").write_text("not committed\n")
    (workspace.tree / "src/app.py").unlink()
    source.commit("the base moves")
    again = make_workspace(source)
    assert again.head() == made
    assert again.base_commit == workspace.base_commit
    assert (again.tree / "README.md").read_text() == "not committed\n"
    assert again.uncommitted() == ["README.md", "src/app.py"]
    assert not again.reports


@pytest.mark.parametrize("index", [None, b"\0" * 400], ids=["whole", "nuls"])
def test_a_check_out_that_was_cut_off_is_done_again(index, source, make_workspace):
    workspace = make_workspace(source)
    if index is not None:
        (workspace.git_dir / "index").write_bytes(index)
    workspace.update_state(ready=False)
    (workspace.tree / "README.md").write_text("hal")
    (workspace.tree / "src/app.py").unlink()
    (workspace.tree / ".git").unlink()
    (workspace.git_dir / "index.lock").touch()
    again = make_workspace(source)
    assert (again.tree / "README.md").read_text() == "hello\n"
    assert (again.tree / "src/app.py").exists()
    assert again.uncommitted() == []


def test_a_tree_with_commits_is_not_made_anew_even_if_the_last_step_is_missing(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "README.md").write_text("ours\n")
    commit(workspace)
    (workspace.tree / "README.md").write_text("more\n")
    workspace.update_state(ready=False)
    assert (make_workspace(source).tree / "README.md").read_text() == "more\n"


def test_a_git_directory_that_was_cut_off_is_made_again(source, make_workspace, tmp_path):
    folder = tmp_path / "contexts/running/11111111-2222"
    (folder / ".git.tmp/objects").mkdir(parents=True)
    (folder / "git/objects").mkdir(parents=True)
    workspace = make_workspace(source)
    assert workspace.head() == workspace.base_commit
    assert not (folder / ".git.tmp").exists()


def test_a_tree_that_somebody_removed_comes_back_from_the_newest_commit(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "new.txt").write_text("kept\n")
    commit(workspace)
    remove(workspace.tree)
    assert (make_workspace(source).tree / "new.txt").read_text() == "kept\n"


def test_opening_is_crash_safe_at_every_git_call(source, make_mirror, tmp_path):
    """Each stop is a kill -9 of a real process at its n-th git call: a `git` on PATH counts down and kills its
    parent."""
    make_mirror(source.path)
    script = """
import sys
from pathlib import Path
from agent.work import Mirror, Workspace
from agent.work.remote import Remote
mirror = Mirror(Path(sys.argv[1]), "local", "local", "repo", Remote(sys.argv[2]))
for n in sys.stdin:
    pid = __import__("os").fork()
    if pid:
        __import__("os").wait()
        continue
    Path(sys.argv[3]).write_text(n)
    w = Workspace(Path(sys.argv[1], "running", "u"), mirror, branch="makimono/1-a", base=None)
    w.open()
    (w.tree / "made").write_text("x")
    w.commit("m", name="n", email="e@x")
    Path(sys.argv[3] + ".done").write_text(n)
    __import__("os")._exit(0)
"""
    left, program = tmp_path / "left", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nread n < {left}\necho $((n - 1)) > {left}\n"
        f'test "$n" -gt 0 || kill -9 $PPID\nexec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    (tmp_path / "contexts/running/u").mkdir(parents=True)
    env = {**os.environ, "PATH": f"{program.parent}:/usr/bin:/bin"}
    argv = [sys.executable, "-c", script, str(tmp_path / "contexts"), str(source.path), str(left)]
    counts = "".join(f"{n}\n" for n in range(30))
    subprocess.run(argv, check=True, env=env, input=counts, text=True)
    assert int((tmp_path / "left.done").read_text()) == 29
    mirror = Mirror(tmp_path / "contexts", "local", "local", "repo", Remote(str(source.path)))
    workspace = Workspace(tmp_path / "contexts/running/u", mirror, branch="makimono/1-a", base=None)
    workspace.open()
    assert files_of(workspace) == ["README.md", "made", "src/app.py"]
    assert workspace.changed_paths() == ["made"]
    assert workspace.uncommitted() == []


@pytest.mark.parametrize("content", [b"", b"DIRC garbage", b"\0" * 400])
def test_a_broken_index_is_made_anew(content, source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "README.md").write_text("not committed\n")
    (workspace.git_dir / "index").write_bytes(content)
    again = make_workspace(source)
    assert again.uncommitted() == ["README.md"]
    assert commit(again)
    assert again.changed_paths() == ["README.md"]


def test_the_state_survives_as_a_file_and_a_broken_one_says_so(source, make_workspace):
    workspace = make_workspace(source)
    assert read_state(workspace.git_dir) == WorkspaceState(
        workspace.branch, "main", workspace.base_commit, workspace.base_commit, ready=True
    )
    (workspace.git_dir / "makimono.json").write_text("{")
    with pytest.raises(WorkError, match=r"makimono\.json cannot be read"):
        make_workspace(source)


def test_going_on_where_an_earlier_task_stopped(source, make_workspace, make_mirror):
    source.git("checkout", "-q", "-b", "makimono/7-aaaaaaaa")
    source.write("work.txt", "earlier\n")
    earlier = source.commit("earlier work")
    source.git("checkout", "-q", "main")
    old_base = source.git("rev-parse", "main").strip()
    source.commit("the base moved on")
    workspace = make_workspace(source, branch="makimono/7-aaaaaaaa", start_at="makimono/7-aaaaaaaa")
    assert workspace.head() == workspace.start == earlier
    assert workspace.base_commit == old_base
    assert not workspace.has_commits()
    assert workspace.changed_paths() == ["work.txt"]
    assert make_workspace(source, uuid="by-commit", start_at=earlier).head() == earlier
    with pytest.raises(BaseMissing, match="neither a branch nor a commit"):
        make_workspace(source, uuid="other", start_at="gone")


def test_files_come_as_they_are_in_the_repository(tmp_path, make_workspace):
    source = Source(tmp_path / "s")
    source.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    source.write("bin.dat", bytes(range(256)))
    source.write("name with space.txt", "x")
    source.write("ä/日本.txt", "x")
    source.write("new\nline.txt", "x")
    source.write("crlf.txt", "a\r\nb\r\n")
    (source.path / "link").symlink_to("run.sh")
    (source.path / "outside").symlink_to("/etc/hostname")
    source.write(".gitattributes", "* text=auto eol=crlf\n*.txt text ident\n*.dat working-tree-encoding=UTF-16\n")
    (source.path / ".git/info/attributes").write_text("* -text -ident !working-tree-encoding\n")
    source.commit()
    objects = {
        path.relative_to(source.path).as_posix(): path.read_bytes()
        for path in source.path.rglob("*")
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }
    workspace = make_workspace(source)
    for name, data in objects.items():
        assert (workspace.tree / name).read_bytes() == data, name
    assert os.access(workspace.tree / "run.sh", os.X_OK)
    assert os.readlink(workspace.tree / "link") == "run.sh"
    assert os.readlink(workspace.tree / "outside") == "/etc/hostname"
    assert workspace.uncommitted() == []
    assert workspace.guard() == []
    assert sorted(files_of(workspace)) == sorted([*objects, "link", "outside"])


def test_a_repository_that_names_filters_hooks_and_submodules_runs_nothing(source, make_workspace, tmp_path):
    canary = tmp_path / "canary"
    source.write(".gitattributes", "* filter=evil diff=evil merge=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n")
    source.write(".gitmodules", f'[submodule "x"]\n\tpath = sub\n\turl = {source.path}\n\tupdate = !touch {canary}\n')
    source.write(".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:1/\n")
    source.write("x.bin", f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1\n")
    source.write(".husky/pre-commit", f"touch {canary}\n").chmod(0o755)
    source.git("add", "-A")
    head = source.git("rev-parse", "HEAD").strip()
    source.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    source.git("commit", "-q", "-m", "x")
    workspace = make_workspace(source)
    assert list((workspace.tree / "sub").iterdir()) == []
    assert workspace.reports == [
        "submodules are not checked out: sub",
        "Git LFS files are not downloaded; the tree has their pointers: x.bin",
    ]
    assert (workspace.tree / "x.bin").read_text().startswith("version https://git-lfs")
    (workspace.tree / "x.bin").write_text("changed\n")
    (workspace.tree / "y.txt").write_text("changed\n")
    (workspace.tree / "sub").rmdir()
    assert commit(workspace)
    b"".join(workspace.diff())
    assert workspace.changed_paths() == ["x.bin", "y.txt"]
    assert b"+changed" not in b"".join(workspace.diff()).partition(b"y.txt")[0], "raw content under filter=lfs"
    assert workspace.guard() == []
    assert not canary.exists()


def test_the_rules_of_the_repository_are_read_from_the_base_commit(source, make_workspace):
    source.write("CLAUDE.md", "rules\n")
    (source.path / "AGENTS.md").symlink_to("CLAUDE.md")
    (source.path / "EVIL.md").symlink_to("/etc/passwd")
    source.commit()
    workspace = make_workspace(source)
    (workspace.tree / "CLAUDE.md").write_text("changed by a build\n")
    commit(workspace)
    assert workspace.read_at_base("CLAUDE.md") == b"rules\n"
    assert workspace.read_at_base("AGENTS.md") == b"rules\n"
    assert workspace.read_at_base("EVIL.md") is None
    assert workspace.read_at_base("src") is None
    assert workspace.read_at_base("nothing.md") is None
    assert workspace.read_at_base("a\nb") is None


def test_new_files_of_ignored_names_are_not_unknown(source, make_workspace):
    source.write(".gitignore", "secret.txt\n")
    source.commit()
    workspace = make_workspace(source)
    for name in ("new ä.txt", "secret.txt", "node_modules/a.js", "pkg/__pycache__/a.pyc"):
        (workspace.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.tree / name).write_text("x")
    (workspace.tree / "README.md").unlink()
    assert workspace.unknown(ignored=False) == ["new ä.txt"]


def test_modes_let_the_other_uid_in_only_as_root(source, make_workspace):
    old = os.umask(0o077)
    try:
        workspace = make_workspace(source, owner_uid=OTHER_UID)
        (workspace.tree / "n").write_text("x")
        commit(workspace)
    finally:
        os.umask(old)
    for parent, _, files in os.walk(workspace.git_dir):
        assert mode(parent) & 0o777 == (0o755 if ROOT else 0o700), parent
        for name in files:
            if name != "makimono.json":
                assert mode(os.path.join(parent, name)) & 0o077 == (0o044 if ROOT else 0), name


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_as_root_the_tree_belongs_to_the_uid_of_the_commands(source, make_workspace):
    (source.path / "link").symlink_to("/etc/hostname")
    (source.path / "dirlink").symlink_to("src")
    source.commit()
    workspace = make_workspace(source, owner_uid=OTHER_UID)
    before = os.lstat("/etc/hostname").st_uid
    for parent, folders, files in os.walk(workspace.tree):
        for name in (".", *folders, *(name for name in files if name != ".git")):
            assert os.lstat(os.path.join(parent, name)).st_uid == OTHER_UID, name
    assert os.lstat("/etc/hostname").st_uid == before
    assert os.lstat(workspace.git_dir).st_uid == 0
    raw = git("diff-files", "--name-only", git_dir=workspace.git_dir, work_tree=workspace.tree).output
    assert raw == b""  # the index knows the new owner
    target = workspace.tree / "README.md"
    target.write_text("by the other uid\n")
    os.chown(target, OTHER_UID, OTHER_UID)
    assert commit(workspace)
    assert workspace.changed_paths() == ["README.md"]


def test_ten_thousand_files_are_checked_out_committed_and_listed(tmp_path, make_workspace):
    source = Source(tmp_path / "s")
    stream = [b"commit refs/heads/main\ncommitter A <a@x> 0 +0000\ndata 1\nm\n"]
    for number in range(10_000):
        data = f"content {number}\n".encode()
        stream.append(
            b"M 100644 inline d%d/e%d/f%d.txt\ndata %d\n%s\n" % (number % 7, number % 91, number, len(data), data)
        )
    sh("git", "fast-import", "--quiet", cwd=source.path, stdin=b"".join(stream))
    workspace = make_workspace(source)
    (workspace.tree / "d0/e0/f0.txt").write_text("changed\n")
    assert commit(workspace)
    assert workspace.changed_paths() == ["d0/e0/f0.txt"]
    assert len(files_of(workspace)) == 10_000
    assert workspace.guard() == []


def test_plain_git_understands_the_tree_from_inside(source, make_workspace, tmp_path):
    """Stands for the sandbox: a git directory at the place that the `.git` file names, read as another program does."""
    workspace = make_workspace(source)
    (workspace.tree / "README.md").write_text("hello you\n")
    env = {**ENV, "GIT_DIR": str(workspace.git_dir), "GIT_WORK_TREE": str(workspace.tree)}
    assert sh("git", "status", "--porcelain", cwd=workspace.tree, env=env) == " M README.md\n"
    assert "+hello you" in sh("git", "diff", cwd=workspace.tree, env=env)
    assert sh("git", "diff", "--stat", "main", cwd=workspace.tree, env=env)


def test_a_tree_that_a_command_closed_to_itself_is_open_for_the_next_command(source, make_workspace):
    workspace = make_workspace(source)
    workspace.tree.chmod(0o000)
    workspace.mounts()
    assert stat.S_IMODE(workspace.tree.stat().st_mode) == 0o700
    assert files_of(workspace) == ["README.md", "src/app.py"]


def test_files_that_git_does_not_know_are_listed_also_while_the_task_is_told_to_end(source, make_workspace):
    """They are what a full disk may cost, and a task that ends for that was told to."""
    workspace = make_workspace(source)
    for name in (".gitignore", "log/1", "log/2", "new/1"):
        (workspace.tree / name).parent.mkdir(exist_ok=True)
        (workspace.tree / name).write_text("log/\n")
    with deadline.listening(lambda: True):
        assert sorted(workspace.unknown()) == [".gitignore", "log/1", "log/2", "new/1"]
        assert sorted(workspace.unknown(ignored=False)) == [".gitignore", "new/1"]
    os.mkfifo(workspace.tree / "new" / ".gitignore")
    git_guard._judged.clear()  # what a command does
    assert workspace.unknown() == [], "git may not look at such a tree"
