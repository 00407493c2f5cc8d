"""What goes wrong between us and a GitLab: limits, errors, cut connections, redirects, certificates, strange answers.

Waits pass through the clock, so no test waits.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from certificates import self_signed
from forges.gitlab_place import PROJECT, TOKEN, GitLabPlace, gitlab_settings
from forges.gitlab_server import GitLab
from forges.gitlab_state import DEVELOPER

from agent import clock
from agent.errors import (
    ForgeAccessRefused,
    ForgeError,
    ForgeLimited,
    ForgeRefused,
    ForgeUnreachable,
    IssueUnreadable,
)
from agent.forge.gitlab.forge import GitLabForge
from agent.forge.markers import marker, with_markers

MARK = marker("0badcafe-0000-4000-8000-000000000001", "progress")
HEAD = "makimono/1-0badcafe"
NOTES = r"/issues/1/notes$"
MERGES = r"/merge_requests$"


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(datetime.now(UTC))) as fake:
        yield fake


@pytest.fixture
def place(tmp_path, time):
    place = GitLabPlace(tmp_path)
    yield place
    place.close()


def open_pull(place, key, **more):
    place.branch(HEAD)
    wanted = {"title": "Fix", "body": "What was done.", "head": HEAD, "base": "main", "draft": True} | more
    return place.forge.open_pull(key, **wanted)


# --- limits ----------------------------------------------------------------------------------------------------


def in_a_minute():
    return format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "37"}, 37, 37),
        ({"Retry-After": in_a_minute}, 30, 61),
        ({"RateLimit-Reset": lambda: str(int(datetime.now(UTC).timestamp()) + 50)}, 45, 51),
        ({}, 60, 60),
    ],
)
def test_429_is_waited_out_as_gitlab_says(place, time, headers, least, most):
    key = place.issue()
    headers = {name: value() if callable(value) else value for name, value in headers.items()}
    place.server.fault(
        "POST", NOTES, status=429, body=b"Retry later\n", headers={**headers, "Content-Type": "text/plain"}
    )
    place.forge.post_comment(key, "x")
    assert least <= sum(time.slept) <= most + 1
    assert len(place.comments(key)) == 1


def test_429_without_a_word_is_waited_out_longer_each_time(place, time):
    key = place.issue()
    body = {"message": {"error": "This endpoint has been requested too many times. Try again later."}}
    place.server.fault("POST", NOTES, status=429, body=body, times=3)
    place.forge.post_comment(key, "x")
    assert 60 + 120 + 240 <= sum(time.slept) <= 425
    assert len(place.comments(key)) == 1


def test_a_limit_longer_than_the_patience_is_an_error_with_its_time(place, time):
    key = place.issue()
    place.server.fault("POST", NOTES, status=429, headers={"Retry-After": "3600"})
    with pytest.raises(ForgeLimited) as caught:
        place.forge.post_comment(key, "x")
    assert caught.value.retry_after == 3600
    assert time.slept == []


def test_one_limiter_a_host_is_shared_by_all_processes(place, time):
    key = place.issue()
    other = place.again()
    other.read_issue(key)
    place.server.fault("GET", r"/issues/1$", status=429, headers={"Retry-After": "30"})
    with pytest.raises(ForgeLimited):
        place.forge.requested(key)
    asked = len(place.server.asked())
    with pytest.raises(ForgeLimited):
        other.requested(key)
    assert len(place.server.asked()) == asked  # the other did not even ask
    time.move(31)
    assert other.requested(key) is None
    other.close()


def test_a_poll_leaves_the_last_tenth_of_the_budget_to_running_tasks(place, time):
    key = place.issue()
    place.server.rate = [205, 2000, 60]
    place.forge.read_issue(key)
    place.server.rate = [199, 2000, 60]
    place.forge.read_issue(key)
    with pytest.raises(ForgeLimited, match="of 2000 requests are left"):
        place.forge.task_getter().get_task_list()
    place.forge.post_comment(key, "a running task goes on")


def test_a_used_up_budget_is_waited_for_by_the_servers_clock(place, time):
    key = place.issue()
    place.forge.read_issue(key)
    place.server.clock_ahead = timedelta(hours=5)
    place.server.rate = [1, 600, 40]
    place.forge.find_comment(key, MARK)
    place.server.rate = None
    place.forge.post_comment(key, "x")
    assert 35 <= sum(time.slept) <= 45


# --- 5xx and cut connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_5xx_on_a_read_is_asked_again(place, time, status):
    key = place.issue()
    place.server.fault("GET", r"/issues/1$", status=status, body=b"<html>Bad</html>", times=2)
    assert place.forge.read_issue(key).title == "Fix it"
    assert sum(time.slept) == 5
    place.server.fault("GET", r"/issues/1$", status=status, times=3)
    with pytest.raises(ForgeUnreachable, match=str(status)) as caught:
        place.forge.read_issue(key)
    assert not caught.value.maybe


KINDS = {"502 before": {"status": 502}, "502 after": {"status": 502, "after": True}}
KINDS |= {"cut before": {"cut": True}, "cut after": {"cut": True, "after": True}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [with_markers("working", MARK), "no marker in it"])
def test_a_comment_whose_fate_is_unknown_is_looked_up_before_a_second_try(place, kind, body):
    key = place.issue()
    place.server.fault("POST", NOTES, **KINDS[kind])
    own = place.forge.post_comment(key, body)
    assert place.comments(key) == [("makimono", body)]
    assert own == str(place.item(key)["notes"][0]["id"])
    verbs = [verb for verb, _ in place.server.asked(path=NOTES)]
    assert verbs == ["POST", "GET"] if kind.endswith("after") else ["POST", "GET", "POST"]


def test_a_comment_that_fails_twice_says_that_it_may_have_happened(place):
    key = place.issue()
    place.server.fault("POST", NOTES, status=502, times=2)
    with pytest.raises(ForgeUnreachable) as caught:
        place.forge.post_comment(key, with_markers("x", MARK))
    assert caught.value.maybe
    assert len(place.server.asked("POST", NOTES)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_request_whose_fate_is_unknown_is_looked_up_before_a_second_try(place, kind):
    key = place.issue()
    place.server.fault("POST", MERGES, **KINDS[kind])
    pull = open_pull(place, key)
    assert place.pulls() == 1
    assert pull == place.forge.find_pull(key, HEAD)
    assert len(place.server.asked("POST", MERGES)) == (1 if kind.endswith("after") else 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reviewer_is_asked_again_once_although_the_answer_is_lost(place, kind):
    """Each request notifies the reviewer."""
    key = place.issue()
    pull = open_pull(place, key, draft=False)
    (made,) = place.project["merge_requests"].values()
    place.server.note(made, "alice", "Not yet.")
    for number in (1, 2):
        place.server.fault("POST", "/merge_requests/1/notes$", **KINDS[kind])
        place.again().ask_again(key, pull, "alice")
        assert made["asked_for_review"] == ["alice"] * number


@pytest.mark.parametrize("kind", KINDS)
def test_label_changes_and_edits_are_simply_sent_again(place, kind):
    key = place.issue(labels=("bug", "coding agent"))
    place.server.fault("PUT", r"/issues/1$", **KINDS[kind])
    place.forge.move_label(key, "processing")
    assert place.labels(key) == ["bug", "coding agent processing"]
    own = place.forge.post_comment(key, "one")
    place.server.fault("PUT", r"/notes/\d+$", **KINDS[kind])
    place.forge.edit_comment(key, own, "two")
    assert place.comments(key) == [("makimono", "two")]


def test_a_server_that_is_away_is_told_from_one_that_refuses(place, time):
    key = place.issue()
    place.server.close()
    place.server.close = lambda: None
    with pytest.raises(ForgeUnreachable, match="no connection") as caught:
        place.forge.post_comment(key, "x")
    assert not caught.value.maybe
    assert sum(time.slept) == 5


# --- refusals --------------------------------------------------------------------------------------------------


def test_a_token_that_is_revoked_in_the_middle_says_so(place):
    key = place.issue()
    place.forge.move_label(key, "processing")
    place.server.tokens.clear()
    for call in (
        lambda: place.forge.post_comment(key, "x"),
        lambda: place.forge.requested(key),
        lambda: place.forge.task_getter().get_task_list(),
        lambda: open_pull(place, key),
    ):
        with pytest.raises(ForgeAccessRefused, match="wrong, expired or revoked") as caught:
            call()
        assert TOKEN not in str(caught.value)


def test_a_token_without_the_scope_is_told_what_it_needs(place):
    key = place.issue()
    body = {"error": "insufficient_scope", "error_description": "Higher privileges are required", "scope": "api"}
    place.server.fault("POST", NOTES, status=403, body=body)
    with pytest.raises(ForgeAccessRefused, match="scope `api`"):
        place.forge.post_comment(key, "x")


def test_a_deleted_issue_is_unreadable_and_stops_its_task(place):
    key = place.issue()
    place.remove_issue(key)
    with pytest.raises(IssueUnreadable, match="deleted"):
        place.forge.read_issue(key)
    assert place.forge.requested(key) == "stop"


def test_410_names_the_version_of_the_api(place):
    key = place.issue()
    place.server.fault("GET", r"/issues/1$", status=410, body={"error": "API V3 is no longer supported."})
    with pytest.raises(ForgeRefused, match="v4"):
        place.forge.read_issue(key)


def test_already_exists_gives_the_one_there_is(place):
    key = place.issue()
    place.branch(HEAD)
    there = place.server.merge_request(place.project, "alice", source=HEAD)
    place.server.fault("GET", MERGES, status=200, body=[], times=2)  # the list lags behind, all the time
    assert open_pull(place, key).id == str(there["iid"])
    place.server.fault("GET", MERGES, status=200, body=[])
    assert open_pull(place, key).id == str(there["iid"])
    assert place.pulls() == 1


def test_an_open_one_onto_another_branch_is_taken_too(place):
    key = place.issue()
    place.branch("develop")
    first = open_pull(place, key, base="develop")
    assert open_pull(place, key, base="main") == first


def test_a_branch_that_the_api_does_not_know_yet_is_waited_for(place, time):
    key = place.issue()
    place.server.branch_lag = 3
    assert open_pull(place, key).head == HEAD
    assert sum(time.slept) == 1 + 2 + 4
    assert place.pulls() == 1


def test_a_branch_that_never_comes_ends_in_words(place, time):
    key = place.issue()
    place.server.branch_lag = 10_000
    with pytest.raises(ForgeError, match=f"{HEAD} onto main cannot be opened.*does not exist"):
        open_pull(place, key)
    assert sum(time.slept) == 30


def test_a_refusal_with_fields_says_which(place):
    key = place.issue()
    place.branch(HEAD)
    body = {"message": {"target_branch": ["can't be blank", "is odd"], "base": ["No way"]}}
    place.server.fault("POST", MERGES, status=422, body=body)
    with pytest.raises(ForgeError, match="target_branch can't be blank; target_branch is odd; No way"):
        open_pull(place, key)


# --- projects that moved ---------------------------------------------------------------------------------------


def test_a_project_that_was_renamed_is_followed_with_every_call(place):
    key = place.issue()
    place.server.moved[PROJECT] = "acme/new-tools/web"
    place.project["path"] = "acme/new-tools/web"
    forge = place.again()
    assert forge.read_issue(key).title == "Fix it"
    (task,) = forge.task_getter().get_task_list()
    assert task.get_task_key() == key  # the name that is configured
    task.prepare()
    forge.post_comment(key, "x")
    assert len(place.comments(key)) == 1
    assert forge.repository(key, forge.read_issue(key)).url.endswith("/acme/new-tools/web.git")


def test_a_project_that_is_renamed_in_the_middle_stays_the_same(place):
    key = place.issue()
    place.forge.read_issue(key)
    place.server.moved[PROJECT] = "acme/new"
    place.project["path"] = "acme/new"
    place.forge.move_label(key, "processing")
    assert place.labels(key) == ["coding agent processing"]


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_a_redirect_never_carries_the_token_to_another_host(place, tmp_path, verb):
    key = place.issue()
    place.forge.read_issue(key)
    other = GitLab()
    other.user("makimono", token=TOKEN)
    try:
        where = {"Location": f"{other.url}/api/v4/projects/1/issues/1"}
        place.server.fault(verb, r"/issues/1(/notes)?$", status=302, headers=where)
        with pytest.raises(ForgeUnreachable, match="base_url"):
            place.forge.read_issue(key) if verb == "GET" else place.forge.post_comment(key, "x")
        assert other.asked() == []
        assert place.comments(key) == []
    finally:
        other.close()


def test_a_change_that_is_redirected_on_the_same_host_is_not_turned_into_a_read(place):
    key = place.issue()
    path = "/gitlab/api/v4/projects/1/issues/1/notes"
    place.server.fault("POST", NOTES, status=301, headers={"Location": path})
    with pytest.raises(ForgeUnreachable, match="base_url"):
        place.forge.post_comment(key, "x")
    assert place.comments(key) == []


# --- strange answers, strange surroundings ---------------------------------------------------------------------


def test_a_page_of_html_asks_whether_the_address_is_right(place):
    key = place.issue()
    html = {"Content-Type": "text/html"}
    place.server.fault("GET", r"/issues/1$", status=200, body=b"<html>Sign in</html>", headers=html)
    with pytest.raises(ForgeUnreachable, match="sub-path"):
        place.forge.read_issue(key)


def test_something_that_is_no_list_is_an_error_and_not_an_empty_list(place):
    key = place.issue()
    place.server.fault("GET", NOTES, status=200, body={"message": "hello"})
    with pytest.raises(ForgeUnreachable, match="a list was expected"):
        place.forge.find_comment(key, MARK)


def test_pages_are_followed_where_a_proxy_drops_the_link_header(place):
    server = place.server
    server.per_page = 2
    key = place.issue()
    for number in range(5):
        place.comment(key, f"comment {number}")
    plain = server._write

    def without_link(handler, record, status, headers, body):
        headers.pop("Link", None)
        plain(handler, record, status, headers, body)

    server._write = without_link
    assert len(place.forge.read_issue(key).comments) == 5


def test_the_link_header_of_a_server_that_calls_itself_otherwise_is_followed_here(place):
    server = place.server
    server.per_page = 2
    key = place.issue()
    for number in range(5):
        place.comment(key, f"comment {number}")
    server.url = "http://gitlab.internal"  # external_url without port and sub-path
    assert len(place.forge.read_issue(key).comments) == 5


def test_names_with_slashes_and_signs_are_encoded(place):
    server = place.server
    odd = server.project("acme/süb.group/we-b", members={"makimono": DEVELOPER, "alice": DEVELOPER})
    item = server.issue(odd, "alice", labels=("coding agent",))
    forge = place.again(projects=("acme/süb.group/we-b",))
    (task,) = forge.task_getter().get_task_list()
    key = task.get_task_key()
    assert (key.owner, key.repo) == ("acme/süb.group", "we-b")
    head = "feature/ä x+y%2F?&#1"
    server.push(odd, head)
    server.branch_lag = 1
    pull = forge.open_pull(key, title="x", body=f"Closes #{item['iid']}", head=head, base="main", draft=False)
    assert forge.find_pull(key, head) == pull
    other = "feature/ä/b"
    server.push(odd, other)
    server.fault("POST", MERGES, status=400, body={"message": {"sha": ["is odd"]}})
    with pytest.raises(ForgeError, match="sha is odd"):
        forge.open_pull(key, title="x", body="", head=other, base="main", draft=False)
    paths = [path for _, path in server.asked(path="branches")]
    assert paths == ["/gitlab/api/v4/projects/2/repository/branches/feature%2F%C3%A4%2Fb"]


def test_what_stands_in_netrc_is_not_sent(place, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    place.forge.read_issue(place.issue())
    assert all("authorization" not in one["headers"] for one in place.server.journal)
    assert {one["headers"]["private-token"] for one in place.server.journal} == {TOKEN}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_a_host_with_its_own_certificate_needs_ca_file_and_nothing_is_left_unchecked(tmp_path, certificate, time):
    tls, file = certificate
    server = GitLab("/gitlab", tls=tls)
    try:
        server.user("makimono", token=TOKEN, bot=True)
        server.project(PROJECT, members={"makimono": DEVELOPER})
        plain = GitLabForge.from_settings(gitlab_settings(tmp_path, server.url))[0]
        untrusted = r"its certificate is not trusted \(self-signed certificate\); set ca_file"
        with pytest.raises(ForgeUnreachable, match=untrusted):
            plain.task_getter().get_task_list()
        assert server.journal == []
        trusting = GitLabForge.from_settings(gitlab_settings(tmp_path, server.url, ca_file=file))[0]
        assert trusting.task_getter().get_task_list() == []
        trusting.close()
        plain.close()
    finally:
        server.close()


def test_changes_are_paced(place, time):
    key = place.issue()
    for number in range(30):
        place.forge.post_comment(key, f"comment {number}")
    assert 8 <= sum(time.slept) <= 11
    assert json.loads(place.forge.wire.limiter.path.read_text())["tokens"] < 2
