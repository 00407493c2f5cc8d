"""What the work tree is against the base: whoever changed it, committed or not, with nothing of the index changed."""

import os

import pytest
from work_repos import commit, sh

from agent.errors import GitError
from agent.work import changes


def lines(workspace):
    return sorted(map(str, workspace.changes_now()))


def index_of(workspace):
    return (workspace.git_dir / "index").read_bytes()


def test_changes_of_the_shell_are_seen(source, make_workspace):
    source.write("old/name.py", "".join(f"line {n}\n" for n in range(30)))
    source.write("gone.txt", "x\n")
    source.write(".gitignore", "*.log\n")
    source.commit()
    workspace = make_workspace(source)
    assert lines(workspace) == []
    sh("sed", "-i", "s/b = 2/b = 22/", "src/app.py", cwd=workspace.tree)
    sh("mv", "old/name.py", "new name.py", cwd=workspace.tree)
    sh("rm", "gone.txt", cwd=workspace.tree)
    (workspace.tree / "made.py").write_text("a\nb\n")
    (workspace.tree / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (workspace.tree / "run.log").write_text("ignored\n")
    os.mkfifo(workspace.tree / "pipe")
    before = index_of(workspace)
    wanted = [
        "gone.txt (deleted)",
        "logo.png (new, binary)",
        "made.py (new, +2 -0)",
        "new name.py (renamed from old/name.py, +0 -0)",
        "src/app.py (+1 -1)",
    ]
    assert lines(workspace) == wanted
    assert index_of(workspace) == before
    assert not [name for name in os.listdir(workspace.git_dir) if name.startswith(".look")]
    commit(workspace)
    assert lines(workspace) == wanted
    (workspace.tree / "made.py").write_text("a\nb\nc\n")
    (workspace.tree / "src/app.py").write_text("a = 1\nb = 2\nc = 3\n")  # as it was: no difference any more
    assert lines(workspace) == [*wanted[:2], "made.py (new, +3 -0)", wanted[3]]


def test_what_git_itself_has_staged_is_seen(source, make_workspace):
    source.write("old.md", "# Guide\n")
    source.commit()
    workspace = make_workspace(source)
    where = (f"--git-dir={workspace.git_dir}", f"--work-tree={workspace.tree}")
    sh("git", *where, "mv", "old.md", "new.md", cwd=workspace.tree)
    (workspace.tree / "added.py").write_text("x\n")
    sh("git", *where, "add", "added.py", cwd=workspace.tree)
    sh("git", *where, "rm", "-q", "README.md", cwd=workspace.tree)
    assert lines(workspace) == ["README.md (deleted)", "added.py (new, +1 -0)", "new.md (renamed from old.md, +0 -0)"]


def test_the_file_that_was_written_last_stands_at_the_end(source, make_workspace):
    workspace = make_workspace(source)
    for number, name in enumerate(("z.py", "a.py", "m.py")):
        (workspace.tree / name).write_text("x\n")
        os.utime(workspace.tree / name, (10**9 + number, 10**9 + number))
    os.utime(workspace.tree / "README.md", (10**9, 10**9))
    assert [one.path for one in workspace.changes_now()] == ["z.py", "a.py", "m.py"]


def test_an_empty_repository_has_only_new_files(tmp_path, make_workspace):
    from work_repos import Source

    workspace = make_workspace(Source(tmp_path / "empty"))
    (workspace.tree / "a.py").write_text("x\n")
    assert lines(workspace) == ["a.py (new, +1 -0)"]


def test_odd_names_are_told_apart(source, make_workspace):
    workspace = make_workspace(source)
    names = ['quo"te.py', "new\nline.py", "tab\there.py", "日本.py", b"caf\xe9.py"]
    for name in names:
        with open(os.path.join(os.fsencode(workspace.tree), os.fsencode(name)), "w") as file:
            file.write("x\n")
    found = {os.fsencode(one.path) for one in workspace.changes_now()}
    assert found == {os.fsencode(name) for name in names}


def test_git_that_takes_too_long_is_an_error(source, make_workspace):
    workspace = make_workspace(source)
    with pytest.raises(GitError):
        changes.of_tree(workspace.git_dir, workspace.tree, workspace.base_commit, ["new.py"], env={}, seconds=0.000001)
    assert not [name for name in os.listdir(workspace.git_dir) if name.startswith(".look")]
