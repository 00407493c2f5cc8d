"""Whoever writes a file that no commit will have is told at once, and again at the end."""

import os

import pytest
from work_repos import Source, commit

from agent.tools import Toolbox
from agent.work import changes


@pytest.fixture
def workspace(source, make_workspace, tmp_path):
    other = Source(tmp_path / "other")
    other.commit()
    source.write(".gitignore", "lib/\n*.bin\n!keep.bin\n")
    source.write("docs/.gitignore", "/generated\n")
    source.write("lib/tracked.py", "x\n")
    source.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "vendor/mod")
    source.commit()
    made = make_workspace(source)
    Source(made.tree / "nested").commit()
    (made.tree / "odd" / ".git").mkdir(parents=True)  # git takes it for no repository
    return made


LEFT_OUT = {
    "lib/util.py": "git ignores it (.gitignore, line 1: `lib/`)",
    "data/a.bin": "git ignores it (.gitignore, line 2: `*.bin`)",
    "docs/generated/x.md": "git ignores it (docs/.gitignore, line 1: `/generated`)",
    "trace.log": "a line `!/trace.log` in .gitignore makes it part of the commit",
    "a/.cache/x": "a line `!.cache/` in .gitignore makes it part of the commit",
    "vendor/mod/x.py": "it lies in vendor/mod, a submodule",
    "nested/sub/x.py": "it lies in nested, which is a git repository of its own",
}
TAKEN = (
    "lib/tracked.py",
    "keep.bin",
    "src/new.py",
    "documents/generated",
    "odd [name]\n*.py",
    "vendor/x.py",
    "odd/x.py",
)


def test_the_tools_say_at_once_that_no_commit_will_have_a_file(workspace):
    box = Toolbox(
        root=workspace.tree,
        context_dir=workspace.context_dir,
        run=None,
        redact=str,
        clean=str,
        lookup={}.get,
        why_left_out=workspace.why_left_out,
    )
    for path, why in LEFT_OUT.items():
        said = box.run("write_file", {"path": path, "content": "one\n"}).content
        assert "[note: it will not be in the commit: " in said
        assert why in said
    assert (
        "will not be in the commit"
        in box.run("edit_file", {"path": "lib/util.py", "old_text": "one", "new_text": "two"}).content
    )
    for path in TAKEN:
        said = box.run("write_file", {"path": path, "content": "one\n"})
        assert (said.status, "note" in said.content) == ("success", False), said.content
    assert set(box.written_paths()) == {*LEFT_OUT, *TAKEN}
    commit(workspace)
    behind = workspace.left_behind(box.written_paths())
    assert [line.partition(" was written and is not in the commit: ")[0] for line in behind] == list(LEFT_OUT)
    assert all(why in line for line, why in zip(behind, LEFT_OUT.values(), strict=True))
    assert set(workspace.changed_paths()) == set(TAKEN)
    (workspace.tree / ".gitignore").write_text("!/trace.log\n!.cache/\n")
    commit(workspace)
    assert {"trace.log", "a/.cache/x", "lib/util.py", "data/a.bin"} <= set(workspace.changed_paths())


def test_what_was_removed_again_is_not_missed_and_what_git_cannot_take_is(workspace):
    (workspace.tree / "gone.txt").write_text("x")
    commit(workspace)
    (workspace.tree / "gone.txt").unlink()
    (workspace.tree / "late.txt").write_text("x")
    (workspace.tree / "keep.bin").write_text("x")
    commit(workspace)
    (workspace.tree / "late.txt").write_text("changed after the commit")
    os.mkfifo(workspace.tree / "pipe")
    (behind,) = workspace.left_behind(["gone.txt", "late.txt", "keep.bin", "pipe", "lib"])
    assert behind == "late.txt was written and is not in the commit: git did not take it"


def test_names_that_hosts_or_other_systems_refuse_are_told(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "x\\.git").write_text("x")
    (workspace.tree / "readme.MD").write_text("x")
    (workspace.tree / "sub").mkdir()
    (workspace.tree / "sub/.gitattributes").write_text("*.x " + "a" * 2100 + "\n")
    workspace.commit("names", name="Makimono", email="bot@example.com")
    assert workspace.guard() == []
    assert workspace.changed_paths() == ["readme.MD", "sub/.gitattributes"]
    assert any(line.startswith("x\\.git is taken for a git directory") for line in workspace.reports)
    assert any(line.startswith("README.md and readme.MD differ in case alone") for line in workspace.reports)
    (found,) = changes.unfit(workspace.git_dir, workspace.entries())
    assert found.startswith("sub/.gitattributes has a line of 2048 bytes")
