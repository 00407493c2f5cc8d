"""The author of commits: the account at the host, unless `commit.author` names another one."""

import re

import pytest
from flow_home import finish, git, write
from forge_home import TASK, GitHubAppHome


def authors(home):
    (pull,) = home.pulls()
    found = git("log", "-1", "--format=%an <%ae>%n%cn <%ce>", pull.head, cwd=home.repo).splitlines()
    return found[0], found[1]


@pytest.mark.parametrize(
    ("kind", "mail"),
    [
        ("github", r"\d+\+makimono@users\.noreply\.127\.0\.0\.1"),
        ("gitlab", r"\d+-makimono@users\.noreply\.127\.0\.0\.1"),
    ],
)
def test_commits_are_of_the_account_at_the_host(homes, kind, mail):
    home = homes(kind, {TASK: [write("a.py"), finish("A", "Done.")]})
    home.issue()
    home.flow.once()
    author, committer = authors(home)
    assert author == committer
    assert re.fullmatch(rf"[^<>]+ <{mail}>", author), author


def test_commits_of_an_app_are_of_its_bot(tmp_path):
    home = GitHubAppHome(tmp_path, {TASK: [write("a.py"), finish("A", "Done.")]})
    try:
        home.issue()
        home.flow.once()
        wanted = r"[^<>]+ <\d+\+makimono-app\[bot\]@users\.noreply\.127\.0\.0\.1>"
        assert re.fullmatch(wanted, authors(home)[0]), authors(home)
    finally:
        home.close()


def test_the_address_that_the_account_has_chosen_counts_on_gitlab(homes):
    home = homes("gitlab", {TASK: [write("a.py"), finish("A", "Done.")]})
    account = next(one for one in home.server.users.values() if one["username"] == "makimono")
    account["commit_email"] = "bot@acme.example"
    home.issue()
    home.flow.once()
    assert authors(home)[0].endswith(" <bot@acme.example>")


def test_the_configured_author_comes_first(homes):
    config = "commit: {author: 'Ann Other <ann@acme.example>'}\n"
    home = homes("github", {TASK: [write("a.py"), finish("A", "Done.")]}, config=config)
    home.issue()
    home.flow.once()
    assert authors(home) == ("Ann Other <ann@acme.example>",) * 2


def test_a_local_tracker_has_no_account(home):
    here = home({"Fix it": [write("a.py"), finish("A", "Done.")]})
    here.issue(1, "Fix it")
    here.once()
    (branch,) = [one for one in here.branches() if one != "main"]
    assert git("log", "-1", "--format=%an <%ae>", branch, cwd=here.repos["default"]).strip() == (
        "makimono <makimono@localhost>"
    )
