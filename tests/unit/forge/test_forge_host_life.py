"""What the loopback hosts do by themselves with pull requests and issues: closing words, removed branches, retargeting,
auto-merge, conflicts."""

import json
import os
import subprocess
import urllib.request

import pytest
from first_commit import bare
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_place import GitHubPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from forges.gitlab_place import GitLabPlace

ENV = {**os.environ, **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}


class Hub:
    """A place with a repository in git; branches `one`, and `two` on top of it."""

    def __init__(self, kind, folder):
        self.is_github = kind == "github"
        self.place = (GitHubPlace if self.is_github else GitLabPlace)(folder)
        self.git = folder / "code.git"
        bare(self.git)
        if self.is_github:
            self.place.repo.git, self.host = self.git, self.place.repo
            self.place.person("alice")
        else:
            self.place.project["git"], self.host = str(self.git), self.place.server
        self.issue = self.place.issue()
        self.commit("one", "main", {"one.txt": "1\n"})
        self.commit("two", "one", {"two.txt": "2\n"})

    def run(self, *argv, text=None):
        argv = ["git", "--git-dir", str(self.git), *argv]
        return subprocess.run(argv, input=text, text=True, check=True, stdout=subprocess.PIPE, env=ENV).stdout.strip()

    def commit(self, branch, parent, files, message="A change"):
        """A commit with these files in place of the parent's, by plumbing."""
        start = self.run("rev-parse", parent)
        entries = {line.split("\t")[1]: line for line in self.run("ls-tree", start).splitlines()}
        for name, text in files.items():
            entries[name] = f"100644 blob {self.run('hash-object', '-w', '--stdin', text=text)}\t{name}"
        tree = self.run("mktree", text="".join(f"{line}\n" for line in entries.values()))
        made = self.run("commit-tree", tree, "-p", start, "-m", message)
        self.run("update-ref", f"refs/heads/{branch}", made)
        return made

    def pull(self, head, base="main", body="", title="A change"):
        if self.is_github:
            return self.host.pull(title, body, "alice", head, base, False, sha=self.host.commit_of(head))
        made = self.host.merge_request(self.place.project, "alice", source=head, target=base, title=title)
        made["description"] = body
        return made

    def read(self, pull):
        """What the API says of a pull request."""
        if self.is_github:
            path, token = f"/repos/acme/web/pulls/{pull['number']}", GITHUB_TOKEN
        else:
            path = f"/api/v4/projects/{self.place.project['id']}/merge_requests/{pull['iid']}"
            token = GITLAB_TOKEN
        headers = {"Authorization": f"Bearer {token}"}
        with urllib.request.urlopen(urllib.request.Request(self.place.address + path, headers=headers)) as answer:
            return json.loads(answer.read())

    def is_merged(self, pull):
        shown = self.read(pull)
        return bool(shown["merged_at"]) and shown["state"] in ("closed", "merged")

    def base(self, pull):
        shown = self.read(pull)
        return shown["base"]["ref"] if self.is_github else shown["target_branch"]

    def state(self):
        return self.place.forge.read_issue(self.issue).state

    def merge(self, pull):
        self.host.merge(pull["number"] if self.is_github else pull)

    def drop(self, branch):
        self.host.delete_branch(branch) if self.is_github else self.host.remove_branch(self.place.project, branch)


@pytest.fixture(params=["github", "gitlab"])
def hub(request, tmp_path):
    made = Hub(request.param, tmp_path)
    yield made
    made.place.close()


def test_a_merge_into_the_default_branch_closes_what_its_description_names(hub):
    onto_one = hub.pull("two", "one", body="Closes #1")
    hub.merge(onto_one)
    assert (hub.is_merged(onto_one), hub.state()) == (True, "open")
    whole = hub.pull("one", body="Closes #1")
    hub.merge(whole)
    assert (hub.is_merged(whole), hub.state()) == (True, "closed")
    assert hub.run("show", "main:two.txt") == "2"


def test_a_pushed_commit_with_a_closing_word_closes_and_merges_what_is_in_it(hub):
    pull = hub.pull("one")
    hub.read(pull)
    hub.commit("main", "one", {"three.txt": "3\n"}, "Fixes #1")
    assert hub.is_merged(pull)
    assert hub.state() == "closed"


def test_a_pull_request_is_closed_with_its_branch(hub):
    pull = hub.pull("one")
    hub.read(pull)
    hub.run("update-ref", "-d", "refs/heads/one")  # a push that removes it
    assert (hub.is_merged(pull), hub.read(pull)["state"]) == (False, "closed")


def test_pull_requests_onto_a_merged_branch_go_onto_its_base(hub):
    one, two = hub.pull("one"), hub.pull("two", "one")
    if hub.is_github:
        hub.merge(one)
        hub.drop("one")
    else:
        one["removes_branch"] = True
        hub.merge(one)
    assert (hub.base(two), hub.read(two)["state"] in ("open", "opened")) == ("main", True)


def test_auto_merge_waits_for_the_checks(hub):
    pull = hub.pull("one", body="Closes #1")
    sha = hub.run("rev-parse", "one")
    if hub.is_github:
        check = hub.host.checks.run(sha, "test")
        hub.host.auto_merge(pull["number"], "alice")
        assert hub.read(pull)["auto_merge"]["enabled_by"]["login"] == "alice"
        assert not hub.is_merged(pull)
        hub.host.checks.finish(check, "success")
    else:
        pipeline = hub.host.pipeline(hub.place.project, sha, "one")
        job = hub.host.job(pipeline, "test")
        hub.host.auto_merge(pull, "alice")
        assert hub.read(pull)["merge_when_pipeline_succeeds"] is True
        assert not hub.is_merged(pull)
        hub.host.end_job(pipeline, job, "success")
    assert hub.is_merged(pull)
    assert hub.state() == "closed"


def test_a_conflict_shows_after_the_host_has_tried(hub):
    hub.commit("other", "main", {"one.txt": "another\n"})
    pull = hub.pull("one")
    first, second = hub.read(pull), hub.read(pull)
    if hub.is_github:
        assert (first["mergeable"], second["mergeable"], second["mergeable_state"]) == (None, True, "clean")
    else:
        assert (first["detailed_merge_status"], second["detailed_merge_status"]) == ("checking", "mergeable")
    hub.run("update-ref", "refs/heads/main", "refs/heads/other")
    hub.read(pull)
    shown = hub.read(pull)
    if hub.is_github:
        assert (shown["mergeable"], shown["mergeable_state"]) == (False, "dirty")
    else:
        assert (shown["merge_status"], shown["detailed_merge_status"]) == ("cannot_be_merged", "conflict")
        assert shown["has_conflicts"] is True


def test_github_follows_a_base_that_is_renamed_and_closes_what_goes_onto_a_removed_one(tmp_path):
    hub = Hub("github", tmp_path)
    one, two = hub.pull("one"), hub.pull("two", "one")
    hub.host.rename_branch("main", "trunk")
    assert (hub.base(one), hub.host.default_branch) == ("trunk", "trunk")
    hub.drop("one")
    assert [hub.read(pull)["state"] for pull in (one, two)] == ["closed", "closed"]
    hub.place.close()
