"""A clean check-out: the commit, the set-up as its command left it, and nothing that the task's commands made."""

import subprocess
from types import SimpleNamespace

import pytest
from test_work_setup import COMMAND, Runs, put, settings
from work_repos import ENV, commit, sh

from agent.work import setup
from agent.work.checkout import NAME, checked_out


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def worked(source, make_workspace, **options):
    """A workspace with a set-up, a commit, and what a push does not take along."""
    source.write(".gitignore", "lib/\nnode_modules/\n")
    source.commit("ignore")
    workspace = make_workspace(source, **options)
    put(workspace)
    (workspace.tree / "src/app.py").write_text("import lib.util\n")
    (workspace.tree / "lib").mkdir()
    (workspace.tree / "lib/util.py").write_text("x = 1\n")
    (workspace.tree / "node_modules/x/i.js").write_text("changed by the task\n")
    (workspace.context_dir / "home/.local/bin/tool").write_text("changed by the task\n")
    commit(workspace)
    (workspace.tree / "README.md").write_text("not committed\n")
    return workspace


def test_it_holds_the_commit_and_the_set_up_as_it_was_left(source, make_workspace):
    workspace = worked(source, make_workspace)
    with checked_out(workspace, workspace.head()) as place:
        assert names(place.home) == []
        setup.copy_setup(settings(COMMAND), workspace, Runs(), place, workspace.head())
        assert names(place.tree) == [".git", ".gitignore", "README.md", "node_modules/x/i.js", "src/app.py"]
        assert (place.tree / "README.md").read_text() == "hello\n"
        assert (place.tree / "node_modules/x/i.js").read_text() == "1\n"
        assert (place.home / ".local/bin/tool").read_text() == "t\n"
        (place.tree / "closed").mkdir()
        (place.tree / "closed/file").write_text("x")
        (place.tree / "closed").chmod(0)
    assert not (workspace.context_dir / NAME).exists()
    assert (workspace.tree / "README.md").read_text() == "not committed\n"


def test_a_set_up_that_is_gone_from_the_cache_is_made_again(source, make_workspace):
    workspace, runs = worked(source, make_workspace), Runs()
    (workspace.mirror.base_dir / "setup" / workspace.state.setup / "done.json").unlink()
    with checked_out(workspace, workspace.head()) as place:
        setup.copy_setup(settings(COMMAND), workspace, runs, place, workspace.head())
        assert (place.tree / "node_modules/x/i.js").read_text() == "1\n"
    assert len(runs.seen) == 1


def test_without_a_sandbox_the_command_runs_again_on_the_base_commit(source, make_workspace):
    workspace, runs = worked(source, make_workspace, isolated=False), Runs()
    command = f"cp src/app.py seen; echo broken > README.md; rm .gitignore; {COMMAND}"
    with checked_out(workspace, workspace.head()) as place:
        setup.copy_setup(settings(command), workspace, runs, place, workspace.head(), relocatable=False)
        assert (place.tree / "seen").read_text() == "a = 1\nb = 2\nc = 3\n"
        assert (place.tree / "src/app.py").read_text() == "import lib.util\n"
        assert (place.tree / "README.md").read_text() == "hello\n"
        assert (place.tree / ".gitignore").exists()
        assert (place.tree / ".git").read_text() == f"gitdir: {place.git_dir}\n"
        assert sh("git", "status", "--porcelain", "--untracked-files=no", cwd=place.tree) == ""
    assert [one.tree for one in runs.seen] == [workspace.context_dir / NAME / "tree"]


def test_without_a_set_up_there_is_the_commit_alone(source, make_workspace):
    workspace = worked(source, make_workspace)
    nothing = SimpleNamespace(workspace=SimpleNamespace(setup=None))
    with checked_out(workspace, workspace.base_commit) as place:
        setup.copy_setup(nothing, workspace, Runs(), place, workspace.base_commit)
        assert names(place.tree) == [".git", ".gitignore", "README.md", "src/app.py"]
        assert (place.tree / "src/app.py").read_text() == "a = 1\nb = 2\nc = 3\n"


CLONED = {
    ".gitattributes": (
        "* text=auto eol=crlf\n*.sh text eol=lf\n*.raw -text\nid.txt ident\n"
        "wide.txt text working-tree-encoding=UTF-16LE-BOM\n*.odd filter=unknown\n[attr]own text eol=lf\nown.txt own\n"
    ),
    "win.bat": "echo one\necho two\n",
    "unix.sh": "#!/bin/sh\necho one\n",
    "plain.txt": "one\ntwo\n",
    "own.txt": "one\ntwo\n",
    "data.raw": "one\ntwo\n",
    "id.txt": "$Id$\n",
    "a.odd": "one\n",
    "sub/.gitattributes": "*.txt eol=lf\n",
    "sub/plain.txt": "one\ntwo\n",
    "image.bin": b"\0\r\n\n\0",
}


@pytest.fixture
def mixed(source, tmp_path, make_workspace):
    """A repository that uses every kind of conversion, a file with CRLF in the commit, a link, and modes; the task has
    set and removed an executable bit, and has written a file of each kind."""
    for name, data in CLONED.items():
        source.write(name, data)
    source.write("wide.txt", "wide \u00e9\n".encode("utf-16"))
    source.write("was_run.sh", "#!/bin/sh\n").chmod(0o755)
    source.write("will_run.sh", "#!/bin/sh\n")
    (source.path / "link").symlink_to("unix.sh")
    source.commit("mixed")
    source.git(
        "update-index",
        "--add",
        "--cacheinfo",
        "100644,"
        + source.git("hash-object", "-w", "--stdin", "--no-filters", stdin=b"one\r\ntwo\r\n").strip()
        + ",crlf.txt",
    )
    source.git("commit", "-q", "-m", "a file with CRLF in the commit")
    workspace = make_workspace(source)
    tree = workspace.tree
    (tree / "was_run.sh").chmod(0o644)
    (tree / "will_run.sh").chmod(0o755)
    (tree / "new.bat").write_bytes(b"echo\r\n")
    (tree / "new.txt").write_bytes(b"one\ntwo\n")
    (tree / "mixed.txt").write_bytes(b"one\r\ntwo\n")
    (tree / "new.sh").write_bytes(b"#!/bin/sh\necho\n")
    (tree / "new.sh").chmod(0o755)
    (tree / "new_link").symlink_to("sub/plain.txt")
    commit(workspace)
    return workspace


def looks(folder):
    """Path → (executable, bytes or the target of a link), for all files but `.git`."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file() and name.partition("/")[0] != ".git":
            found[name] = bool(path.stat().st_mode & 0o100), path.read_bytes()
    return found


def cloned(workspace, folder):
    """What a person gets: a plain clone of the task's branch, with only the objects that a push sends."""
    published = folder / "published.git"
    sh("git", "init", "-q", "--bare", str(published), cwd=folder)
    branch = f"refs/heads/{workspace.branch}"
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    sh("git", "push", "-q", str(published), branch, cwd=workspace.git_dir, env=safe)
    sh("git", "clone", "-q", "-b", workspace.branch, str(published), str(folder / "clone"), cwd=folder, env=safe)
    return folder / "clone"


def test_the_check_sees_byte_for_byte_and_mode_for_mode_a_fresh_clone(mixed, tmp_path):
    wanted = cloned(mixed, tmp_path)
    with checked_out(mixed, mixed.head()) as place:
        assert looks(place.tree) == looks(wanted)
        state = ("status", "--porcelain")
        found = sh("git", f"--git-dir={place.git_dir}", "--work-tree=.", *state, cwd=place.tree)
        assert found == sh("git", *state, cwd=wanted)
        assert sh("git", f"--git-dir={place.git_dir}", "rev-parse", "HEAD", cwd=place.tree).strip() == mixed.head()
    assert looks(wanted)["win.bat"] == (False, b"echo one\r\necho two\r\n"), "git did convert"
    assert looks(wanted)["wide.txt"][1].startswith(b"\xff\xfe")
    assert looks(wanted)["new.sh"][0]
    assert not looks(wanted)["was_run.sh"][0]
    assert (mixed.tree / "win.bat").read_bytes() == b"echo one\necho two\n", "the task's tree has the commit's bytes"


def test_a_change_with_an_effect_in_clones_alone_fails_the_check(source, make_workspace):
    """The script runs in the task's tree, and in no clone: its first line ends with CR there."""
    source.write("check.sh", "#!/bin/sh\nexit 0\n").chmod(0o755)
    source.commit()
    workspace = make_workspace(source)
    (workspace.tree / ".gitattributes").write_text("* text=auto eol=crlf\n")
    commit(workspace)
    assert subprocess.run([workspace.tree / "check.sh"], env=ENV, check=False).returncode == 0
    with checked_out(workspace, workspace.head()) as place, pytest.raises(FileNotFoundError):
        subprocess.run([place.tree / "check.sh"], env=ENV, check=False)


def test_files_whose_attributes_alone_change_are_written_again(mixed):
    with checked_out(mixed, mixed.head()) as place:
        (mixed.tree / ".gitattributes").write_text("* -text\n")
        commit(mixed, "attributes")
        assert looks(place.tree)["win.bat"][1].count(b"\r\n") == 2, "it is still the commit before"
    with checked_out(mixed, mixed.base_commit) as place:
        place.switch(mixed.head())
        assert looks(place.tree)["win.bat"] == (False, b"echo one\necho two\n")
        assert "new.txt" in looks(place.tree)
        place.switch(mixed.base_commit)
        assert looks(place.tree)["win.bat"] == (False, b"echo one\r\necho two\r\n")
        assert "new.txt" not in looks(place.tree)


def test_an_encoding_that_git_must_not_convert_here_is_reported(source, make_workspace):
    source.write("mail.txt", "text\n")
    source.write("wide.txt", "text\n")
    source.commit()
    workspace = make_workspace(source)
    lines = "*.txt text working-tree-encoding=ISO-2022-CN-EXT\nwide.txt working-tree-encoding=UTF-16\n"
    (workspace.tree / ".gitattributes").write_text(lines)
    commit(workspace)
    with checked_out(workspace, workspace.head()) as place:
        assert (place.tree / "mail.txt").read_bytes() == b"text\n"
        assert (place.tree / "wide.txt").read_bytes().decode("utf-16") == "text\n"
    (report,) = workspace.reports
    assert report.startswith("mail.txt: the check ran on its UTF-8 form")
    assert "ISO-2022-CN-EXT" in report
