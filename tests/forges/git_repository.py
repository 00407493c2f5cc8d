"""What a host finds out of a bare repository: its branches, conflicts, messages; and a merge as the host makes it."""

from __future__ import annotations

import os
import subprocess

WHO = {
    f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in (("NAME", "Host"), ("EMAIL", "h@h"))
}


def _git(folder, *argv):
    """(exit code, output)."""
    done = subprocess.run(
        ["git", "--git-dir", str(folder), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **WHO},
    )
    return done.returncode, done.stdout.strip()


def branches(folder):
    """Name of each branch → its commit."""
    listed = _git(folder, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")[1]
    return dict(line.rsplit(" ", 1) for line in listed.splitlines())


def contains(folder, base, head):
    """Whether every commit of `head` is in `base`."""
    return _git(folder, "merge-base", "--is-ancestor", head, base)[0] == 0


def goes_together(folder, base, head):
    """Whether a merge has no conflict."""
    return _git(folder, "merge-tree", "--write-tree", base, head)[0] == 0


def messages(folder, base, head):
    """The messages of the commits of `head` that `base` lacks."""
    listed = _git(folder, "log", "-z", "--format=%B", f"{base}..{head}")[1]
    return [one for one in listed.split("\0") if one]


def merge(folder, branch, head, message):
    """Merge `head` into a branch with a merge commit; returns the commit, "" for a conflict."""
    base = branches(folder)[branch]
    code, tree = _git(folder, "merge-tree", "--write-tree", base, head)
    if code:
        return ""
    made = _git(folder, "commit-tree", tree, "-p", base, "-p", head, "-m", message)[1]
    _git(folder, "update-ref", f"refs/heads/{branch}", made, base)
    return made


def remove(folder, branch):
    """Remove a branch."""
    _git(folder, "update-ref", "-d", f"refs/heads/{branch}")
