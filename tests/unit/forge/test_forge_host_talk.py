"""Reactions and threads of the loopback hosts: who answers where, and what a second answer gets."""

import json
import urllib.error
import urllib.request

import pytest
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_prism import GitHubPrismPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from forges.gitlab_place import GitLabPlace


def sent(token, verb, url, body=None):
    """(status, answer)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=verb)) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


@pytest.fixture(scope="module")
def prism(tmp_path_factory):
    with GitHubPrismPlace.peer(tmp_path_factory.mktemp("peer")) as peer:
        yield peer


def test_a_reaction_of_github_is_there_once_and_a_reply_goes_to_the_first_comment(prism, tmp_path):
    place = GitHubPrismPlace(tmp_path, prism)
    repo, at = place.repo, f"{place.address}/repos/acme/web"
    place.person("alice")
    number = repo.pull("A change", "", "alice", "fix", "main", False)["number"]
    first = repo.review_comment(number, "Why?", "alice", "a.py", 7, start=5, side="LEFT", hunk="@@ -5,3 +5,3 @@")
    eyes = f"{at}/pulls/comments/{first['id']}/reactions"
    assert [sent(GITHUB_TOKEN, "POST", eyes, {"content": "eyes"})[0] for _ in range(2)] == [201, 200]
    (made,) = sent(GITHUB_TOKEN, "GET", eyes)[1]
    assert made["user"]["login"] == "makimono"
    assert sent(GITHUB_TOKEN, "DELETE", f"{eyes}/{made['id']}") == (204, None)
    said = repo.comment(number, "Please.", "alice")
    assert sent(GITHUB_TOKEN, "POST", f"{at}/issues/comments/{said['id']}/reactions", {"content": "+1"})[0] == 201
    assert sent(GITHUB_TOKEN, "POST", f"{at}/issues/{number}/reactions", {"content": "rocket"})[0] == 201
    replies = f"{at}/pulls/{number}/comments/{first['id']}/replies"
    status, reply = sent(GITHUB_TOKEN, "POST", replies, {"body": "Since it is."})
    assert (status, reply["in_reply_to_id"], reply["path"]) == (201, first["id"], "a.py")
    to_it = f"{at}/pulls/{number}/comments/{reply['id']}/replies"
    assert sent(GITHUB_TOKEN, "POST", to_it, {"body": "x"})[0] == 404
    assert sent(GITHUB_TOKEN, "PATCH", f"{at}/pulls/comments/{reply['id']}", {"body": "Other."})[0] == 200
    shown = sent(GITHUB_TOKEN, "GET", f"{at}/pulls/comments/{first['id']}")[1]
    assert (shown["start_line"], shown["line"], shown["side"]) == (5, 7, "LEFT")
    place.close()


def test_who_has_reviewed_on_github_is_asked_no_more(github):
    github.person("alice")
    number = github.repo.pull("A change", "", "makimono", "fix", "main", False)["number"]
    at = f"{github.address}/repos/acme/web/pulls/{number}/requested_reviewers"
    assert sent(GITHUB_TOKEN, "POST", at, {"reviewers": ["alice"]})[0] == 201
    assert [one["login"] for one in sent(GITHUB_TOKEN, "GET", at)[1]["users"]] == ["alice"]
    github.repo.review(number, "Not yet.", "alice", "CHANGES_REQUESTED")
    assert sent(GITHUB_TOKEN, "GET", at)[1]["users"] == []


def test_awards_and_threads_of_gitlab(tmp_path):
    place = GitLabPlace(tmp_path)
    server, project = place.server, place.project
    item = server.merge_request(project, "alice", source="fix")
    alone = server.note(item, "alice", "Why?")
    line = server.note(item, "alice", "Here.", position={"new_path": "a.py", "new_line": 3})
    at = f"{place.address}/api/v4/projects/{project['id']}/merge_requests/{item['iid']}"
    eyes = f"{at}/notes/{alone['id']}/award_emoji"
    assert sent(GITLAB_TOKEN, "POST", eyes, {"name": "eyes"})[0] == 201
    status, again = sent(GITLAB_TOKEN, "POST", eyes, {"name": "eyes"})
    assert (status, again["message"]) == (404, "404 Award Emoji Name has already been taken Not Found")
    assert sent(GITLAB_TOKEN, "POST", f"{at}/award_emoji", {"name": "eyes"})[0] == 201
    assert [one["name"] for one in sent(GITLAB_TOKEN, "GET", eyes)[1]] == ["eyes"]
    thread = f"{at}/discussions/{line['thread']}"
    assert sent(GITLAB_TOKEN, "POST", f"{thread}/notes", {"body": "Done."})[1]["type"] == "DiffNote"
    assert sent(GITLAB_TOKEN, "POST", f"{thread}/notes", {"body": "/label ~x"})[0] == 400
    resolved = sent(GITLAB_TOKEN, "PUT", thread, {"resolved": True})[1]
    assert [one["resolved_by"]["username"] for one in resolved["notes"]] == ["makimono"] * 2
    other = f"{at}/discussions/{alone['thread']}"
    assert sent(GITLAB_TOKEN, "PUT", other, {"resolved": True})[0] == 400
    sent(GITLAB_TOKEN, "POST", f"{other}/notes", {"body": "Since it is."})
    assert sent(GITLAB_TOKEN, "GET", other)[1]["individual_note"] is False
    assert sent(GITLAB_TOKEN, "POST", f"{at}/notes", {"body": "/label ~x"})[0] == 202
    assert len(item["notes"]) == 4
    place.close()
