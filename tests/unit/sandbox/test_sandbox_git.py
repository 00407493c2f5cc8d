"""git inside: reading works, nothing can be planted, other repositories work (docs/security.md, "Commands")."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from agent.sandbox import Mounts, profile

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(*args, **options):
    env = {
        "PATH": "/usr/bin:/bin",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "HOME": "/",
        **IDENTITY,
    }
    return subprocess.run(["git", *map(str, args)], check=True, capture_output=True, env=env, **options).stdout.decode()


@pytest.fixture
def mounts(room):
    return repository(room, room.folder)


def repository(room, base):
    source = base / "source"
    git("init", "-q", "-b", "main", source)
    (source / "file").write_text("one\n")
    git("-C", source, "add", "-A")
    git("-C", source, "commit", "-qm", "first")
    mirror, own = base / "mirror.git", base / "git"
    git("clone", "-q", "--bare", source, mirror)
    git("clone", "-q", "--bare", "--shared", mirror, own)
    git("--git-dir", own, "config", "core.bare", "false")
    git("--git-dir", own, "--work-tree", room.work, "checkout", "-qf", "main")
    (room.work / ".git").write_text("gitdir: /git\n")
    if room.sandbox.uid is not None:
        for path in (room.work, *room.work.iterdir()):
            os.chown(path, room.sandbox.uid, room.sandbox.uid)
    return Mounts(room.work, git=own, mirror=mirror)


def test_reading_works(room, mounts):
    room.run("echo two >> file", mounts)
    assert "modified:   file" in room.says("git status", mounts)
    assert "+two" in room.says("git diff", mounts)
    assert "first" in room.says("git log --oneline", mounts)
    assert "one" in room.says("git blame -s file", mounts)
    assert room.says("mkdir d && cd d && git rev-parse --show-toplevel", mounts) == "/work"


@pytest.mark.parametrize("command", ["git commit -aqm x", "git add file", "git config a.b c", "git checkout -b x"])
def test_writing_is_refused(room, mounts, command):
    room.run("echo two >> file", mounts)
    finished = room.run(command, mounts, env=IDENTITY)
    assert finished.returncode != 0
    assert b"Read-only file system" in finished.output


def test_nothing_can_be_planted(room, mounts):
    before = sorted(path for path in mounts.git.rglob("*"))
    room.run("touch /git/hooks/pre-commit /git/x; mkdir -p /git/hooks; rm -rf /git; echo evil > /git/config", mounts)
    assert sorted(path for path in mounts.git.rglob("*")) == before
    assert room.run(f"touch {mounts.mirror}/x", mounts).returncode != 0


def test_other_repositories_work(room, mounts):
    command = "git init -q /tmp/r && cd /tmp/r && echo x > f && git add f && git commit -qm own && git log --format=%s"
    assert room.says(command, mounts, env=IDENTITY) == "own"
    assert room.says("git clone -q /work /tmp/c 2>&1 && ls /tmp/c", mounts) == "file"


def test_a_changed_git_file_moves_only_what_is_inside(room, mounts):
    room.run("rm .git && git init -q . && git config core.fsmonitor 'touch /work/canary'", mounts)
    git("--git-dir", mounts.git, "--work-tree", room.work, "-c", "core.fsmonitor=false", "status")
    assert not (room.work / "canary").exists()


def test_a_mirror_whose_place_is_taken_inside_is_shown_elsewhere(room, mounts):
    # As for a base_dir below /work: the path names something inside the sandbox itself.
    taken = Path("/work/makimono-no-such-folder/mirror.git")
    assert profile.clashes(taken) == "/work"
    shown = profile.files(Mounts(room.work, git=mounts.git, mirror=taken))
    assert shown["alternates"] == b"/mirror.git/objects\n"
    sources = profile.Sources(staged=False)
    words = profile.repository(Mounts(room.work, git=mounts.git, mirror=taken), sources, {"alternates": 9})
    assert words[-3:] == ["--ro-bind", str(taken), "/mirror.git"]
    assert words[-6:-3] == ["--ro-bind-data", "9", "/git/objects/info/alternates"]


@pytest.mark.skipif(os.geteuid() != 0 or not os.access("/home", os.W_OK), reason="needs a folder below /home/agent")
def test_a_mirror_below_the_home_inside_can_be_read(room):
    existed = Path("/home/agent").exists()
    Path("/home/agent").mkdir(exist_ok=True)
    base = Path(tempfile.mkdtemp(dir="/home/agent"))
    try:
        mounts = repository(room, base)
        assert "first" in room.says("git log --oneline", mounts)
        assert room.says("ls -A $HOME", mounts) == ""
    finally:
        shutil.rmtree(base)
        if not existed:
            Path("/home/agent").rmdir()
