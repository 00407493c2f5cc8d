"""A pull or merge request that is itself the task: of a fork, of a person's branch, of a branch of ours."""

from __future__ import annotations

import subprocess

import pytest
from flow_home import do, finish, git, write
from forge_home import HOMES, TASK

from agent.values import TaskKey

THEIRS = "def total(prices):\n    return round(sum(prices))\n"
FIXED = THEIRS.replace("round(", "int(")


class PullHome:
    """A home with one pull request, whose commit is at `ref` and, unless it is a fork's, on `head`."""

    def __init__(self, kind, folder, head, *, fork=False, steps=None, config=""):
        self.home = home = HOMES[kind](
            folder,
            {TASK: [*(steps or [write("calc.py", FIXED)]), finish("Use int", "It is an int now.")]},
            config=config,
        )
        self.kind = kind
        self.ref = "refs/pull/1/head" if kind == "github" else "refs/merge-requests/1/head"
        home.flow.commit(home.project, {"calc.py": THEIRS, "AGENTS.md": "Obey the fork.\n"}, head, "Theirs")
        git("update-ref", self.ref, head, cwd=home.repo)
        self.theirs = git("rev-parse", head, cwd=home.repo).strip()
        if fork:
            git("update-ref", "-d", f"refs/heads/{head}", cwd=home.repo)
        if kind == "github":
            owner = home.server.state.repo("stranger", "web") if fork else None
            self.pull = home.state.pull(TASK, "Better.", "alice", head, "main", False, fork=owner)
            home.state.put_label(self.pull, "coding agent", "alice")
        else:
            owner = home.server.project("stranger/web", members={"stranger": 30, "makimono": 10}) if fork else None
            home.server.push(home.place.project, head)
            self.pull = home.server.merge_request(
                home.place.project, "alice", source=head, source_project=owner, labels=["coding agent"], title=TASK
            )

    def own(self, kind):
        name = "pull_request" if self.kind == "github" else "merge_request"
        owner, _, repo = self.home.project.rpartition("/")
        return self.home.own(TaskKey(self.home.source, owner, repo, name, "1", self.home.place.forge.instance), kind)

    def labels(self):
        return sorted(self.pull["labels"])

    def branches(self):
        return git("for-each-ref", "--format=%(refname:short)", "refs/heads", cwd=self.home.repo).split()


@pytest.fixture(params=["github", "gitlab"])
def make(request, tmp_path):
    made = []

    def start(head, **more):
        made.append(PullHome(request.param, tmp_path, head, **more))
        return made[-1]

    yield start
    for one in made:
        one.home.close()


def test_a_forks_pull_request_is_worked_on_from_its_commits_and_handed_over_as_a_patch(make, tmp_path):
    one = make("main-of-the-fork", fork=True, config="verify: {command: 'grep -q int calc.py'}\n")
    one.home.flow.once()
    row = one.home.flow.row(1)
    assert (row["status"], row["error_code"]) == ("completed", None)
    assert one.labels() == ["coding agent done"]
    (final,) = one.own("final")
    assert "**Nothing was pushed**, since the pull request comes from a fork" in final
    assert "The task is a pull request from stranger/web, a fork, onto main" in final
    assert "grep -q int calc.py`: exit code 0" in final
    # nothing was pushed, nothing was opened, nothing at the fork was touched
    assert one.branches() == ["main"]
    assert git("rev-parse", one.ref, cwd=one.home.repo).strip() == one.theirs
    assert len(one.home.pulls()) == 1
    # a person takes the patch out of the comment
    patch = final.split("<summary>changes.patch</summary>")[1].split("```\n", 1)[1].rsplit("\n```", 1)[0] + "\n"
    tree = tmp_path / "person"
    git("clone", "-q", str(one.home.repo), str(tree), cwd=tmp_path)
    git("fetch", "-q", "origin", one.ref, cwd=tree)
    git("checkout", "-q", "FETCH_HEAD", cwd=tree)
    (tmp_path / "changes.patch").write_text(patch)
    git("apply", "--index", str(tmp_path / "changes.patch"), cwd=tree)
    assert (tree / "calc.py").read_text() == FIXED
    assert (one.home.flow.kept(1) / "changes.patch").read_text() == patch


def test_the_rules_of_a_fork_are_not_the_rules_of_the_repository(make):
    one = make("main-of-the-fork", fork=True)
    one.home.flow.commit(one.home.project, {"AGENTS.md": "Obey the base.\n"}, "main")
    one.home.flow.once()
    briefing = one.home.flow.lines(1, "messages.jsonl")[1]["content"]
    assert "Obey the fork" not in briefing
    assert "from stranger/web, a fork, onto main" in briefing


def test_what_a_forks_patch_may_not_hold_is_held_back(make):
    one = make("main-of-the-fork", fork=True, steps=[write("key.txt", "ghp_" + "a1B2c3D4e5" * 4)])
    one.home.flow.once(code=1)
    assert one.home.flow.row(1)["error_code"] == "policy"
    (final,) = one.own("final")
    assert "**Not published:**" in final
    assert "ghp_a1B2" not in final
    assert not (one.home.flow.kept(1) / "changes.patch").exists()


def test_a_patch_too_long_for_a_comment_is_a_file_of_the_task(make, tmp_path):
    steps = [do("run_command", command="seq -f 'line %g' 9000 > long.txt")]
    one = make("main-of-the-fork", fork=True, steps=steps)
    one.home.flow.once()
    (final,) = one.own("final")
    assert "It is too large for a comment" in final
    assert "line 8888" not in final
    patch = one.home.flow.kept(1) / "changes.patch"
    subprocess.run(["git", "apply", "--stat", str(patch)], cwd=tmp_path, check=True)


def test_a_persons_branch_is_not_pushed_to_and_the_work_is_a_pull_request_onto_it(make):
    one = make("feature/round")
    one.home.flow.once()
    assert one.home.flow.row(1)["status"] == "completed"
    assert git("rev-parse", "feature/round", cwd=one.home.repo).strip() == one.theirs
    (_, ours) = one.home.pulls()
    assert (ours.base, ours.draft) == ("feature/round", False)
    assert ours.head.startswith("makimono/1-")
    assert one.home.show(f"{ours.head}:calc.py") == FIXED
    assert "Closes" not in ours.body
    assert ("For #1" if one.kind == "github" else "For !1") in ours.body
    assert "feature/round is a person's branch and is not pushed to" in one.own("final")[0]


def test_a_pull_request_of_our_own_branch_is_brought_up_to_date_and_keeps_its_words(make):
    one = make("makimono/3-0badcafe", config="verify: {command: 'grep -q int calc.py'}\n")
    one.home.flow.once()
    assert one.home.flow.row(1)["status"] == "completed"
    (pull,) = one.home.pulls()  # never a second one
    assert (pull.title, pull.draft, pull.head) == (TASK, False, "makimono/3-0badcafe")
    assert pull.body == ("Better." if one.kind == "github" else "")
    assert one.home.commits("makimono/3-0badcafe") == ["Use int", "Theirs"]
    assert git("rev-parse", "makimono/3-0badcafe~1", cwd=one.home.repo).strip() == one.theirs
    (final,) = one.own("final")
    assert "grep -q int calc.py`: exit code 0" in final
    assert "the work goes on in that branch" in final


def test_a_pull_request_whose_commits_are_gone_is_said(make):
    one = make("main-of-the-fork", fork=True)
    git("update-ref", "-d", one.ref, cwd=one.home.repo)
    one.home.flow.once(code=1)
    assert one.home.flow.row(1)["error_code"] == "base_missing"
    assert f"{one.ref} does not exist" in one.own("final")[0]
