"""`solve` with the address of an issue on a forge: worked on there, or with `--repo` here, and nothing written
there."""

from __future__ import annotations

import json

import pytest
from flow_home import finish, git, write
from forge_home import HOMES, TASK

PLAY = [
    write("calc.py", "def total(prices):\n    return round(sum(prices))\n"),
    finish("Round late", "It rounds late."),
]


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def home(request, tmp_path):
    made = HOMES[request.param](tmp_path, {TASK: PLAY})
    yield made
    made.close()


def address_of(home, key, more=""):
    return f"{home.place.forge.read_issue(key).url}{more}"


def test_without_repo_it_is_worked_on_where_it_is_also_without_the_label(home):
    key = home.place.issue(TASK, "Please.\n", ("bug",), "alice")
    _, out = home.flow.run("solve", address_of(home, key, "#a-comment"), "--json", code=0)
    (pull,) = home.pulls()
    assert (pull.title, pull.draft, home.labels(key)) == ("Round late", False, ["bug", "coding agent done"])
    assert "round(sum(prices))" in home.show(f"{pull.head}:calc.py")
    assert len(home.own(key, "final")) == len(home.own(key, "progress")) == 1
    said = json.loads(out[out.index("{") :])
    assert (said["status"], said["branch"]) == ("completed", pull.head)
    assert said["pull"].startswith("http")
    row = home.flow.row(1)
    assert (row["task_source"], row["task_type"], row["user"], row["url"]) == (
        home.source,
        "issue",
        "alice",
        said["pull"],
    )


def test_with_repo_it_is_solved_there_and_the_forge_hears_nothing(home):
    key = home.place.issue(TASK, "Please.\n", (), "alice", base="main")
    home.place.comment(key, "Rounding down is fine, too.")
    mine = home.flow.folder / "mine"
    git("clone", "-q", str(home.repo), str(mine), cwd=home.flow.folder)
    before = home.changes()
    _, out = home.flow.run("solve", address_of(home, key), "--repo", str(mine), code=0)
    assert home.changes() == before
    assert home.labels(key) == []
    (row,) = home.flow.rows().values()
    assert row["task_source"] == "local"
    assert "round(sum(prices))" in git("show", f"{row['branch']}:calc.py", cwd=mine)
    assert git("status", "--porcelain", cwd=mine) == ""
    assert "It rounds late." in out
    assert (home.flow.kept(1) / "pull.md").is_file()
    briefing = home.flow.lines(1, "messages.jsonl")[1]["content"]
    assert "Rounding down is fine, too." in briefing
    assert "Please." in briefing
    assert row["branch"] not in git("for-each-ref", "refs/heads", cwd=home.repo)


def test_a_pull_or_merge_request_is_a_task_of_its_own_kind(home):
    alice = ("-c", "user.name=Alice", "-c", "user.email=alice@example.org")
    made = git(*alice, "commit-tree", "-p", "main", "-m", "Begin", "main^{tree}", cwd=home.repo)
    git("branch", "feature/x", made.strip(), cwd=home.repo)
    if home.source == "github":
        made = home.state.pull(TASK, "Please.", "alice", "feature/x", "main", draft=False)
        address = f"{home.server.base}/acme/web/issues/{made['number']}"  # GitHub shows it there, too
    elif home.source == "forgejo":
        made = home.state.pull(TASK, "Please.", "alice", "feature/x", "main")
        address = f"{home.server.base}/acme/web/pulls/{made['number']}/files"
    else:
        made = home.server.merge_request(home.place.project, "alice", source="feature/x", title=TASK)
        address = f"{home.server.url}/{home.project}/-/merge_requests/{made['iid']}/diffs"
    home.flow.run("solve", address, code=0)
    (row,) = home.flow.rows().values()
    kind = "merge_request" if home.source == "gitlab" else "pull_request"
    assert (row["task_type"], row["status"]) == (kind, "completed")
    assert "round(sum(prices))" in home.show(f"{row['branch']}:calc.py")
    (opened,) = [pull for pull in home.pulls() if pull.head == row["branch"]]
    assert opened.base == "feature/x"
    assert f"For {'!' if home.source == 'gitlab' else '#'}1" in opened.body
    assert "Closes" not in opened.body, "on GitLab that would be the issue of this number"


def test_what_is_not_there_closed_or_not_configured_is_told_and_leaves_nothing(home):
    key = home.issue()
    there = address_of(home, key)
    for address, words in (
        (f"{there.removesuffix('/1')}/99", "no such"),
        (there.replace("/web/", "/api/"), "no issue, pull or merge request of a project that is configured"),
        ("https://example.org/a/b/issues/1", f"hosts in task_sources: {home.source} "),
    ):
        _, text = home.flow.run("solve", address, code=2)
        assert words in text
    home.place.close_issue(key)
    _, text = home.flow.run("solve", there, code=2)
    assert "open it again" in text
    _, text = home.flow.run("solve", there, "--repo", "nowhere", code=2)
    assert home.flow.rows() == {}
    assert home.changes() == []
    assert home.token not in text
