"""Our loopback Forgejo does what the real one does, so that tests of the adapter mean something.

Each test is a fact of Forgejo's code or pages; the handler that it calls names the source.
"""

from __future__ import annotations

import pytest
import requests
from forges.forgejo_document import answer_faults, make, request_faults
from forges.forgejo_server import ROOT_URL, TOKEN, ForgejoServer


@pytest.fixture
def host():
    with ForgejoServer(prefix="/git", root=ROOT_URL) as server:
        server.repo = server.state.repo("acme", "web", is_org=True)
        server.repo.people |= {"makimono": "write", "alice": "write", "reader": "read"}
        for login in ("makimono", "alice", "reader"):
            server.state.user_id(login)
        yield server
        assert server.undocumented == []


def ask(host, verb, path, body=None, token=TOKEN, **query):
    headers = {"Authorization": f"token {token}"}
    url = f"{host.base}/api/v1{path}"
    return requests.request(verb, url, json=body, params=query, headers=headers, allow_redirects=False, timeout=10)


def of_repo(host, verb, path, body=None, **query):
    return ask(host, verb, f"/repos/acme/web{path}", body, **query)


def test_a_label_that_no_repository_has_is_no_filter(host):
    host.repo.issue("one", "", "alice")
    host.repo.issue("two", "", "alice", ("coding agent",))
    assert len(of_repo(host, "GET", "/issues", labels="coding agent").json()) == 1
    assert len(of_repo(host, "GET", "/issues", labels="unknown").json()) == 2


def test_labels_are_added_by_name_or_number_and_unknown_ones_are_left_out(host):
    issue = host.repo.issue("one", "", "alice")
    label = host.repo.label("ready")
    assert of_repo(host, "POST", "/issues/1/labels", {"labels": ["nothing", "ready"]}).json()[0]["name"] == "ready"
    assert of_repo(host, "DELETE", f"/issues/1/labels/{label['id']}").status_code == 204
    assert of_repo(host, "DELETE", f"/issues/1/labels/{label['id']}").status_code == 204
    assert of_repo(host, "DELETE", "/issues/1/labels/4711").status_code == 422
    assert of_repo(host, "POST", "/issues/1/labels", {"labels": [label["id"], "ready"]}).status_code == 400
    assert [one["body"] for one in issue["timeline"]] == ["1", ""]


def test_two_labels_may_have_one_name_and_exclusive_ones_replace_each_other(host):
    for _ in range(2):
        assert of_repo(host, "POST", "/labels", {"name": "same", "color": "#ff0000"}).status_code == 201
    assert len(of_repo(host, "GET", "/labels").json()) == 2
    issue = host.repo.issue("one", "", "alice")
    for name in ("agent/queued", "agent/done"):
        host.repo.put_label(issue, host.repo.label(name, exclusive=True), "alice")
    assert host.repo.label_names(issue) == ["agent/done"]


def test_a_list_has_links_with_the_root_url_and_the_one_of_comments_is_whole(host):
    for _ in range(51):
        issue = host.repo.issue("one", "", "alice")
    first = of_repo(host, "GET", "/issues", limit="100")
    assert len(first.json()) == 50
    assert first.links["next"]["url"].startswith("https://forge.example.org/git/api/v1/repos/acme/web/issues?")
    assert first.headers["X-Total-Count"] == "51"
    for _ in range(60):
        host.repo.comment(issue["number"], "text", "alice")
    assert len(of_repo(host, "GET", "/issues/51/comments").json()) == 60
    assert len(of_repo(host, "GET", "/issues/51/timeline").json()) == 60


def test_who_may_ask_for_the_rights_of_others_is_an_administrator(host):
    assert of_repo(host, "GET", "/collaborators/alice/permission").status_code == 403
    assert of_repo(host, "GET", "/collaborators/makimono/permission").json()["permission"] == "write"
    host.repo.people["makimono"] = "admin"
    assert of_repo(host, "GET", "/collaborators/alice/permission").json()["permission"] == "write"
    assert of_repo(host, "GET", "/collaborators/nobody/permission").status_code == 404


def test_a_team_that_reads_pull_requests_may_be_assigned(host):
    host.repo.teams.append({"id": 1, "name": "readers", "members": ["carol"], "units": {"repo.pulls": "read"}})
    assert "carol" in [one["login"] for one in of_repo(host, "GET", "/assignees").json()]
    assert of_repo(host, "GET", "/teams").json()[0]["units_map"] == {"repo.pulls": "read"}
    host.state.repo("alice", "own")
    assert ask(host, "GET", "/repos/alice/own/teams").status_code == 405


def test_a_token_does_what_its_scopes_say(host):
    host.repo.issue("one", "", "alice")
    host.tokens["narrow"] = ("makimono", ("read:issue",))
    assert ask(host, "GET", "/user", token="narrow").status_code == 403
    assert ask(host, "GET", "/repos/acme/web/issues/1", token="narrow").status_code == 200
    answer = ask(host, "POST", "/repos/acme/web/issues/1/comments", {"body": "x"}, token="narrow")
    assert (answer.status_code, "write:issue" in answer.json()["message"]) == (403, True)
    assert ask(host, "GET", "/user", token="wrong").status_code == 401


def test_a_renamed_repository_is_a_301_for_every_verb(host):
    host.repo.issue("one", "", "alice")
    host.state.rename(host.repo, "acme", "site")
    for verb, body in (("GET", None), ("POST", {"body": "x"})):
        answer = of_repo(host, verb, "/issues/1/comments", body)
        assert (answer.status_code, answer.headers["Location"]) == (
            301,
            "/git/api/v1/repos/acme/site/issues/1/comments",
        )


def pull(host, title="Fix", head="fix", base="main"):
    return of_repo(host, "POST", "/pulls", {"title": title, "head": head, "base": base, "body": "Closes #1"})


def test_a_pull_request_is_refused_as_the_server_refuses_it(host):
    assert pull(host, head="main").status_code == 422
    assert pull(host).status_code == 404
    host.repo.branches.add("fix")
    made = pull(host, "WIP: Fix")
    assert (made.status_code, made.json()["draft"]) == (201, True)
    assert pull(host).status_code == 409
    edited = of_repo(host, "PATCH", "/pulls/1", {"title": "Fix"})
    assert (edited.status_code, edited.json()["draft"]) == (201, False)


def test_a_merge_closes_what_it_names_and_a_removed_branch_closes_its_pull_requests(host):
    host.repo.issue("one", "", "alice")
    host.repo.branches |= {"fix", "other"}
    pull(host)
    pull(host, head="other")
    assert host.repo.merge(2, "alice") == {1}
    assert of_repo(host, "GET", "/issues/1").json()["state"] == "closed"
    assert of_repo(host, "PATCH", "/pulls/2", {"state": "open"}).status_code == 412
    host.repo.branch_removed("other", "alice")
    shown = of_repo(host, "GET", "/pulls/3").json()
    assert (shown["state"], shown["head"]["ref"], shown["head"]["label"]) == ("closed", "refs/pull/3/head", "other")


def test_an_edit_of_a_text_shows_in_the_time_of_the_issue_alone(host):
    issue = host.repo.issue("one", "before", "reader")
    host.repo.edit(issue, "reader", body="after")
    host.repo.edit(issue, "reader", title="two")
    assert [one["type"] for one in of_repo(host, "GET", "/issues/1/timeline").json()] == ["change_title"]


def test_an_archived_repository_is_locked_and_one_without_issues_has_none(host):
    host.repo.issue("one", "", "alice")
    host.repo.archived = True
    assert of_repo(host, "POST", "/issues/1/comments", {"body": "x"}).status_code == 423
    host.repo.has_issues = False
    assert of_repo(host, "GET", "/issues/1").status_code == 404


def test_the_document_tells_what_it_forbids_in_both_directions():
    assert request_faults("GET", "/repos/a/b/issues", {"label": "x"}, None)
    assert request_faults("GET", "/repos/a/b/issues", {"state": "every"}, None)
    assert request_faults("POST", "/repos/a/b/pulls", {}, {"heads": "x"})
    assert request_faults("PUT", "/repos/a/b/pulls", {}, None)
    assert not request_faults("GET", "/repos/a/b/issues", {"labels": "x", "limit": "50"}, None)
    user = make("User", login="alice")
    assert not answer_faults("GET", "/user", 200, user)
    assert answer_faults("GET", "/user", 200, user | {"id": "one"})
    assert answer_faults("GET", "/user", 200, user | {"name": "Alice"})
