"""A pushed branch goes with its closed task when its pull request is over, and never with a person's commit on it."""

import shutil
import subprocess

import pytest
from flow_home import git
from run_home import UUID

from agent.commands.branch_cleanup import Branches
from agent.commands.cleanup import cleanup
from agent.errors import ForgeUnreachable
from agent.values import Status
from agent.work.gitdir import WorkspaceState

BRANCH = "makimono/1-00000000"


class Pushed:
    """A closed task with a pushed branch and a pull request."""

    def __init__(self, here, state="merged", branch=BRANCH):
        self.here, self.branch = here, branch
        self.bare = here.folder / "repo.git"
        git("init", "-q", "--bare", "-b", "main", str(self.bare), cwd=here.folder)
        self.clone = here.folder / "clone"
        git("clone", "-q", str(self.bare), str(self.clone), cwd=here.folder)
        git("commit", "-q", "--allow-empty", "-m", "base", cwd=self.clone)
        git("push", "-q", "origin", "HEAD:main", cwd=self.clone)
        self.commit = self.push("ours")
        here.issue(1)
        claim = here.claim(1)
        self.pull = here.forge.open_pull(
            here.ledger.get(claim.uuid).key, title="T", body="B", head=branch, base="main", draft=False
        )
        if state == "closed":
            here.forge.update_pull(here.ledger.get(claim.uuid).key, self.pull, state="closed")
        elif state == "merged":
            path = next((here.folder / "tracker" / "pulls").glob("*.md"))
            path.write_text(path.read_text().replace("state: open", "state: merged"))
        here.ledger.finish(claim.uuid, claim.attempt, Status.COMPLETED)
        folder = here.settings.base_dir / "completed" / claim.uuid
        (folder / "git").mkdir(parents=True)
        git("init", "-q", "--bare", str(folder / "git"), cwd=here.folder)
        WorkspaceState(branch=branch, base="main", base_commit=None, start=None, pushed=self.commit).write(
            folder / "git"
        )

    def push(self, message):
        git("commit", "-q", "--allow-empty", "-m", message, cwd=self.clone)
        git("push", "-q", "origin", f"HEAD:refs/heads/{self.branch}", cwd=self.clone)
        return git("rev-parse", "HEAD", cwd=self.clone).strip()

    def there(self):
        found = subprocess.run(["git", "-C", self.bare, "rev-parse", "-q", "--verify", f"refs/heads/{self.branch}"])
        return found.returncode == 0

    def clean(self, *, dry_run=False):
        self.branches = Branches(self.here.wiring, dry_run)
        removed = cleanup(self.here.settings, self.here.ledger, days=0, dry_run=dry_run, branch=self.branches.remove)
        return [one.status for one in removed]


@pytest.fixture
def here(place):
    return place()


@pytest.mark.parametrize("state", ["merged", "closed"])
def test_it_goes_when_its_pull_request_is_over_and_a_dry_run_says_so_first(here, state):
    pushed = Pushed(here, state)
    assert pushed.clean(dry_run=True) == ["branch", "completed"]
    assert pushed.there()
    assert pushed.clean() == ["branch", "completed"]
    assert not pushed.there()
    assert here.ledger.get(UUID % 1) is None


def test_it_stays_while_its_pull_request_is_open(here):
    pushed = Pushed(here, "open")
    assert pushed.clean() == ["completed"]
    assert pushed.there()


def test_it_stays_with_a_commit_of_somebody_else(here):
    pushed = Pushed(here)
    pushed.push("a person's")
    assert pushed.clean() == ["completed"]
    assert pushed.there()


def test_a_commit_that_comes_at_the_last_moment_keeps_it(here, monkeypatch):
    from agent.work.remote import Remote

    pushed = Pushed(here)
    seen = pushed.commit
    pushed.push("a person's")
    monkeypatch.setattr(Remote, "commit_of", lambda *_: seen)
    assert pushed.clean() == ["completed"]
    assert pushed.there()
    assert here.named("effect_failed")[0]["effect"] == "delete branch"


def test_a_branch_that_is_not_of_our_name_is_nobodys_to_remove(here):
    pushed = Pushed(here, branch="feature")
    assert pushed.clean() == ["completed"]
    assert pushed.there()


def test_without_the_key_no_branch_is_looked_at(here):
    pushed = Pushed(here)
    assert not here.settings.context_storage.cleanup_branches
    assert [one.status for one in cleanup(here.settings, here.ledger, days=0)] == ["completed"]
    assert pushed.there()


def test_a_place_that_is_away_is_waited_for_once_and_each_of_its_tasks_stays(here, monkeypatch):
    from agent.forge.local.forge import LocalForge

    pushed = Pushed(here)
    second = here.settings.base_dir / "completed" / (UUID % 2)
    here.issue(2)
    claim = here.claim(2)
    here.ledger.finish(claim.uuid, claim.attempt, Status.COMPLETED)
    shutil.copytree(second.with_name(UUID % 1), second)
    asked = []

    def away(_self, _key, head):
        asked.append(head)
        raise ForgeUnreachable("nobody there")

    with monkeypatch.context() as broken:
        broken.setattr(LocalForge, "find_pull", away)
        assert pushed.clean() == []
    assert asked == [BRANCH]
    assert pushed.branches.waiting == [UUID % 1, UUID % 2]
    assert len(here.named("effect_failed")) == 1
    assert second.is_dir()
    assert here.ledger.get(UUID % 1) is not None
    assert pushed.clean() == ["branch", "completed", "completed"]
    assert not pushed.there()
    assert not second.exists()
