"""What goes wrong between us and a Forgejo: limits, errors, cut connections, redirects, strange answers.

Waits pass through the clock, so no test waits.
"""

from __future__ import annotations

import json

import pytest
from forges.faults import PAGE
from forges.forgejo_place import ForgejoPlace

from agent import clock
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeError, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.forge.markers import marker, with_markers

MARK = marker("0badcafe-0000-4000-8000-000000000001", "progress")
HEAD = "makimono/1-0badcafe"
COMMENTS = r"/issues/1/comments$"
PULLS = r"/pulls$"
AFTER = [{"status": 502, "after": True}, {"status": 504, "after": True}, {"cut": True, "after": True}]
BEFORE = [{"status": 502}, {"cut": True}]


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as fake:
        yield fake


@pytest.fixture
def place(tmp_path, time):
    place = ForgejoPlace(tmp_path)
    yield place
    place.close()


def open_pull(place, key, **more):
    place.branch(HEAD)
    wanted = {"title": "Fix", "body": "Done.", "head": HEAD, "base": "main", "draft": True} | more
    return place.forge.open_pull(key, **wanted)


@pytest.mark.parametrize("fault", AFTER + BEFORE, ids=str)
def test_a_comment_whose_fate_is_unknown_is_looked_up_and_written_once(place, fault):
    key = place.issue()
    place.server.fault("POST", COMMENTS, **fault)
    number = place.forge.post_comment(key, with_markers("Queued.", MARK))
    assert [one["id"] for one in place.item(key)["timeline"] if one["type"] == "comment"] == [int(number)]


@pytest.mark.parametrize("fault", AFTER + BEFORE, ids=str)
def test_a_pull_request_whose_fate_is_unknown_is_looked_up_and_opened_once(place, fault):
    key = place.issue()
    place.server.fault("POST", PULLS, **fault)
    assert open_pull(place, key).draft
    assert place.pulls() == 1


@pytest.mark.parametrize("fault", AFTER + BEFORE, ids=str)
def test_a_label_whose_fate_is_unknown_is_looked_up_and_made_once(place, fault):
    """Forgejo makes a second label of the same name like the first one."""
    key = place.issue()
    place.server.fault("POST", r"/web/labels$", **fault)
    place.forge.move_label(key, "processing")
    assert place.labels(key) == ["coding agent processing"]
    assert len(place.repo.labels) == 2


@pytest.mark.parametrize("fault", AFTER + BEFORE, ids=str)
def test_labels_and_edits_are_simply_sent_again(place, fault):
    key = place.issue(labels=("bug", "coding agent"))
    place.forge.move_label(key, "queued")
    for verb, path in (("POST", r"/issues/1/labels$"), ("DELETE", "/issues/1/labels/")):
        place.server.fault(verb, path, **fault)
    place.forge.move_label(key, "processing")
    assert place.labels(key) == ["bug", "coding agent processing"]
    pull = open_pull(place, key)
    place.server.fault("PATCH", "/pulls/2$", **fault)
    assert not place.forge.update_pull(key, pull, draft=False, body="Ready.").draft
    comment = place.forge.post_comment(key, "One.")
    place.server.fault("PATCH", "/issues/comments/", **fault)
    place.forge.edit_comment(key, comment, "Two.")
    place.server.fault("DELETE", "/issues/comments/", **fault)
    assert place.words(key) == [("makimono", "Two.")]
    place.forge.remove_comment(key, comment)
    assert place.comments(key) == []


def test_a_read_is_tried_three_times(place, time):
    key = place.issue()
    place.server.fault("GET", "/issues/1$", status=500, times=2)
    assert place.forge.read_issue(key).title == "Fix it"
    place.server.fault("GET", "/issues/1$", status=500, times=3)
    with pytest.raises(ForgeUnreachable, match="500"):
        place.forge.read_issue(key)


def test_a_429_of_a_proxy_is_waited_for(place, time):
    key = place.issue()
    place.server.fault("POST", COMMENTS, status=429, headers={"Retry-After": "37"})
    before = time.monotonic()
    place.forge.post_comment(key, "Queued.")
    assert 37 <= time.monotonic() - before < 60
    assert len(place.comments(key)) == 1


def test_a_token_that_is_revoked_in_the_middle_says_so_and_nothing_is_repeated(place):
    key = place.issue()
    place.forge.read_issue(key)
    place.server.tokens.clear()
    before = len(place.server.journal)
    with pytest.raises(ForgeAccessRefused, match="wrong, expired or revoked") as caught:
        place.forge.post_comment(key, "x")
    assert len(place.server.journal) == before + 1
    assert "f" * 40 not in str(caught.value)


def test_a_token_without_the_scope_names_it(place):
    key = place.issue()
    place.server.tokens = {"f" * 40: ("makimono", ("read:issue", "read:repository", "read:user"))}
    with pytest.raises(ForgeAccessRefused, match=r"write:issue.*make a token with these scopes"):
        place.forge.post_comment(key, "x")


def test_an_account_without_the_right_to_write_names_the_repository_of_the_label(place):
    key = place.issue()
    place.repo.people["makimono"] = "read"
    with pytest.raises(ForgeAccessRefused, match=r"acme/web.*the account lacks a right"):
        place.forge.move_label(key, "processing")


@pytest.mark.parametrize("status", [200, 401, 403, 404, 502])
def test_a_page_is_an_outage_and_its_status_no_fact(place, status):
    key = place.issue()
    kind = {"Content-Type": "text/html"}
    place.server.fault("*", "/issues/1$", status=status, body=PAGE.encode(), headers=kind, times=-1)
    with pytest.raises(ForgeUnreachable, match="is base_url the address of Forgejo"):
        place.forge.read_issue(key)
    with pytest.raises(ForgeUnreachable):
        place.forge.requested(key)
    place.server.faults.clear()
    assert place.forge.requested(key) is None


def test_a_sub_path_that_is_missing_is_said(place):
    forge = place.again(base_url=place.address.removesuffix("/git"))
    with pytest.raises(ForgeUnreachable, match="with its sub-path"):
        forge.read_issue(place.issue())


@pytest.mark.parametrize("body", [b"null", b"[]", b'{"number": "1"}', b"{", b'{"number": 1, "state": null}'])
def test_an_answer_of_another_shape_is_odd_and_names_its_field(place, body):
    key = place.issue()
    place.server.fault("GET", "/issues/1$", status=200, body=body)
    with pytest.raises(AnswerOdd, match="/issues/1"):
        place.forge.read_issue(key)


def test_an_ill_item_of_a_list_is_left_out_and_told(place):
    place.issue("one")
    place.issue("two")
    found = place.server.answer(
        "GET", "/git/api/v1/repos/issues/search?state=open", {"Authorization": f"token {'f' * 40}"}, ""
    )
    items = json.loads(found[2])
    items[0]["updated_at"] = "yesterday"
    place.server.fault("GET", "issues/search", status=200, body=json.dumps(items))
    getter = place.forge.task_getter()
    assert [task.title for task in getter.get_task_list()] == ["one"]
    assert "updated_at" in str(getter.problems[0])


def test_a_redirect_to_another_host_gets_no_token(place):
    key = place.issue()
    place.server.fault("POST", COMMENTS, status=301, headers={"Location": "https://elsewhere.example/api/v1"}, times=-1)
    with pytest.raises(ForgeUnreachable, match=r"elsewhere\.example"):
        place.forge.post_comment(key, with_markers("x", MARK))


def test_a_redirect_without_an_end_is_an_outage(place):
    key = place.issue()
    here = f"{place.address}/api/v1/repos/acme/web/issues/1"
    place.server.fault("GET", "/issues/1$", status=301, headers={"Location": here}, times=-1)
    with pytest.raises(ForgeUnreachable):
        place.forge.read_issue(key)


def test_a_branch_that_is_not_there_is_named(place):
    key = place.issue()
    with pytest.raises(ForgeRefused, match=f"{HEAD} onto nowhere cannot be opened.*one of the branches is not there"):
        open_pull(place, key, base="nowhere")


def test_a_deleted_issue_is_unreadable_and_stops_its_task(place):
    key = place.issue()
    place.remove_issue(key)
    with pytest.raises(IssueUnreadable, match="deleted"):
        place.forge.read_issue(key)
    with pytest.raises(IssueUnreadable):
        place.forge.comments_since(key, None)
    assert place.forge.requested(key) == "stop"


def test_a_repository_that_is_gone_or_private_is_unreadable(place):
    key = place.issue()
    place.repo.gone = True
    with pytest.raises(IssueUnreadable, match=r"there is no repository acme/web, or the token may not see it"):
        place.again().read_issue(key)
    getter = place.again().task_getter()
    assert getter.get_task_list() == []
    assert "there is no repository acme/web" in str(getter.problems[0])


def test_a_locked_issue_is_written_on_by_those_who_may_write(place):
    key = place.issue()
    place.item(key)["is_locked"] = True
    assert place.forge.post_comment(key, "Queued.")
    place.repo.people["makimono"] = "read"
    with pytest.raises(ForgeAccessRefused, match="locked"):
        place.forge.post_comment(key, "Once more.")


def test_a_comment_without_a_marker_is_not_written_a_second_time(place):
    key = place.issue()
    place.server.fault("POST", COMMENTS, status=502, after=True)
    with pytest.raises(ForgeError):
        place.forge.post_comment(key, "Queued.")
    assert len(place.comments(key)) == 1


def test_five_thousand_issues_are_listed_to_the_end(place):
    with place.server.state.lock:
        label = place.repo.known_label("coding agent")
        for number in range(1, 1201):
            made = place.repo.issue(f"number {number}", "", place.person("alice"))
            made["labels"].append(label["id"])
    assert len(place.forge.task_getter().get_task_list()) == 1200
    assert len(place.server.asked("GET", "issues/search.*labels")) == 24


def test_a_label_that_a_person_made_since_the_labels_were_read_is_not_made_again(place):
    key = place.issue()
    place.forge.move_label(key, "processing")  # reads the labels
    place.repo.known_label("coding agent done")
    place.again().move_label(key, "done")
    names = [one["name"] for one in place.repo.labels.values()]
    assert len(names) == len(set(names))
    assert place.labels(key) == ["coding agent done"]
