"""A page in place of git's answers loses nothing: it is never an empty repository, and never a refusal."""

import pytest
from test_work_publish import BRANCH, change, publisher
from work_repos import Source, sh

from agent.errors import GitError, RemoteAway
from agent.work import Mirror
from agent.work.remote import Remote

ONE_LINE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Log in</body></html>"
LINES = b"<!DOCTYPE html>\n<html>\n<body>Down for maintenance\t</body>\n</html>\n"


def login():
    return "x", "good-password"


def away(status=200, body=ONE_LINE, verb=None, path=""):
    """A page for every matching request."""
    return lambda command, asked: (status, body) if verb in (None, command) and path in asked else None


def refs(bare):
    return sh("git", "for-each-ref", "--format=%(refname) %(objectname)", cwd=bare)


@pytest.fixture(
    params=[(200, ONE_LINE), (200, LINES), (503, LINES), (502, ONE_LINE)], ids=["login", "lines", "503", "502"]
)
def page(request):
    return request.param


def test_a_page_is_no_empty_repository(served, page):
    server, url, _ = served
    remote = Remote(url, credentials=login)
    before = remote.list()
    server.page = away(*page)
    for ask in (remote.list, lambda: remote.commit_of("main"), lambda: remote.commit_of("nothing")):
        with pytest.raises(RemoteAway):
            ask()
    server.page = None
    assert remote.list() == before
    assert remote.commit_of("nothing") is None


def test_the_error_says_what_came(served):
    server, url, _ = served
    server.page = away()
    with pytest.raises(
        RemoteAway, match=r"not answered by a git server: 200 text/html '<!DOCTYPE html><html><head><title>Sign in"
    ):
        Remote(url, credentials=login).list()


def test_an_empty_repository_is_still_read(served, tmp_path):
    _, url, bare = served
    for name in ("main",):
        sh("git", "update-ref", "-d", f"refs/heads/{name}", cwd=bare)
    remote = Remote(url, credentials=login)
    assert remote.list().refs == {}
    assert remote.commit_of("main") is None


def test_a_head_that_names_no_branch_hides_none(served):
    _, url, bare = served
    sh("git", "symbolic-ref", "HEAD", "refs/heads/gone", cwd=bare)
    remote = Remote(url, credentials=login)
    assert remote.commit_of("main") is not None
    assert remote.commit_of("other") is None


@pytest.mark.parametrize("broken", [1, 2])
def test_of_two_servers_one_of_which_answers_pages_nothing_empty_is_read(served, broken):
    """A balancer hands every other request to the ill one."""
    server, url, _ = served
    remote, expected = Remote(url, credentials=login), None
    expected = remote.list().refs
    count = [broken]

    def every_other(_command, _path):
        count[0] += 1
        return (200, ONE_LINE) if count[0] % 2 else None

    server.page = every_other
    seen = []
    for _ in range(6):
        try:
            seen.append(remote.list().refs)
        except GitError:
            continue
    assert all(one == expected for one in seen)


@pytest.mark.parametrize("where", [{}, {"verb": "POST"}])
def test_a_page_at_the_fetch_removes_no_branch_of_the_mirror(served, page, tmp_path, where):
    server, url, bare = served
    mirror = Mirror(tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=login))
    mirror.fetch()
    before = refs(mirror.path)
    person = Source(tmp_path / "person")
    person.git("pull", "-q", str(bare), "main")
    person.git("checkout", "-q", "-b", "later")
    person.commit("More")
    person.git("push", "-q", str(bare), "later")
    listed = []

    def after_the_list(command, path):
        """The list of `ls-remote` is answered, what git asks after that is a page."""
        listed.append((command, path))
        asks = sum("info/refs" in one for _, one in listed)
        return page if asks > 1 and (not where or command == "POST") else None

    server.page = after_the_list
    with pytest.raises(GitError):
        mirror.fetch()
    assert refs(mirror.path) == before
    server.page = None
    mirror.fetch()
    assert mirror.commit_of("later") is not None


def test_a_removed_branch_makes_room_for_one_below_its_name(served, tmp_path):
    _, url, bare = served
    mirror = Mirror(tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=login))
    sh("git", "branch", "a", "main", cwd=bare)
    sh("git", "tag", "v1", "main", cwd=bare)
    mirror.fetch()
    assert mirror.branches() == ["a", "main"]
    sh("git", "branch", "-D", "a", cwd=bare)
    sh("git", "branch", "a/b", "main", cwd=bare)
    sh("git", "tag", "-d", "v1", cwd=bare)
    mirror.fetch()
    assert mirror.branches() == ["a/b", "main"]
    assert "v1" not in refs(mirror.path)


@pytest.mark.parametrize("where", [{}, {"verb": "POST"}, {"path": "git-receive-pack"}])
def test_a_page_at_a_push_is_no_refusal_and_the_push_is_made_later_once(served, page, make_workspace, tmp_path, where):
    server, url, bare = served
    mirror = Mirror(tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=login))
    mirror.fetch()
    workspace = make_workspace(None, mirror=mirror)
    made = change(workspace)
    pushes = publisher(workspace)
    before = refs(bare)
    server.page = away(*page, **where)
    for _ in range(2):
        with pytest.raises(RemoteAway):
            pushes.push()
    assert refs(bare) == before
    server.page = None
    assert pushes.push() == made
    assert sh("git", "rev-parse", BRANCH, cwd=bare).strip() == made
