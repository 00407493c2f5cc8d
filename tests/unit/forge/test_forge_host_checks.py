"""What the loopback hosts show of CI: check runs, statuses and logs on GitHub, pipelines and jobs on GitLab."""

import json
import urllib.error
import urllib.request

import pytest
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_prism import GitHubPrismPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from forges.gitlab_place import GitLabPlace

SHA = "a" * 40


class Plain(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def asked(url, token=None, **headers):
    """(status, headers, text)."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urllib.request.build_opener(Plain).open(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@pytest.fixture(scope="module")
def prism(tmp_path_factory):
    with GitHubPrismPlace.peer(tmp_path_factory.mktemp("peer")) as peer:
        yield peer


def test_github_shows_check_runs_and_statuses_as_its_document_says(prism, tmp_path):
    place = GitHubPrismPlace(tmp_path, prism)
    repo, at = place.repo, f"{place.address}/repos/acme/web/commits/{SHA}"
    repo.checks.run(SHA, "test", "failure", log="boom")
    repo.checks.run(SHA, "lint")
    again = repo.checks.run(SHA, "test", "success", log="fine", annotations=[("a.py", 3, "unused")])
    repo.checks.status(SHA, "ci/old", "failure")
    repo.checks.status(SHA, "ci/old", "success")
    status, headers, text = asked(f"{at}/check-runs", GITHUB_TOKEN)
    runs = json.loads(text)
    assert status == 200
    assert (runs["total_count"], [one["name"] for one in runs["check_runs"]]) == (2, ["test", "lint"])
    assert [one["conclusion"] for one in runs["check_runs"]] == ["success", None]
    assert runs["check_runs"][0]["id"] == again
    assert asked(f"{at}/check-runs", GITHUB_TOKEN, **{"If-None-Match": headers["ETag"]})[0] == 304
    page = asked(f"{at}/check-runs?filter=all&per_page=2", GITHUB_TOKEN)
    assert json.loads(page[2])["total_count"] == 3
    assert 'rel="next"' in page[1]["Link"]
    combined = json.loads(asked(f"{at}/status", GITHUB_TOKEN)[2])
    assert (combined["state"], combined["total_count"]) == ("success", 1)
    assert len(json.loads(asked(f"{at}/statuses", GITHUB_TOKEN)[2])) == 2
    place.close()


def test_a_log_of_github_is_at_another_host_without_a_token(github):
    number = github.repo.checks.run(SHA, "test", "failure", log="line 1\nboom\n", annotations=[("a.py", 3, "unused")])
    waiting = github.repo.checks.run(SHA, "slow")
    at = f"{github.address}/repos/acme/web"
    status, headers, _ = asked(f"{at}/actions/jobs/{number}/logs", GITHUB_TOKEN)
    assert status == 302
    assert asked(headers["Location"])[2] == "line 1\nboom\n"
    assert asked(headers["Location"], GITHUB_TOKEN)[0] == 400
    assert asked(f"{at}/actions/jobs/{waiting}/logs", GITHUB_TOKEN)[0] == 404
    (place,) = json.loads(asked(f"{at}/check-runs/{number}/annotations", GITHUB_TOKEN)[2])
    assert (place["path"], place["start_line"], place["annotation_level"]) == ("a.py", 3, "failure")
    github.server.withheld.add("actions")
    status, _, text = asked(f"{at}/actions/jobs/{number}/logs", GITHUB_TOKEN)
    assert (status, json.loads(text)["message"]) == (403, "Resource not accessible by personal access token")


def test_gitlab_shows_pipelines_their_jobs_and_traces(tmp_path):
    place = GitLabPlace(tmp_path)
    server, project = place.server, place.project
    item = server.merge_request(project, "alice", source="fix", sha=SHA)
    pipeline = server.pipeline(project, SHA, "fix")
    server.job(pipeline, "flaky", "failed", allow_failure=True)
    first = server.job(pipeline, "test", "failed", trace="boom\n")
    server.job(pipeline, "ci/outside", "success", external=True)
    at = f"{place.address}/api/v4/projects/{project['id']}"

    def read(path):
        status, headers, text = asked(f"{at}{path}", GITLAB_TOKEN)
        assert status == 200
        return json.loads(text) if headers["Content-Type"] == "application/json" else text

    assert read(f"/merge_requests/{item['iid']}")["head_pipeline"]["status"] == "failed"
    assert [one["id"] for one in read(f"/merge_requests/{item['iid']}/pipelines")] == [pipeline["id"]]
    assert [one["id"] for one in read(f"/pipelines?sha={SHA}")] == [pipeline["id"]]
    assert [one["name"] for one in read(f"/pipelines/{pipeline['id']}/jobs")] == ["test", "flaky"]
    assert read(f"/jobs/{first['id']}/trace") == "boom\n"
    assert len(read(f"/repository/commits/{SHA}/statuses")) == 3
    server.job(pipeline, "test", "success")
    assert read(f"/pipelines/{pipeline['id']}")["status"] == "success"
    assert read(f"/pipelines/{pipeline['id']}/jobs?scope[]=failed")[0]["name"] == "flaky"
    project["builds_on"] = False
    assert asked(f"{at}/pipelines", GITLAB_TOKEN)[0] == 403
    place.close()
