"""A git that is older than the one of this machine: it says so, and does not know what came later."""

import os
import shutil

import pytest

from agent import gitcmd


def make_old(folder, version="2.35.1"):
    """`folder`/git, which is the real one without `merge-tree --write-tree`; returns the folder, for PATH."""
    folder.mkdir()
    script = folder / "git"
    script.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case "$word" in\n'
        f"  version) echo 'git version {version}'; exit ;;\n"
        "  --write-tree) echo 'usage: git merge-tree <base-tree> <branch1> <branch2>' >&2; exit 129 ;;\n"
        "esac; done\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    script.chmod(0o755)
    return folder


@pytest.fixture
def old_git(tmp_path, monkeypatch):
    """From here on git is 2.35, which the program still takes."""
    monkeypatch.setenv("PATH", f"{make_old(tmp_path / 'old')}:{os.environ['PATH']}")
    cached = (gitcmd.program, gitcmd.version)
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()
