"""An answer of 200 that is not what it must be is the host's doing; what is wrong in our own code is ours."""

from __future__ import annotations

import json
import random
import re
import urllib.request

import pytest
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_place import GitHubPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from forges.gitlab_place import GitLabPlace
from length import either

from agent import clock
from agent.errors import AnswerOdd, ForgeError, ForgeUnreachable
from agent.forge.answer_reader import TIME, Shapes, fault_in
from agent.forge.forgejo import answer_shapes as forgejo
from agent.forge.github import answer_shapes as github

HEAD = "makimono/1-0badcafe"
ODD = (None, 5, "words", [], {}, [None], [{"a": 1}], ...)
"""What a field becomes; `...`: it is missing."""


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def place(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.close()


def fault(place, path, body, verb="GET", **more):
    place.server.fault(verb, path, status=200, body=body if isinstance(place, GitHubPlace) else body.encode(), **more)


@pytest.mark.parametrize("shapes", [github, forgejo])
@pytest.mark.parametrize("name", ["app", "user", "version", "rate_limit", "graphql", "issues", "labels", "teams"])
def test_a_repository_that_is_named_like_the_end_of_a_path_has_the_shape_of_a_repository(shapes, name):
    assert shapes.SHAPES.find("GET", f"/repos/acme/{name}") is shapes.PROJECT
    assert shapes.SHAPES.find("GET", f"/repos/{name}/web") is shapes.PROJECT


@pytest.mark.parametrize("edits", ["words", {"nodes": "words"}, {"nodes": [5]}, {"nodes": [{"editedAt": "soon"}]}])
def test_the_edits_of_a_text_have_a_shape(edits):
    def check(edits):
        answer = {"data": {"repository": {"issueOrPullRequest": {"userContentEdits": edits}}}}
        github.SHAPES.check("POST", "/graphql", answer, "github.com: edits")

    check({"nodes": [None, {"editedAt": "2026-01-31T09:15:00Z", "editor": None}]})
    with pytest.raises(AnswerOdd):
        check(edits)


@pytest.mark.parametrize("body", ["null", "[]", "{}", "5", '"words"', "", "<html>", '{"a": ' * 5000])
def test_an_issue_that_reads_as_something_else_is_no_bug_of_ours(place, body):
    key = place.issue()
    place.forge.read_issue(key)
    fault(place, r"/issues/1$", body, times=9)
    with pytest.raises(ForgeUnreachable):
        place.forge.read_issue(key)
    place.server.faults.clear()
    assert place.forge.read_issue(key).title == "Fix it"


@pytest.mark.parametrize("body", ["null", "[5]", "[{}]"])
def test_a_list_of_odd_things_is_not_polled_into_a_bug(place, body):
    fault(place, r"/(issues|merge_requests)$", body, times=9)
    with pytest.raises(ForgeUnreachable):
        place.forge.task_getter().get_task_list()


def test_one_odd_item_of_a_list_is_left_out_and_told_once(place):
    place.issue()
    place.issue()
    (asked,) = [one for one in listed(place) if len(one[1]) == 2]
    asked[1][0]["iid" if isinstance(place, GitLabPlace) else "number"] = "one"
    for _ in range(2):
        fault(place, f"{re.escape(asked[0])}$", json.dumps(asked[1]))
        getter = place.forge.task_getter()
        assert [task.key.task_id for task in getter.get_task_list()] == [
            str(asked[1][1].get("iid") or asked[1][1]["number"])
        ]
    assert getter.problems == ()


def listed(place):
    """(path, answer) of the list of issues with the label."""
    if isinstance(place, GitHubPlace):
        path = "/repos/acme/web/issues"
        return [(path, raw(place, f"{path}?labels=coding%20agent&state=open"))]
    path = f"/projects/{place.project['id']}/issues"
    return [(path, raw(place, f"{path}?labels=coding%20agent&state=opened"))]


def raw(place, path):
    """What the host answers, asked without the adapter."""
    github = isinstance(place, GitHubPlace)
    url = f"{place.address}{path}" if github else f"{place.address}/api/v4{path}"
    headers = {"Authorization": f"Bearer {GITHUB_TOKEN}"} if github else {"PRIVATE-TOKEN": GITLAB_TOKEN}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return json.load(answer)


def mutants(answer):
    """Copies of an answer with one field of its first object, or of an object in it, made odd."""
    first = answer[0] if isinstance(answer, list) else answer
    for name, value in list(first.items()):
        for holder in [first] + ([value] if isinstance(value, dict) else []):
            for field in [name] if holder is first else list(holder):
                for odd in random.Random(f"{name}{field}").sample(ODD, either(1, 2)):
                    kept = holder[field]
                    if odd is ...:
                        del holder[field]
                    else:
                        holder[field] = odd
                    yield f"{name}/{field} = {odd!r}", json.dumps(answer)
                    holder[field] = kept


def acts(place, key):
    """(what the adapter does, the address whose answer it reads)."""
    forge, github = place.forge, isinstance(place, GitHubPlace)
    place.comment(key, "words")
    forge.post_comment(key, "ours")
    place.branch(HEAD)
    pull = forge.open_pull(key, title="t", body="b", head=HEAD, base="main", draft=True)
    project = "/repos/acme/web" if github else f"/projects/{place.project['id']}"
    kind = "pulls" if github else "merge_requests"
    talk = "comments" if github else "notes"
    yield lambda: forge.read_issue(key), f"{project}/issues/1"
    yield lambda: place.again().read_issue(key), project if github else "/projects/acme%2Ftools%2Fweb"
    yield lambda: forge.comments_since(key, None), f"{project}/issues/1/{talk}"
    yield lambda: forge.marked_comments(key), f"{project}/issues/1/{talk}"
    yield lambda: forge.find_pull(key, HEAD), f"{project}/{kind}"
    yield lambda: forge.update_pull(key, pull, title="new"), f"{project}/{kind}/{pull.id}"
    yield lambda: forge.task_getter().get_task_list(), f"{project}/issues"
    yield lambda: forge.changed_since({key: pull.url}, "2020-01-01T00:00:00Z"), f"{project}/issues"
    yield lambda: forge.requested(key), f"{project}/issues/1"
    yield lambda: place.again().own_names(), "/user"
    if github:
        yield lambda: forge.task_getter().get_task_list(), f"{project}/issues/1/events"
        yield lambda: place.again().read_issue(key), f"{project}/collaborators/alice/permission"
    else:
        yield lambda: forge.task_getter().get_task_list(), f"{project}/issues/1/resource_label_events"


def test_no_field_of_any_answer_can_make_a_bug(place):
    """Every field that the adapter reads has its shape: whatever stands there, it is the forge's error, or none."""
    key = place.issue()
    tried = 0
    for act, path in acts(place, key):
        answer = raw(place, path)
        assert answer, path
        for name, body in mutants(answer):
            fault(place, f"{re.escape(path)}$", body, times=2)
            try:
                act()
            except ForgeError:
                pass
            except Exception as error:
                raise AssertionError(f"{path}: {name}") from error
            place.server.faults.clear()
            tried += 1
    assert tried > either(120, 250)


def test_a_typo_in_an_adapter_is_a_bug_and_not_the_forges(place, monkeypatch):
    key = place.issue()
    monkeypatch.setattr(place.forge, "items", None)
    with pytest.raises((TypeError, AttributeError)):
        place.forge.read_issue(key)


def test_the_error_names_the_request_the_field_and_what_was_found(place):
    key = place.issue()
    fault(place, "/issues/1$", json.dumps(raw_issue(place) | {"updated_at": "soon"}))
    with pytest.raises(AnswerOdd, match=r"GET .*/issues/1: the field `updated_at` must be a time, and is 'soon'"):
        place.forge.read_issue(key)


def raw_issue(place):
    github = isinstance(place, GitHubPlace)
    return raw(place, "/repos/acme/web/issues/1" if github else f"/projects/{place.project['id']}/issues/1")


def test_an_answer_whose_shape_nobody_wrote_down_is_not_read():
    with pytest.raises(LookupError, match="GET /nowhere"):
        Shapes.from_rows(("GET", "/somewhere", dict)).find("GET", "/nowhere")


@pytest.mark.parametrize(
    ("value", "shape", "said"),
    [
        (True, int, "the answer must be a whole number, and is True"),
        ({"a": [1, "x"]}, {"a": [int]}, "the field `a[1]` must be a whole number, and is 'x'"),
        ({"a": {}}, {"a": {"b": str}}, "the field `a.b` is missing"),
        ({"a": None}, {"a?": str}, None),
        ({"a": ""}, {"a?": TIME}, None),
        ("x", (str, {"n": str}), None),
        ("x" * 99, int, f"the answer must be a whole number, and is '{'x' * 59}…"),
    ],
)
def test_a_fault_is_told_in_words(value, shape, said):
    assert fault_in(value, shape) == said
