"""The change as reviewers see it: nothing in the repository hides a part of it."""

import subprocess

import pytest

from agent.consensus.change import code_around, diff_of


@pytest.fixture
def repository(tmp_path):
    """A repository as a person has it, with a work tree and an index; `commit(files)` returns the new commit."""

    def git(*args):
        who = ("-c", "user.name=A", "-c", "user.email=a@localhost")
        return subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    def commit(files):
        for name, text in files.items():
            (tmp_path / name).write_text(text, newline="")
        git("add", "-A")
        git("commit", "-qm", "x")
        return git("rev-parse", "HEAD").strip()

    git("init", "-q")
    return tmp_path / ".git", commit


def test_attributes_hide_no_file_from_the_reviewers(repository):
    git_dir, commit = repository
    old = commit({".gitattributes": "*.py -diff\n*.sh binary\n", "a.py": "a\n"})
    new = commit({"a.py": "harm()\n", "b.sh": "harm\n"})
    diff = diff_of(git_dir, old, new)
    assert "+harm()" in diff
    assert "+harm\n" in diff


def test_the_code_around_is_numbered_as_git_numbers_it(repository):
    git_dir, commit = repository
    head = "one\x0ctwo\u2028three\r\n\x85four\n"
    old = commit({"a\tb.py": f"{head}five\n"})
    new = commit({"a\tb.py": f"{head}six\n"})
    assert "\n3: six" in code_around(git_dir, new, diff_of(git_dir, old, new))
