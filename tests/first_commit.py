"""A bare repository with one commit on `main`, made without a work tree."""

import subprocess

WHO = ("-c", "user.name=Alice", "-c", "user.email=alice@localhost")


def bare(path):
    """Make it at `path`; its first commit has no file."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path)], check=True)
    git = ["git", f"--git-dir={path}", *WHO]
    tree = subprocess.run([*git, "mktree"], input=b"", capture_output=True, check=True).stdout.decode().strip()
    made = subprocess.run([*git, "commit-tree", "-m", "First", tree], capture_output=True, check=True)
    subprocess.run([*git, "update-ref", "refs/heads/main", made.stdout.decode().strip()], check=True)
    return path
