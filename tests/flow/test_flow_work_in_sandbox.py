"""The workspace as commands see it: git works there, read-only, and nothing that is planted reaches the host."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import outsiders
import pytest

from agent import durable_files
from agent.sandbox import Mounts, make_sandbox, sandbox_user
from agent.work import Mirror, Workspace, prepare
from agent.work.checkout import checked_out
from agent.work.remote import Remote

ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}
SETTINGS = SimpleNamespace(
    sandbox=SimpleNamespace(
        kind="auto",
        read_only=(),
        seccomp=True,
        allow=(),
        limits=SimpleNamespace(memory=None, file_size=1 << 30, tmp_size=1 << 28, home_size=1 << 28, processes=None),
    )
)


def sh(*argv, cwd):
    subprocess.run(argv, cwd=cwd, env=ENV, check=True, capture_output=True)


@pytest.fixture
def place(tmp_path):
    """A source repository, a sandbox, and an opened workspace in it."""
    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and folder.stat().st_uid == 0 and folder not in (Path("/"), Path("/tmp")):
            folder.chmod(folder.stat().st_mode | 0o011)
    source = tmp_path / "source"
    source.mkdir()
    sh("git", "init", "-q", "-b", "main", cwd=source)
    (source / "app.py").write_text("a = 1\n")
    sh("git", "add", ".", cwd=source)
    sh("git", "commit", "-q", "-m", "first", cwd=source)
    base_dir = tmp_path / "contexts"
    sandbox = make_sandbox(SETTINGS, uuid="0000-flow", base_dir=base_dir)
    if sandbox.kind != "bubblewrap":
        pytest.skip(f"no sandbox here: {sandbox.reason}")
    mirror = Mirror(base_dir, "local", "local", "repo", Remote(str(source)))
    mirror.fetch()
    context_dir = base_dir / "running" / "0000-flow"
    context_dir.mkdir(parents=True)
    for folder in (base_dir, base_dir / "running"):
        folder.chmod(durable_files.passable())
    sandbox_user.share(context_dir, sandbox.uid)
    workspace = Workspace(context_dir, mirror, branch="makimono/1-00000000", base=None, owner_uid=sandbox.uid)
    workspace.open()
    return workspace, sandbox


def inside(place, command, expect=0):
    workspace, sandbox = place
    done = sandbox.run(command, Mounts(**workspace.mounts()), timeout=60)
    assert done.returncode == expect, done.output.decode()
    return done.output.decode()


def test_git_reads_inside_and_cannot_write(place):
    workspace, _ = place
    assert inside(place, "echo 'a = 2' > app.py; git status --porcelain") == " M app.py\n"
    assert "+a = 2" in inside(place, "git diff")
    assert "first" in inside(place, "git log --oneline main")
    assert "(A " in inside(place, "git blame HEAD -- app.py")
    assert "Read-only file system" in inside(place, "git add app.py 2>&1", expect=128)
    assert inside(place, "git init -q /tmp/other && cd /tmp/other && git status --short && echo fine") == "fine\n"
    assert workspace.commit("change", name="n", email="e@x")
    assert inside(place, "git status --porcelain; git diff --stat main | cat").startswith(" app.py | 2 +-")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has commands of another user")
def test_no_other_user_of_the_machine_reads_anything_and_commands_read_the_mirror(place):
    workspace, _ = place
    test_a_set_up_is_built_and_copied_in_the_same_places(place)
    inside(place, "chmod -R a+rwX . ~; echo secret > app.py; chmod 666 app.py")
    assert workspace.commit("change", name="n", email="e@x")
    base_dir = workspace.mirror.base_dir
    for who in (outsiders.OUTSIDER, sandbox_user.uid_of(str(uuid4()))):
        assert outsiders.readable(base_dir, who) == []
    with checked_out(workspace, workspace.head()):
        assert outsiders.readable(base_dir) == []
    assert "first" in inside(place, f"git log --oneline main; ls {workspace.mirror.path} > /dev/null; id > /dev/null")
    # On the way over root's outer stage the groups are given by setpriv.
    base_dir.chmod(0o700)
    assert "first" in inside(place, f"git log --oneline main; ls {workspace.mirror.path} > /dev/null; id > /dev/null")


def test_a_check_sees_a_clean_check_out_that_it_may_write_in(place):
    workspace, sandbox = place
    inside(
        place, "echo 'a = 2' > app.py; echo '*.o' > .gitignore; echo x > left.o; echo '*.py eol=crlf' > .gitattributes"
    )
    assert workspace.commit("change", name="n", email="e@x")
    inside(place, "echo 'a = 3' > app.py")
    with checked_out(workspace, workspace.head()) as made:
        mounts = Mounts(**{**workspace.mounts(made.home), "work": made.tree, "git": made.git_dir})
        command = "ls -A; cat app.py; git status --porcelain; git rev-parse HEAD; touch new.o ~/new && pwd"
        done = sandbox.run(command, mounts, timeout=60)
        refused = sandbox.run("git add new.o; echo x > /git/config", mounts, timeout=60)
    files = [".git", ".gitattributes", ".gitignore", "app.py", "a = 2\r"]
    assert done.output.decode().split("\n") == [*files, workspace.head(), "/work", ""]
    assert refused.output.decode().count("Read-only file system") == 2
    assert inside(place, "cat app.py left.o") == "a = 3\nx\n"
    assert not list(workspace.context_dir.glob(".*.tmp"))


def test_what_a_command_plants_runs_nowhere_on_the_host(place, tmp_path):
    workspace, _ = place
    canary = workspace.tree / "canary"
    inside(
        place,
        "rm .git && git init -q . && git config core.fsmonitor 'touch canary' && git config filter.x.clean 'touch canary'"
        " && echo '* filter=x' > .gitattributes && mkdir -p .git/hooks && echo 'touch canary' > .git/hooks/pre-commit"
        " && chmod +x .git/hooks/pre-commit && mkfifo pipe && touch locked && chmod 0 locked && echo b > new.py",
    )
    assert workspace.commit("change", name="n", email="e@x")
    assert workspace.guard() == []
    assert len(workspace.reports) >= 1
    assert not canary.exists()
    assert "new.py" in workspace.changed_paths()
    assert ".git" not in workspace.changed_paths()
    assert inside(place, "git log --oneline | wc -l") == "2\n"


def test_a_set_up_is_built_and_copied_in_the_same_places(place):
    workspace, sandbox = place
    section = SimpleNamespace(
        command="python3 -m venv --without-pip .venv && echo hi > $HOME/x && git log --oneline > $HOME/log",
        network=(),
        env={},
        cache_key_files=(),
        timeout=120,
    )
    home = workspace.context_dir / "home"

    def run(command, tree, home, network, env, timeout):
        mounts = Mounts(**{**workspace.mounts(home), "work": tree})
        return sandbox.run(command, mounts, timeout=timeout, network=network, env=env)

    settings = SimpleNamespace(workspace=SimpleNamespace(setup=section), setup_hosts=lambda _: ())
    report = prepare(settings, workspace.mirror, workspace, run, home=home)
    assert report.ok, report.output
    done = sandbox.run(
        ".venv/bin/python -c 'import sys; print(sys.prefix)'; cat ~/x", Mounts(**workspace.mounts(home)), timeout=60
    )
    assert done.output == b"/work/.venv\nhi\n"
    assert workspace.uncommitted() == []
