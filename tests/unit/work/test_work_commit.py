"""A commit holds exactly what the task changed; a hostile tree runs nothing and hides nothing."""

import os
import socket

import pytest
from length import either
from work_repos import OTHER_UID, Source, commit, sh

from agent.gitcmd import git
from agent.work.commit import clean_message
from agent.work.untrusted_tree import is_git_name, leaves_tree

ROOT = os.geteuid() == 0


def show(workspace, *args):
    return git("show", "--no-renames", *args, git_dir=workspace.git_dir).output.decode("utf-8", "surrogateescape")


LINES = {
    "lf": b"one\ntwo\nthree\n",
    "crlf": b"one\r\ntwo\r\nthree\r\n",
    "mixed": b"one\r\ntwo\nthree\r\n",
    "lone cr": b"one\rtwo\ntwo\rthree\n",
    "bom": b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n",
    "no final newline": b"one\r\ntwo\r\nthree",
    "latin-1": b"\xe9\ntwo\n\xe9\n",
    "shift_jis": "日本\ntwo\n語\n".encode("shift_jis"),
}


ATTRIBUTES = ("", "* text=auto\n", "* text eol=lf\n", "* text=auto eol=crlf\n*.txt ident\n")
EDITS = [(kind, attributes) for kind in LINES for attributes in ATTRIBUTES]


@pytest.mark.parametrize(("kind", "attributes"), either(EDITS[:: len(ATTRIBUTES) - 1], EDITS))
def test_a_one_line_edit_is_a_one_line_diff(kind, attributes, source, make_workspace):
    if attributes:
        source.write(".gitattributes", attributes)
    source.git("config", "core.autocrlf", "false")
    (source.path / ".git/info/attributes").write_text("* -text -ident\n")
    source.write("f.txt", LINES[kind])
    source.write("keep.txt", LINES[kind])
    source.commit()
    workspace = make_workspace(source)
    path = workspace.tree / "f.txt"
    path.write_bytes(path.read_bytes().replace(b"two", b"zwei", 1))
    assert commit(workspace)
    stat = workspace.diff_stat()
    assert (stat.files, stat.insertions, stat.deletions) == (1, 1, 1)
    assert git("cat-file", "blob", "HEAD:f.txt", git_dir=workspace.git_dir).output == path.read_bytes()


def test_nothing_changed_is_no_commit(source, make_workspace):
    workspace = make_workspace(source)
    os.utime(workspace.tree / "README.md", (0, 0))
    assert commit(workspace) is None
    assert not workspace.has_commits()


def test_all_kinds_of_changes_survive(source, make_workspace):
    source.write("old name.txt", "\n".join(str(number) for number in range(50)))
    source.write("tool.sh", "#!/bin/sh\n")
    source.write("gone.txt", "x")
    source.write("folder/file", "x")
    source.write("file", "x")
    source.commit()
    workspace = make_workspace(source)
    tree = workspace.tree
    (tree / "old name.txt").rename(tree / "new ä\nname.txt")
    (tree / "tool.sh").chmod(0o755)
    (tree / "gone.txt").unlink()
    (tree / "folder/file").unlink()
    (tree / "folder").rmdir()
    (tree / "folder").write_text("now a file")
    (tree / "file").unlink()
    (tree / "file").mkdir()
    (tree / "file/below").write_text("now a folder")
    (tree / "bin.dat").write_bytes(bytes(range(256)) * 10)
    (tree / "bytes-\udcff.txt").write_text("name is not UTF-8")
    (tree / "link").symlink_to("src/app.py")
    made = commit(workspace)
    lines = workspace.diff_stat().lines
    assert "old name.txt → new ä\\nname.txt +0 -0" in lines
    assert "tool.sh +0 -0" in lines
    assert "bin.dat (binary)" in lines
    assert "bytes-\\xff.txt +1 -0" in lines
    assert {"gone.txt", "folder", "folder/file", "file", "file/below", "link"} <= set(workspace.changed_paths())
    assert "100755" in git("ls-tree", "HEAD", "tool.sh", git_dir=workspace.git_dir).output.decode()
    assert workspace.uncommitted() == []
    assert workspace.guard() == []
    assert (
        show(workspace, "-s", "--format=%an <%ae>|%cn|%s", made).strip() == "Makimono <bot@example.com>|Makimono|change"
    )


def test_the_longest_names_and_paths_are_committed_told_in_short_and_published(source, make_workspace):
    workspace = make_workspace(source)
    names = ["n" * 255, "合" * 85, "-rf", "--upload-pack=x", "a\tb", '"quoted"', " ", "*"]
    for name in names:
        (workspace.tree / name).write_text("x\n")
    deep = workspace.tree
    for _ in range(30):
        deep = deep / ("d" * 120)
    os.makedirs(deep)
    here = os.open(deep, os.O_DIRECTORY)
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert commit(workspace)
    assert {*names, "/".join(["d" * 120] * 30 + ["leaf"])} == set(workspace.changed_paths())
    assert workspace.diff_stat().files == len(names) + 1
    assert workspace.uncommitted() == []
    assert workspace.guard() == []


def test_what_tests_and_builds_leave_behind_is_not_committed(source, make_workspace):
    source.write(".gitignore", "/dist/\n!keep.log\n")
    source.commit()
    workspace = make_workspace(source)
    for name in (
        "node_modules/x/index.js",
        ".venv/bin/python",
        "src/__pycache__/app.pyc",
        ".pytest_cache/v",
        "debug.log",
        "dist/out.js",
        "a.egg-info/PKG-INFO",
        ".mypy_cache/x",
        "keep.log",
        "src/new.py",
    ):
        (workspace.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.tree / name).write_text("x\n")
    commit(workspace)
    assert workspace.changed_paths() == ["keep.log", "src/new.py"]


def test_what_the_repository_already_has_is_not_ignored(source, make_workspace):
    source.write("node_modules/dep/index.js", "x")
    source.write("tests/data/sample.log", "x")
    source.commit()
    workspace = make_workspace(source)
    (workspace.tree / "node_modules/dep/new.js").write_text("x")
    (workspace.tree / "tests/data/other.log").write_text("x")
    (workspace.tree / "node_modules/dep/index.js").write_text("y")
    commit(workspace)
    assert workspace.changed_paths() == ["node_modules/dep/index.js", "node_modules/dep/new.js", "tests/data/other.log"]


def test_a_change_that_keeps_size_and_time_is_seen(source, make_workspace):
    workspace = make_workspace(source)
    path = workspace.tree / "src/app.py"
    times = path.stat()
    path.write_bytes(b"a = 9\nb = 2\nc = 3\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert commit(workspace)


def test_what_is_no_file_neither_hangs_nor_fails_and_is_reported(source, make_workspace):
    source.write("replaced.txt", "x")
    source.commit()
    workspace = make_workspace(source)
    os.mkfifo(workspace.tree / "pipe")
    (workspace.tree / "replaced.txt").unlink()
    os.mkfifo(workspace.tree / "replaced.txt")
    folder = os.open(workspace.tree, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/sock")  # the path itself may be too long for a socket
    os.close(folder)
    (workspace.tree / "new.txt").write_text("x")
    assert commit(workspace)
    assert workspace.changed_paths() == ["new.txt"]
    assert workspace.reports == ["replaced.txt is not a regular file (FIFO, socket or device) and was left out"]
    assert workspace.guard() == []


def test_files_and_folders_without_any_permission(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "locked.txt").write_text("x")
    (workspace.tree / "locked.txt").chmod(0)
    (workspace.tree / "shut").mkdir()
    (workspace.tree / "shut/inside.txt").write_text("x")
    (workspace.tree / "shut").chmod(0)
    (workspace.tree / "new.txt").write_text("x")
    try:
        assert commit(workspace)
        findings = workspace.guard()
    finally:
        (workspace.tree / "shut").chmod(0o700)
    if ROOT:
        assert workspace.changed_paths() == ["locked.txt", "new.txt", "shut/inside.txt"]
    else:
        assert workspace.changed_paths() == ["new.txt"]
        assert workspace.reports == [
            "locked.txt cannot be read (mode 0000) and was left out",
            "shut/ cannot be looked into (its mode forbids it) and was left out",
        ]
        assert findings == []


def test_a_folder_replaced_by_a_symlink_out_of_the_tree_is_refused_and_not_followed(source, make_workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("secret of the host\n")
    workspace = make_workspace(source)
    (workspace.tree / "src/app.py").unlink()
    (workspace.tree / "src").rmdir()
    (workspace.tree / "src").symlink_to(outside)
    commit(workspace)
    assert workspace.changed_paths() == ["src", "src/app.py"]
    assert b"secret of the host" not in b"".join(workspace.history())
    assert workspace.guard() == [f"src is a symlink to {outside}, outside the repository"]


def evil_repository(path, canary):
    """A git directory with everything in it that git executes (docs/security.md, "Git beside a work tree")."""
    sh("git", "init", "-q", str(path), cwd=path.parent)
    top = path / ".git"
    run = f"touch {canary}"
    (top / "config").write_text(
        f"[core]\n\tfsmonitor = {run}\n\thooksPath = hooks\n\tsshCommand = {run}\n\teditor = {run}\n\tpager = {run}\n"
        f'[filter "evil"]\n\tclean = {run}\n\tsmudge = {run}\n\trequired = true\n'
        f'[diff "evil"]\n\tcommand = {run}\n\ttextconv = {run}\n[diff]\n\texternal = {run}\n'
        f'[merge "evil"]\n\tdriver = {run}\n[gpg]\n\tprogram = {run}\n[commit]\n\tgpgSign = true\n'
        f"[sequence]\n\teditor = {run}\n[credential]\n\thelper = !{run}\n[alias]\n\tstatus = !{run}\n"
    )
    (top / "hooks").mkdir(exist_ok=True)
    for hook in ("pre-commit", "post-checkout", "post-index-change", "commit-msg", "pre-push", "reference-transaction"):
        (top / "hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (top / "hooks" / hook).chmod(0o755)
    return top


@pytest.mark.parametrize("kind", ["folder", "file", "symlink", "gone", "fifo", "other content", "empty folder"])
def test_a_changed_git_file_is_put_back_reported_and_never_used(kind, source, make_workspace, tmp_path):
    canary = tmp_path / "canary"
    (tmp_path / "evil").mkdir()
    evil = evil_repository(tmp_path / "evil", canary)
    workspace = make_workspace(source)
    entry = workspace.tree / ".git"
    entry.unlink()
    if kind == "folder":
        evil.rename(entry)
        (entry / "locked").mkdir(mode=0)
    elif kind == "file":
        entry.write_text(f"gitdir: {evil}\n")
    elif kind == "symlink":
        entry.symlink_to(evil)
    elif kind == "fifo":
        os.mkfifo(entry)
    elif kind == "other content":
        entry.write_text("gitdir: /git\n\n")
    elif kind == "empty folder":
        entry.mkdir()
    (workspace.tree / ".gitattributes").write_text("* filter=evil diff=evil merge=evil -text\n")
    (workspace.tree / "README.md").write_text("changed\n")
    assert commit(workspace)
    b"".join(workspace.diff())
    b"".join(workspace.history())
    workspace.unknown()
    workspace.uncommitted()
    assert workspace.guard() == []
    assert entry.read_bytes() == b"gitdir: /git\n"
    assert not entry.is_symlink()
    assert workspace.reports == ["the file .git in the work tree was changed and has been put back"]
    assert workspace.changed_paths() == [".gitattributes", "README.md"]
    assert not canary.exists()
    if kind in ("file", "symlink"):
        assert (evil / "config").exists()


NAMES = ("sub/.git", ".GIT", ".Git", "git~1", "sub/GIT~1", ".g\u200cit", ".git ", ".git.", ".git::$INDEX_ALLOCATION")
ENTRIES = [(name, kind) for name in NAMES for kind in ("file", "folder")]


@pytest.mark.parametrize(("name", "kind"), either(ENTRIES[::4] + ENTRIES[3::4], ENTRIES))
def test_any_other_git_entry_is_not_committed_and_not_our_business(name, kind, source, make_workspace):
    workspace = make_workspace(source)
    entry = workspace.tree / name
    entry.parent.mkdir(exist_ok=True)
    if kind == "file":
        entry.write_text("gitdir: /evil\n")
    else:
        entry.mkdir()
        (entry / "config").write_text("[core]\n\tfsmonitor = touch /tmp/evil\n")
    (workspace.tree / "new.txt").write_text("x")
    assert commit(workspace)
    assert workspace.changed_paths() == ["new.txt"]
    assert workspace.guard() == []


def test_a_repository_inside_the_tree_is_neither_used_nor_committed(source, make_workspace, tmp_path):
    canary = tmp_path / "canary"
    workspace = make_workspace(source)
    (workspace.tree / "inner").mkdir()
    evil_repository(workspace.tree / "inner", canary)
    (workspace.tree / "inner/file.txt").write_text("x")
    bare = workspace.tree / "bare"
    sh("git", "init", "-q", "--bare", str(bare), cwd=tmp_path)
    (bare / "config").write_text(f"[core]\n\tfsmonitor = touch {canary}\n\tbare = false\n\tworktree = ..\n")
    (workspace.tree / "new.txt").write_text("x")
    assert commit(workspace)
    assert "new.txt" in workspace.changed_paths()
    assert "inner" not in workspace.changed_paths()
    assert workspace.guard() == []
    assert "inner/ is a repository of its own and was left out" in workspace.reports
    assert not canary.exists()


@pytest.mark.parametrize(
    ("target", "leaves"),
    [
        ("app.py", False),
        ("../README.md", False),
        ("./x/y", False),
        ("../../etc/passwd", True),
        ("/etc/shadow", True),
        ("/proc/self/environ", True),
        ("../.git/config", True),
        ("x/../../y", True),
        ("../.GIT", True),
        ("..", False),
    ],
)
def test_a_new_symlink_must_stay_inside(target, leaves, source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "src/link").symlink_to(target)
    assert commit(workspace)
    assert bool(workspace.guard()) == leaves
    assert leaves_tree("src/link", target) == leaves


def test_a_symlink_that_a_later_commit_removes_is_still_found_and_can_be_taken_back(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "link").symlink_to("/etc/shadow")
    (workspace.tree / "good.txt").write_text("kept\n")
    commit(workspace)
    (workspace.tree / "link").unlink()
    commit(workspace)
    assert workspace.guard() == ["link is a symlink to /etc/shadow, outside the repository"]
    workspace.take_back()
    assert not workspace.has_commits()
    assert (workspace.tree / "good.txt").read_text() == "kept\n"
    assert commit(workspace)
    assert workspace.guard() == []
    assert workspace.changed_paths() == ["good.txt"]


def test_attributes_cannot_hide_a_change_from_the_diff_or_the_scan(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / ".gitattributes").write_text("* -diff binary export-ignore\n")
    (workspace.tree / "src/app.py").write_text("token = 'hidden'\n")
    (workspace.tree / "blob.bin").write_bytes(b"\0\0\0token-in-binary\0")
    commit(workspace)
    assert b"+token = 'hidden'" in b"".join(workspace.diff())
    assert b"token-in-binary" in b"".join(workspace.history())


def test_the_history_has_what_a_later_commit_removed_and_the_messages(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "a.txt").write_text("first secret\n")
    commit(workspace, "message one")
    (workspace.tree / "a.txt").unlink()
    (workspace.tree / "b.txt").write_text("x\n")
    commit(workspace, "message two")
    assert b"first secret" not in b"".join(workspace.diff())
    history = b"".join(workspace.history())
    assert b"+first secret" in history
    assert b"message one" in history
    assert b"message two" in history


def test_a_large_diff_comes_in_pieces(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "big.txt").write_text("0123456789abcdef\n" * 100_000)
    commit(workspace)
    sizes = [len(chunk) for chunk in workspace.diff()]
    assert len(sizes) > 5
    assert max(sizes) <= 1 << 18


def test_messages_are_made_fit():
    uuid = "0f8c2a1e-1111-2222-3333-444455556666"
    text = f"Fix\x00 it\r\n\r\n\r\n\r\n<!-- makimono:{uuid}:final -->body\x1b[31m makimono:{uuid}:progress \ud800\u202e日本\n"
    assert clean_message(text) == "Fix it\n\nbody[31m  ?日本\n"
    assert clean_message(" \n\0") == "Change\n"
    assert clean_message("see makimono: a scroll") == "see makimono: a scroll\n"
    assert len(clean_message("x" * 100_000)) < 21_000


def test_a_message_with_a_hash_or_many_lines_stays(source, make_workspace):
    workspace = make_workspace(source)
    (workspace.tree / "a").write_text("x")
    made = commit(workspace, "# not a comment\n\nbody ä\n#12")
    assert show(workspace, "-s", "--format=%B", made).strip() == "# not a comment\n\nbody ä\n#12"


@pytest.mark.parametrize("name", ["gitignore", ".gitignore", ".github", "git", "a.git", "git~2", "x.git"])
def test_ordinary_names_are_not_taken_for_git(name):
    assert not is_git_name(name)


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_as_root_files_of_the_other_uid_are_committed(source, make_workspace):
    workspace = make_workspace(source, owner_uid=OTHER_UID)
    path = workspace.tree / "theirs.txt"
    path.write_text("x\n")
    os.chown(path, OTHER_UID, OTHER_UID)
    path.chmod(0o600)
    (workspace.tree / ".git").unlink()
    assert commit(workspace)
    assert workspace.changed_paths() == ["theirs.txt"]


def test_an_unborn_repository_refuses_evil_too(tmp_path, make_workspace):
    workspace = make_workspace(Source(tmp_path / "s"))
    (workspace.tree / "link").symlink_to("/etc/shadow")
    commit(workspace)
    assert workspace.guard() == ["link is a symlink to /etc/shadow, outside the repository"]


def test_files_that_are_little_but_holes_are_left_out_and_the_rest_is_committed(source, make_workspace):
    """A file of two terabytes costs a command nothing; git would have hashed it until its time-out."""
    source.commit()
    workspace = make_workspace(source)
    for name, size in (("src/app.py", 2 << 40), ("huge", 2 << 40), ("one", 40 << 20), ("two", 40 << 20)):
        with (workspace.tree / name).open("wb") as file:
            file.truncate(size)
    (workspace.tree / "written").write_bytes(b"\0" * (1 << 20))
    assert commit(workspace)
    assert workspace.changed_paths() == ["one", "written"]
    left_out = [line for line in workspace.reports if "holes" in line]
    assert [line.split()[0] for line in left_out] == ["src/app.py", "huge", "two"]
    assert "huge has 2,097,152 MiB" in left_out[1]


def test_a_folder_named_like_git_does_not_hide_the_other_changes(source, make_workspace):
    source.commit()
    workspace = make_workspace(source)
    (workspace.tree / ".GIT").mkdir()
    (workspace.tree / ".GIT" / "config").write_text("x\n")
    (workspace.tree / "new").write_text("x\n")
    assert [change.path for change in workspace.changes_now()] == ["new"]
