"""`commit.signing: github`: the host makes the task's commits again, and the task has what the host has."""

import pytest
from forges.github_git_routes import require_signed
from forges.github_place import GitHubPlace
from work_repos import Receipts, Source, commit, sh

from agent.errors import ForgeUnreachable, PushRejected
from agent.forge.github.signed_commits import SignedCommits
from agent.work import Publisher, forge_signed_commits, rebase

BRANCH = "makimono/7-11111111"
APP = "makimono-app[bot]"


class AppPlace(GitHubPlace):
    own = APP


@pytest.fixture
def host(tmp_path, source):
    places = []

    def make(kind=AppPlace):
        place = kind(tmp_path / kind.own)
        places.append(place)
        place.repo.git = source.path / ".git"
        return place, SignedCommits(place.forge.wire, place.forge.places.project("acme", "web"))

    yield make
    for place in places:
        place.close()


def publisher(workspace, maker, effects=None):
    return Publisher(
        workspace, effects or Receipts(), scan=lambda chunks: list(chunks)[:0], guarded=lambda *_: [], maker=maker
    )


def change(workspace, name="new.txt", text="x\n"):
    path = workspace.tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return commit(workspace, f"Change {name}\n\nÄöü €\n")


def shown(source, form, *what):
    return source.git("log", "--reverse", f"--format={form}", *what).splitlines()


def branch_at(source):
    return source.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{BRANCH}").strip()


def test_the_host_makes_the_commits_and_the_task_has_them_byte_for_byte(source, make_workspace, host):
    source.write("old/a.txt", "a\n")
    source.write("old/b.txt", "b\n")
    source.commit("more")
    place, maker = host()
    require_signed(place.repo)
    workspace = make_workspace(source)
    (workspace.tree / "run.sh").write_text("#!/bin/sh\n")
    (workspace.tree / "run.sh").chmod(0o755)
    (workspace.tree / "link").symlink_to("README.md")
    sh("rm", "-r", "old", cwd=workspace.tree)
    (workspace.tree / "old").write_text("a file in the place of a folder\n")
    (workspace.tree / "ü b").mkdir()
    (workspace.tree / "ü b" / "c.bin").write_bytes(bytes(range(256)))
    commit(workspace, "First\n")
    change(workspace)
    git_dir = f"--git-dir={workspace.git_dir}"
    trees = sh("git", git_dir, "rev-parse", "HEAD~1^{tree}", "HEAD^{tree}", cwd=source.path).split()
    head = publisher(workspace, maker).push()
    assert head == workspace.head() == branch_at(source) == workspace.state.pushed
    assert shown(source, "%T", f"main..{BRANCH}") == trees
    assert shown(source, "%an %cn %ce", f"main..{BRANCH}") == [f"{APP} GitHub noreply@github.com"] * 2
    assert shown(source, "%s", f"main..{BRANCH}") == ["First", "Change new.txt"]
    assert "Äöü €" in source.git("log", "-1", "--format=%B", BRANCH)
    assert source.git("ls-tree", "-r", BRANCH, "run.sh", "link").split()[::4] == ["120000", "100755"]
    assert source.git("fsck", "--strict", "--no-dangling") == ""
    assert source.git("for-each-ref", "refs/makimono") == ""
    assert workspace.uncommitted() == []

    made = len(place.repo.made)
    later = change(workspace, "later.txt")
    pushed = publisher(workspace, maker).push()
    assert pushed == workspace.head() != later
    assert len(place.repo.made) == made + 2, "one tree and one commit"
    assert rebase.all_of(workspace.git_dir, workspace.start, pushed, shown(source, "%ae", f"main..{BRANCH}")[0])
    assert not rebase.all_of(workspace.git_dir, workspace.start, pushed, "other@b.example")


@pytest.mark.parametrize(
    ("kind", "enterprise", "said"),
    [(GitHubPlace, False, r"did not sign it \(unsigned\)"), (AppPlace, True, r"did not sign it \(unsigned\)")],
    ids=["a person's token", "an Enterprise Server"],
)
def test_what_the_host_does_not_sign_is_not_published(source, make_workspace, host, kind, enterprise, said):
    place, maker = host(kind)
    place.server.is_enterprise = enterprise
    workspace = make_workspace(source)
    head = change(workspace)
    with pytest.raises(PushRejected, match=said):
        publisher(workspace, maker).push()
    assert (branch_at(source), workspace.head()) == ("", head)
    assert source.git("for-each-ref", "refs/makimono") == ""


def test_while_the_signature_service_is_away_the_work_waits(source, make_workspace, host):
    place, maker = host()
    workspace = make_workspace(source)
    change(workspace)
    for reason in forge_signed_commits.AWAY:
        place.server.service_away = reason
        with pytest.raises(ForgeUnreachable, match=reason):
            publisher(workspace, maker).push()
    place.server.service_away = ""
    assert publisher(workspace, maker).push() == branch_at(source)


def test_what_the_api_refuses_is_said_and_kept(source, make_workspace, host):
    place, maker = host()
    workspace = make_workspace(source)
    head = change(workspace)
    place.server.fault("POST", "/git/trees", status=422, message="tree.path is not valid")
    with pytest.raises(PushRejected, match=r"API does not take it: .*tree\.path is not valid"):
        publisher(workspace, maker).push()
    assert (branch_at(source), workspace.head()) == ("", head)
    assert publisher(workspace, maker).push() == branch_at(source) != head


class Dying:
    """The process dies at the commit of this number."""

    def __init__(self, maker, number):
        self.maker, self.left = maker, number
        self.make_tree = maker.make_tree

    def make_commit(self, *wanted):
        made = self.maker.make_commit(*wanted)
        self.left -= 1
        if self.left == 0:
            raise ForgeUnreachable("cut")
        return made


def test_each_step_may_be_repeated(source, make_workspace, host):
    _, maker = host()
    workspace = make_workspace(source)
    change(workspace)
    head = change(workspace, "two.txt")
    effects = Receipts()
    for number in (1, 2):
        with pytest.raises(ForgeUnreachable):
            publisher(workspace, Dying(maker, number), effects).push()
        assert (branch_at(source), workspace.head()) == ("", head)
    publishing = publisher(workspace, maker, effects)
    publishing.check()
    signed = publishing._signed(head, maker)  # the process dies before the push
    assert (branch_at(source), workspace.head()) == ("", signed)
    assert publisher(workspace, maker, effects).push() == signed == branch_at(source)
    assert source.git("for-each-ref", "refs/makimono") == ""


def test_commits_of_others_are_neither_made_again_nor_overwritten(source, make_workspace, host):
    _, maker = host()
    workspace = make_workspace(source)
    change(workspace)
    publisher(workspace, maker).push()
    source.git("checkout", "-q", BRANCH)
    source.write("theirs.txt", "theirs\n")
    theirs = source.commit("theirs")
    source.git("checkout", "-q", "main")
    change(workspace, "two.txt")
    with pytest.raises(PushRejected, match="is not overwritten"):
        publisher(workspace, maker).push()
    assert branch_at(source) == theirs


def test_commits_that_the_branch_had_before_the_task_stay_as_they_are(source, make_workspace, host):
    _, maker = host()
    source.git("checkout", "-q", "-b", BRANCH)
    source.write("src/app.py", "a = 1\nb = 20\nc = 3\n")
    theirs = source.commit("by a person")
    source.git("checkout", "-q", "main")
    source.write("src/app.py", "a = 1\nb = 30\nc = 3\n")
    base = source.commit("main moves")
    workspace = make_workspace(source, start_at=BRANCH)
    assert workspace.lay_merge(base)
    change(workspace, "src/app.py", "a = 1\nb = 50\nc = 3\n")
    assert publisher(workspace, maker).push() == branch_at(source)
    assert shown(source, "%H", f"main..{BRANCH}")[0] == theirs
    assert shown(source, "%ce", f"main..{BRANCH}")[1:] == ["noreply@github.com"]


def test_after_the_first_commit_of_an_empty_repository_the_host_makes_the_others(tmp_path, make_workspace, host):
    empty = Source(tmp_path / "empty")
    place, maker = host()
    place.repo.git = empty.path / ".git"
    workspace = make_workspace(empty)
    first = change(workspace)
    assert publisher(workspace, maker).push() == first == branch_at(empty)
    change(workspace, "two.txt")
    assert publisher(workspace, maker).push() == branch_at(empty)
    assert shown(empty, "%ce", BRANCH)[1:] == ["noreply@github.com"]


def test_many_paths_go_in_several_requests(source, make_workspace, host, monkeypatch):
    monkeypatch.setattr(forge_signed_commits, "MOST_ENTRIES", 2)
    place, maker = host()
    workspace = make_workspace(source)
    for number in range(4):
        (workspace.tree / f"{number}.txt").write_text("x")
    change(workspace)
    assert publisher(workspace, maker).push() == branch_at(source)
    assert len(place.server.asked("POST", "/git/trees")) == 3
