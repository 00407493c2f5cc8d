"""A whole task on GitLab: the daemon and its workers, our loopback GitLab below a sub-path, git over HTTP with a token
at the same address, a project in a subgroup, a scripted model."""

from __future__ import annotations

import re

import pytest
from flow_home import FlowHome, finish, git, write
from forges.git_http import served, write_logins
from forges.gitlab_place import PROJECT, TOKEN
from forges.gitlab_server import DEVELOPER, REPORTER, GitLab

TASK = "Round the sum and not the prices"


class GitLabHome:
    """One project on GitLab, a person, alice, who develops it, and rita, who reports."""

    def __init__(self, folder, plays, config=""):
        self.flow = FlowHome(folder, plays, repos=(), config="")
        self.server = GitLab("/gitlab")
        self.git = served(folder / "http", folder / "repos", {"oauth2": TOKEN})
        self.server.git = self.git.__enter__()
        self.server.user("makimono", token=TOKEN, bot=True)
        people = {"makimono": DEVELOPER, "alice": DEVELOPER, "rita": REPORTER}
        path = folder / "repos" / f"{PROJECT}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.flow.repository(PROJECT, files={})
        git("config", "http.receivepack", "true", cwd=path)
        self.first(path)
        self.project = self.server.project(PROJECT, members=people, git=str(path))
        text = self.flow.config.read_text().replace("task_sources: [local]", "task_sources: [gitlab]")
        text = "\n".join(line for line in text.splitlines() if not line.startswith("local:"))
        section = f"gitlab: {{base_url: '{self.server.url}', token: {TOKEN}, projects: [{self.project['id']}]}}"
        self.flow.config.write_text(f"{text}\n{section}\n{config}")

    def first(self, path):
        """The first commit."""
        work = self.flow.folder / "first"
        git("clone", "-q", str(path), str(work), cwd=self.flow.folder)
        git("checkout", "-q", "-B", "main", cwd=work)
        (work / "calc.py").write_text("def total(prices):\n    return sum(round(p) for p in prices)\n")
        git("add", "-A", cwd=work)
        git("commit", "-q", "-m", "First", cwd=work)
        git("push", "-q", "origin", "main", cwd=work)

    def close(self):
        self.flow.close()
        self.git.__exit__(None, None, None)
        self.server.close()

    def issue(self, *labels, author="alice"):
        return self.server.issue(self.project, author, title=TASK, description="Please.", labels=labels)

    def own(self, item, kind):
        """Own notes with a marker of this kind."""
        bodies = [note["body"] for note in item["notes"] if note["author"]["username"] == "makimono"]
        return [body for body in bodies if re.search(rf":{kind}(-\d+)? -->", body)]

    def merges(self):
        return list(self.project["merge_requests"].values())

    def where_the_token_is(self):
        """Files below the home that hold it, without the configuration and lighttpd's own list."""
        files = [path for path in self.flow.folder.rglob("*") if path.is_file()]
        files = [path for path in files if path.name not in ("config.yaml", "logins")]
        return [path for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.fixture
def homes(tmp_path):
    made = []

    def make(plays, **more):
        made.append(GitLabHome(tmp_path, plays, **more))
        return made[-1]

    yield make
    for home in made:
        home.close()


def test_from_the_label_to_the_merge_request_that_is_ready(homes):
    home = homes(
        {
            TASK: [
                write("calc.py", "def total(prices):\n    return round(sum(prices))\n"),
                finish("Round late", "Done.\n/close\n/merge"),
            ]
        },
        config="verify: {command: 'grep -q round calc.py'}\n",
    )
    home.server.branch_lag = 1  # the API learns of the push a moment later
    refused = home.issue("coding agent", author="rita")
    issue = home.issue("bug", "coding agent")
    home.flow.once()
    assert sorted(issue["labels"]) == ["bug", "coding agent done"]
    assert (issue["state"], refused["labels"]) == ("opened", ["coding agent"])
    (merge,) = home.merges()
    assert (merge["title"], merge["state"], merge["target_branch"]) == ("Round late", "opened", "main")
    assert merge["reviewers"] == [home.server.user("alice")["id"]]
    assert f"#{issue['iid']}" in merge["description"]
    head = merge["source_branch"]
    assert head.startswith(f"makimono/{issue['iid']}-")
    assert "round(sum(prices))" in git("show", f"{head}:calc.py", cwd=home.project["git"])
    assert len(home.own(issue, "progress")) == len(home.own(issue, "final")) == 1
    assert home.where_the_token_is() == []
    row = home.flow.row(issue["iid"])
    assert (row["status"], row["owner"], row["repo"], row["user"]) == ("completed", "acme/tools", "web", "alice")


def test_a_token_that_git_refuses_is_said_and_nothing_is_lost(homes):
    home = homes({TASK: [write("a.txt"), finish("A", "Done.")]})
    issue = home.issue("coding agent")
    write_logins(home.flow.folder / "http", {"oauth2": "another-token-altogether"})
    home.flow.once(code=1)
    (final,) = home.own(issue, "final")
    assert "refused" in final or "credentials" in final or "authentication" in final.lower()
    assert TOKEN not in final
    assert home.merges() == []
