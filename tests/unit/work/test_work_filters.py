"""Raw content under `filter=lfs`, or plain text that a repository encrypts, is in no commit, whoever wrote it."""

import shutil

import pytest
from work_repos import commit, sh

from agent.tools import Toolbox

OID = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 12345\n"
ATTRIBUTES = (
    "*.bin filter=lfs diff=lfs merge=lfs -text\nsecret/** filter=git-crypt diff=git-crypt\n*.ipynb filter=nbstripout\n"
)


@pytest.fixture
def workspace(source, make_workspace):
    source.write(".gitattributes", ATTRIBUTES)
    source.write("art/.gitattributes", "*.psd filter=lfs\n")
    source.write("old.bin", POINTER)
    source.write("secret/key", b"\\0GITCRYPT\\0".replace(b"\\0", b"\0") + b"\x01\x02")
    source.commit()
    return make_workspace(source, pushes=False)  # a patch: content goes nowhere


def raw(workspace):
    return workspace.tree / "new.bin", workspace.tree / "old.bin", workspace.tree / "art/a.psd"


def test_raw_content_is_not_committed_and_it_is_told(workspace, source):
    for path in raw(workspace):
        path.write_bytes(b"\0raw content " * 500)
    (workspace.tree / "secret/key").write_text("plain text")
    (workspace.tree / "secret/new").write_text("plain text")
    (workspace.tree / "n.ipynb").write_text("{}")
    (workspace.tree / "pointer.bin").write_text(POINTER)
    (workspace.tree / "empty.bin").write_text("")
    (workspace.tree / "link.bin").symlink_to("pointer.bin")
    commit(workspace)
    assert workspace.changed_paths() == ["empty.bin", "link.bin", "n.ipynb", "pointer.bin"]
    told = [line.partition(" was left out: ")[::2] for line in workspace.reports if " was left out: " in line]
    assert sorted(path for path, _ in told) == ["art/a.psd", "new.bin", "old.bin", "secret/key", "secret/new"]
    assert {why.split()[0] for path, why in told if "secret" in path} == {"the"}
    assert b"raw content" not in b"".join(workspace.history())
    assert b"plain text" not in b"".join(workspace.history())
    (behind,) = workspace.left_behind(["old.bin", "pointer.bin"])
    assert behind.startswith("old.bin was written and is not in the commit: its content belongs into Git LFS")


def test_attributes_that_come_with_the_change_count(workspace):
    (workspace.tree / "big.dat").write_text("raw")
    (workspace.tree / "was.bin").write_text("raw")
    (workspace.tree / ".gitattributes").write_text("*.dat filter=lfs\n")
    commit(workspace)
    assert workspace.changed_paths() == [".gitattributes", "was.bin"]


def test_the_tools_say_so_at_once(workspace):
    box = Toolbox(
        root=workspace.tree,
        context_dir=workspace.context_dir,
        run=None,
        redact=str,
        clean=str,
        lookup={}.get,
        why_left_out=workspace.why_left_out,
    )
    assert "a pointer of Git LFS: the content itself is not here" in box.run("read_file", {"path": "old.bin"}).content
    for name, arguments in (
        ("edit_file", {"path": "old.bin", "old_text": "size 12345", "new_text": "something else"}),
        ("write_file", {"path": "new.bin", "content": "x"}),
    ):
        assert "will not be in the commit: its content belongs into Git LFS" in box.run(name, arguments).content
    assert "will not be" not in box.run("write_file", {"path": "other.bin", "content": POINTER}).content


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not here (scripts/test-peers)")
def test_what_git_lfs_itself_writes_is_taken_for_a_pointer(workspace, source):
    made = sh("git", "lfs", "clean", "x.bin", cwd=source.path, stdin=b"\0raw content " * 500)
    (workspace.tree / "clean.bin").write_text(made)
    commit(workspace)
    assert workspace.changed_paths() == ["clean.bin"]
