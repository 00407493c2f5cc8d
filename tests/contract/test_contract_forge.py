"""The contract of `agent/forge/base.py`, run against every entry of the registry."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from forge_places import PLACES
from leaks import GIVEN, ORDERS, PLACE, SECRET, SET_GOING, leaks
from length import either

from agent import clock
from agent.errors import ForgeError, IssueUnreadable
from agent.forge import FORGES, TaskFactory
from agent.forge.base import LABEL_STATES
from agent.forge.markers import marker, with_markers
from agent.issue.claims import claim, with_claim_markers
from agent.issue.publish_filter import PublishFilter
from agent.security.redact import Redactor
from agent.values import End, Outcome

UUID = "0badcafe-0000-4000-8000-000000000001"
MARK = marker("0badcafe-0000-4000-8000-000000000001", "progress")


INCLUDED = ("github", "gitlab")
"""Places that the ordinary run leaves out: the same servers are tested with Prism in front of them."""


@pytest.fixture(scope="session")
def peers(tmp_path_factory):
    """Programs that places talk to: each is started when it is first needed, once."""
    with ExitStack() as stack:
        started = {}

        def peer(place):
            if place not in started and getattr(place, "peer", None) is not None:
                started[place] = stack.enter_context(place.peer(tmp_path_factory.mktemp("peer")))
            return [started[place]] if place in started else []

        yield peer


@pytest.fixture(params=sorted(PLACES.keys() - either(INCLUDED, ())))
def place(request, tmp_path, peers):
    kind = PLACES[request.param]
    place = kind(tmp_path, *peers(kind))
    yield place
    place.forge.close()
    place.close()


def needs(place, what):
    """Skip where a place lacks it."""
    lacks = getattr(place, "lacks", {})
    if what in lacks:
        pytest.skip(lacks[what])


WAYS = {
    "secrets": GIVEN,
    "pictures and links": SET_GOING,
    "orders": ORDERS,
    "paths": {"x": f"{PLACE}/running/x is gone"},
}


@pytest.mark.parametrize("ways", WAYS)
def test_what_a_forge_is_given_to_publish_leaks_nothing(place, ways):
    """A comment, and its edit: what stands there afterwards, as people and hosts read it."""
    words = "\n\n".join(WAYS[ways].values())
    door = PublishFilter(Redactor([SECRET]), instance=place.forge.instance, places=[(PLACE, "base_dir")])
    key = place.issue()
    values = {"report": None, "uuid": UUID, "facts": {}}
    final = door.render("final", outcome=Outcome(End.ASKED, summary=words), **values)
    comment = place.forge.post_comment(key, with_markers(final, MARK))
    plan = [{"text": one, "status": "done"} for one in WAYS[ways].values()]
    progress = door.render("progress", state="working", uuid=UUID, plan=plan, last=words, facts={}, note=words)
    read = [place.comments(key)[-1][1]]
    place.forge.edit_comment(key, comment, with_markers(progress, MARK))
    read.append(place.comments(key)[-1][1])
    assert leaks(door.title(words), is_markdown=False) == []
    assert [leak for text in read for leak in leaks(text)] == []


def test_every_forge_has_a_place_here():
    missing = [name for name in FORGES.names() if name not in PLACES]
    assert missing == [], "add a place to forge_places.py"


HOME = "0a0b0c0d"


def test_an_adapter_names_itself_by_source_and_instance(place):
    forge = place.forge
    assert forge.source in FORGES.names()
    assert forge.instance == place.again().instance != ""
    assert forge.max_comment >= 1000
    assert {forge.labels.name(state) for state in LABEL_STATES} == forge.labels.names()


def test_an_adapter_covers_the_keys_of_its_own_projects(place):
    key = place.issue()
    assert place.forge.covers(key)
    assert place.again().covers(key)
    assert not place.forge.covers(replace(key, instance="elsewhere.example"))
    assert not place.forge.covers(replace(key, task_source="another"))


def test_a_login_for_git_never_stands_in_the_address(place):
    key = place.issue()
    login = place.forge.git_login(key)
    assert login is None or (len(login) == 2 and all(login))
    repository = place.forge.repository(key, place.forge.read_issue(key))
    assert login is None or login[1] not in repository.url


def test_an_issue_reads_as_people_wrote_it(place):
    key = place.issue(
        'Títle: with "signs" # 日本語',
        "Body\n\n日本語 text\n",
        labels=("coding agent", "bug"),
        author="bob",
        base="release/1",
    )
    issue = place.forge.read_issue(key)
    assert issue.key == key
    assert issue.title == 'Títle: with "signs" # 日本語'
    assert issue.body.strip() == "Body\n\n日本語 text"
    assert (issue.author, issue.state, issue.base) == ("bob", "open", "release/1")
    assert sorted(issue.labels) == ["bug", "coding agent"]
    assert issue.comments == ()
    assert issue.url
    assert issue.created_at
    assert issue.updated_at


def test_an_issue_without_a_body_and_base_reads_as_empty(place):
    issue = place.forge.read_issue(place.issue(body=""))
    assert issue.body == ""
    assert issue.base is None


def test_a_missing_issue_is_unreadable(place):
    key = place.issue()
    missing = replace(key, task_id="4711")
    with pytest.raises(IssueUnreadable, match="4711"):
        place.forge.read_issue(missing)
    for call in (
        lambda: place.forge.move_label(missing, "done"),
        lambda: place.forge.post_comment(missing, "x"),
    ):
        with pytest.raises(ForgeError):
            call()


@pytest.mark.parametrize("number", ["../1", "", "1/../../x", "one", "1\n", "-1", "٣"])
def test_a_key_that_is_no_number_reaches_no_other_place(place, number):
    key = replace(place.issue(), task_id=number)
    with pytest.raises(ForgeError):
        place.forge.read_issue(key)
    with pytest.raises(ForgeError):
        place.forge.post_comment(key, "x")


# --- which tasks wait ------------------------------------------------------------------------------------------


def test_the_address_of_an_issue_gives_its_task_whether_it_waits_or_not(place):
    key = place.issue("One", labels=(), author="alice")
    address = place.forge.read_issue(key).url
    needs(place, "addresses")
    address = re.sub(r"//[^/]+", f"//{place.forge.instance.partition('/')[0]}", address)  # a proxy may stand between
    for more in ("", "/", "#a-comment", "?tab=x"):
        task = place.forge.task_at(address + more)
        assert (task.get_task_key(), task.title, task.get_user(), task.labels) == (key, "One", "alice", ())
    assert place.labels(key) == []
    assert place.forge.task_at("https://elsewhere.example/acme/web/issues/1") is None
    assert place.forge.task_at(address.replace(f"/{key.repo}/", "/other-than-that/")) is None
    with pytest.raises(IssueUnreadable):
        place.forge.task_at(f"{address.rpartition('/')[0]}/4711")
    place.close_issue(key)
    with pytest.raises(IssueUnreadable, match="open it again"):
        place.forge.task_at(address)


def test_open_issues_with_the_bot_label_are_listed_by_number(place):
    keys = [place.issue(f"number {number}", author=f"user{number}") for number in range(1, 13)]
    place.issue("no label", labels=("bug",))
    place.issue("closed", state="closed")
    place.issue("taken", labels=("coding agent processing",))
    getter = place.forge.task_getter()
    tasks = getter.get_task_list()
    assert [task.get_task_key() for task in tasks] == keys
    assert [task.get_user() for task in tasks] == [f"user{number}" for number in range(1, 13)]
    assert tasks[0].title == "number 1"
    assert tasks[0].get_uuid() is None
    assert getter.problems == ()


def test_a_task_has_the_labels_of_its_issue_for_its_priority(place):
    place.issue(labels=("coding agent", "priority: high"))
    (task,) = place.forge.task_getter().get_task_list()
    assert set(task.labels) == {"coding agent", "priority: high"}
    task.prepare()
    (left,) = place.forge.task_getter().get_left_list()
    assert "priority: high" in left.labels


def test_prepare_takes_the_issue_and_may_be_called_again(place):
    key = place.issue(labels=("bug", "coding agent"))
    (task,) = place.forge.task_getter().get_task_list()
    task.prepare()
    task.prepare()
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert place.forge.task_getter().get_task_list() == []


def test_a_task_is_taken_once(place):
    key = place.issue(labels=("bug", "coding agent"))
    (task,) = place.forge.task_getter().get_task_list()
    (same,) = place.again().task_getter().get_task_list()
    assert task.prepare() is True
    assert same.prepare() is False
    assert place.labels(key) == ["bug", "coding agent processing"]
    place.put_labels(key, "bug")
    assert place.again().mark_taken(key) is False
    assert place.labels(key) == ["bug"]


def test_the_factory_makes_the_task_again_from_what_the_queue_carried(place):
    key = place.issue()
    task = TaskFactory.from_dict({**key.to_dict(), "uuid": "u-1", "user": "alice"}, [place.forge])
    assert (task.uuid, task.user, task.get_task_key()) == ("u-1", "alice", key)
    task.prepare()
    assert place.labels(key) == ["coding agent processing"]
    seeds = {name: value for name, value in key.to_dict().items() if name != "instance"}
    assert TaskFactory.from_dict(seeds, [place.forge]).forge is place.forge
    assert TaskFactory.from_dict(seeds, [place.forge, place.again()]).forge is None
    with pytest.raises(ForgeError, match="no forge"):
        TaskFactory.from_dict({**key.to_dict(), "instance": "elsewhere"}, [place.forge]).prepare()


# --- labels ----------------------------------------------------------------------------------------------------


BEFORE = ((), ("coding agent",), ("coding agent processing", "coding agent failed"), "all")
MOVES = [(before, to) for before in BEFORE for to in LABEL_STATES]


@pytest.mark.parametrize(
    ("before", "to"), either([(BEFORE[n % len(BEFORE)], to) for n, to in enumerate(LABEL_STATES)], MOVES)
)
def test_exactly_one_of_our_labels_is_left_and_others_are_untouched(place, before, to):
    ours = sorted(place.forge.labels.names()) if before == "all" else list(before)
    key = place.issue(labels=["bug", *ours, "help: wanted"])
    for _ in range(2):
        place.forge.move_label(key, to)
        assert place.labels(key) == sorted(["bug", "help: wanted", place.forge.labels.name(to)])


def test_labels_moved_by_several_processes_at_once_end_as_one(place):
    key = place.issue(labels=["bug", "coding agent"])
    states = ["processing", "done", "failed", "stopped", "paused", "queued"]
    threads = [threading.Thread(target=place.again().move_label, args=(key, state)) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    labels = place.labels(key)
    assert "bug" in labels
    assert len(labels) == 2


def test_people_stop_a_task_by_closing_or_by_labels(place):
    key = place.issue()
    place.forge.move_label(key, "processing")
    assert place.forge.requested(key) is None
    place.put_labels(key, "bug", "coding agent")
    assert place.forge.requested(key) is None
    place.put_labels(key, "bug")
    assert place.forge.requested(key) == "stop"
    place.put_labels(key, "coding agent processing", "coding agent stopped")
    assert place.forge.requested(key) == "stop"
    place.put_labels(key, "coding agent processing")
    assert place.forge.requested(key) is None
    place.close_issue(key)
    assert place.forge.requested(key) == "stop"


def test_a_task_whose_issue_was_removed_is_stopped(place):
    needs(place, "removal")
    key = place.issue()
    place.forge.move_label(key, "processing")
    place.remove_issue(key)
    assert place.forge.requested(key) == "stop"


# --- comments --------------------------------------------------------------------------------------------------


def test_comments_of_people_are_read_and_our_own_are_not(place):
    key = place.issue()
    place.comment(key, "first", author="alice")
    own = place.forge.post_comment(key, "ours")
    place.comment(key, "second 日本語\nline", author="bob")
    issue = place.forge.read_issue(key)
    assert [(comment.author, comment.body) for comment in issue.comments] == [
        ("alice", "first"),
        ("bob", "second 日本語\nline"),
    ]
    assert own not in [comment.id for comment in issue.comments]
    assert not any(comment.is_bot for comment in issue.comments)


def test_a_cursor_gives_each_new_comment_once(place):
    key = place.issue()
    place.comment(key, "one")
    issue = place.forge.read_issue(key)
    news, cursor = place.forge.comments_since(key, issue.cursor)
    assert news == ()
    place.comment(key, "two")
    place.forge.post_comment(key, "ours")
    place.comment(key, "three")
    news, cursor = place.again().comments_since(key, cursor)
    assert [comment.body for comment in news] == ["two", "three"]
    assert place.forge.comments_since(key, cursor) == ((), cursor)


def test_no_cursor_means_from_the_beginning_and_so_does_one_that_cannot_be_read(place):
    key = place.issue()
    place.comment(key, "one")
    for cursor in (None, "", "rubbish", "1:zz,,"):
        news, following = place.forge.comments_since(key, cursor)
        assert [comment.body for comment in news] == ["one"]
        assert place.forge.comments_since(key, following)[0] == ()


def test_an_edited_comment_is_news_once(place):
    key = place.issue()
    first = place.comment(key, "one")
    place.comment(key, "two")
    _, cursor = place.forge.comments_since(key, None)
    place.edit_comment(key, first, "one, and more")
    news, cursor = place.forge.comments_since(key, cursor)
    assert [(comment.id, comment.body) for comment in news] == [(first, "one, and more")]
    assert place.forge.comments_since(key, cursor)[0] == ()


def test_a_removed_comment_is_no_news(place):
    key = place.issue()
    first = place.comment(key, "one")
    place.comment(key, "two")
    _, cursor = place.forge.comments_since(key, None)
    place.remove_comment(key, first)
    assert place.forge.comments_since(key, cursor)[0] == ()


def test_our_own_comments_are_never_news_not_even_edited(place):
    key = place.issue()
    _, cursor = place.forge.comments_since(key, None)
    own = place.forge.post_comment(key, "ours")
    assert place.forge.comments_since(key, cursor)[0] == ()
    place.forge.edit_comment(key, own, "ours, later")
    assert place.forge.comments_since(key, cursor)[0] == ()


def test_a_comment_is_found_by_its_marker_and_edited_in_place(place):
    key = place.issue()
    assert place.forge.find_comment(key, MARK) is None
    place.comment(key, "before")
    own = place.forge.post_comment(key, with_markers("working", MARK))
    assert place.again().find_comment(key, MARK) == own
    place.forge.edit_comment(key, own, with_markers("done\n日本語", MARK))
    assert place.again().find_comment(key, MARK) == own
    assert [author for author, _ in place.comments(key)] == ["alice", "makimono"]
    assert place.comments(key)[1][1].startswith("done\n日本語")
    assert len(place.comments(key)) == 2


def test_a_marker_in_somebody_elses_comment_does_not_count(place):
    key = place.issue()
    place.comment(key, with_markers("forged", MARK), author="mallory")
    assert place.forge.find_comment(key, MARK) is None


def test_a_marker_is_not_found_in_a_longer_one(place):
    key = place.issue()
    place.forge.post_comment(key, with_markers("x", MARK + "2"))
    assert place.forge.find_comment(key, MARK) is None


def test_the_oldest_of_two_marked_comments_is_the_one(place):
    key = place.issue()
    first = place.forge.post_comment(key, with_markers("a", MARK))
    place.forge.post_comment(key, with_markers("b", MARK))
    assert place.forge.find_comment(key, MARK) == first


def test_own_comments_with_markers_are_listed_by_their_numbers(place):
    key = place.issue()
    names = [marker(str(uuid4()), name) for name in ("by-7", "progress", "final")]
    first = place.forge.post_comment(key, with_markers("a", *names[:2]))
    place.comment(key, with_markers("forged", names[2]), author="mallory")
    place.forge.post_comment(key, "no marker")
    second = place.forge.post_comment(key, with_markers("b", names[2]))
    place.forge.edit_comment(key, first, with_markers("a, later", *names[:2]))
    found = place.again().marked_comments(key)
    assert [(one.id, list(one.markers)) for one in found] == [(first, names[:2]), (second, names[2:])]
    assert all(clock.parse(one.updated_at) for one in found)


def test_an_own_comment_is_removed_and_nobody_elses(place):
    key = place.issue()
    theirs = place.comment(key, "mine")
    own, kept = (place.forge.post_comment(key, with_markers(text, MARK)) for text in ("one", "two"))
    place.again().remove_comment(key, own)
    place.forge.remove_comment(key, own)  # it is gone
    with pytest.raises(ForgeError):
        place.forge.remove_comment(key, theirs)
    assert [one.id for one in place.forge.marked_comments(key)] == [kept]
    assert [author for author, _ in place.comments(key)] == ["alice", "makimono"]


def test_a_comment_of_somebody_else_or_a_removed_one_is_not_edited(place):
    key = place.issue()
    theirs = place.comment(key, "mine")
    own = place.forge.post_comment(key, "ours")
    with pytest.raises(ForgeError):
        place.forge.edit_comment(key, theirs, "overwritten")
    place.remove_comment(key, own)
    with pytest.raises(ForgeError):
        place.forge.edit_comment(key, own, "again")
    assert place.comments(key) == [("alice", "mine")]


def test_a_comment_over_the_limit_is_refused_before_anything_is_written(place):
    key = place.issue()
    with pytest.raises(ForgeError, match=str(place.forge.max_comment)):
        place.forge.post_comment(key, "x" * (place.forge.max_comment + 1))
    assert place.comments(key) == []
    place.forge.post_comment(key, "x" * place.forge.max_comment)
    assert len(place.comments(key)) == 1


# --- what changed, and who goes on ------------------------------------------------------------------------------


def calm(place, watched, cursor):
    """Look until nothing is told any more: what was written just now may be told more than once."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found, cursor = place.forge.changed_since(watched, cursor)
        if not found:
            return cursor
        time.sleep(0.1)
    raise AssertionError("it is told for ever")


@pytest.mark.parametrize(
    "change",
    [
        lambda place, key: place.comment(key, "Hello."),
        lambda place, key: place.put_labels(key, "bug"),
        lambda place, key: place.close_issue(key),
    ],
    ids=["comment", "label", "state"],
)
def test_any_change_on_a_watched_issue_stirs_it_and_no_other(place, change):
    needs(place, "since")
    key, other, third = place.issue(labels=()), place.issue(), place.issue()
    watched = {key: None, other: "https://example.org/nothing"}
    began = clock.stamp(clock.now() - timedelta(seconds=60))
    found, cursor = place.forge.changed_since(watched, began)
    assert set(found) == {key, other}
    assert all(clock.parse(when) > clock.parse(began) for when in found.values())
    cursor = calm(place, watched, cursor)
    place.comment(third, "Not watched.")
    cursor = calm(place, watched, cursor)
    time.sleep(1.1)  # GitHub's times are whole seconds
    change(place, key)
    found, cursor = place.again().changed_since(watched, cursor)
    assert set(found) == {key}
    calm(place, watched, cursor)
    assert place.forge.changed_since({}, cursor)[0] == {}


def test_a_comment_after_the_end_lets_one_daemon_go_on(place):
    key = place.issue(labels=("bug", "coding agent done"))
    assert place.forge.mark_taken(key) is False
    assert place.forge.mark_taken(key, again=True) is True
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert place.again().mark_taken(key, again=True) is False
    place.forge.move_label(key, "paused")
    assert place.forge.mark_taken(key, again=True) is False
    place.put_labels(key, "bug", "coding agent")
    assert place.forge.mark_taken(key, again=True) is True
    place.put_labels(key, "bug")
    assert place.forge.mark_taken(key, again=True) is True  # a person tidied up
    assert place.labels(key) == ["bug", "coding agent processing"]


def test_nobody_goes_on_with_a_closed_issue(place):
    key = place.issue(labels=("coding agent done",), state="closed")
    assert place.forge.mark_taken(key, again=True) is False
    assert place.labels(key) == ["coding agent done"]


def test_of_daemons_that_see_an_issue_at_once_one_has_it(place, tmp_path):
    """Each has a ledger and a base_dir of its own: the forge is all that they share."""
    for _ in range(2):
        key = place.issue(labels=("bug", "coding agent"))
        daemons = []
        for uuid in (str(uuid4()) for _ in range(3)):
            place.root = tmp_path / uuid
            daemons.append((uuid, place.again()))
        barrier, won = threading.Barrier(len(daemons)), []

        def daemon(one, key=key, barrier=barrier, won=won):
            uuid, forge = one
            barrier.wait()
            if claim(
                forge, key, uuid, lambda: "Queued.", timedelta(hours=1), home=HOME, take=lambda: forge.mark_taken(key)
            ):
                won.append(uuid)
            forge.close()

        in_threads(daemon, daemons)
        assert len(won) == 1
        assert place.labels(key) == ["bug", "coding agent processing"]
        held = (
            [] if place.forge.propagation_delay is None else [marker(won[0], f"of-{HOME}"), marker(won[0], "progress")]
        )
        assert [mark for one in place.forge.marked_comments(key) for mark in one.markers] == held


def test_a_comment_starts_one_task_also_when_that_has_ended_before_the_other_reads_it(place):
    key = place.issue(labels=("coding agent done",))
    first, second = str(uuid4()), str(uuid4())

    def go_on(forge, uuid, asking):
        quiet = timedelta(hours=1)
        take = partial(forge.mark_taken, key, again=True)
        return claim(forge, key, uuid, lambda: "Queued.", quiet, home=HOME, started_by=asking, take=take)

    assert go_on(place.forge, first, "r17")
    if place.forge.propagation_delay is None:  # there the worker posts it
        place.forge.post_comment(key, with_claim_markers("Started.", first, "r17", HOME))
    place.forge.post_comment(key, with_markers("The end.", marker(first, "final")))
    place.forge.move_label(key, "done")
    assert not go_on(place.again(), second, "r17")
    assert place.labels(key) == ["coding agent done"]
    assert go_on(place.again(), second, "18")
    assert place.labels(key) == ["coding agent processing"]


def in_threads(call, arguments):
    threads = [threading.Thread(target=call, args=(one,)) for one in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_issues_that_somebody_has_are_listed_apart_from_those_that_wait(place):
    keys = {label: place.issue(label, labels=(label,)) for label in ("coding agent", "coding agent done")}
    left = [place.issue(label, labels=(f"coding agent {label}", "bug")) for label in ("processing", "paused")]
    getter = place.forge.task_getter()
    found = getter.get_left_list()
    assert [task.get_task_key() for task in found] == left
    assert [task.title for task in found] == ["processing", "paused"]
    assert all(task.get_user() for task in found)
    assert [task.get_task_key() for task in getter.get_task_list()] == [keys["coding agent"]], "as before"


def test_the_account_has_a_name_to_be_called_by(place):
    assert "makimono" in place.forge.own_names()
    assert place.forge.poll_pause == 0


def test_an_edit_is_told_from_a_new_comment(place):
    key = place.issue()
    first = place.comment(key, "one")
    _, cursor = place.forge.comments_since(key, None)
    place.edit_comment(key, first, "one, and more")
    place.comment(key, "two")
    news, _ = place.forge.comments_since(key, cursor)
    assert {(comment.body, comment.is_edit) for comment in news} == {("one, and more", True), ("two", False)}
    assert {comment.place for comment in news} == {""}


# --- pull requests ---------------------------------------------------------------------------------------------


def open_pull(place, key, head="makimono/1-0badcafe", title="Fix", body="What was done.", draft=True):
    place.branch(head)
    return place.forge.open_pull(key, title=title, body=body, head=head, base="main", draft=draft)


def test_a_pull_request_is_opened_and_found_by_its_branch(place):
    key = place.issue()
    assert place.forge.find_pull(key, "makimono/1-0badcafe") is None
    pull = open_pull(place, key, title='Fix: the "thing" # 日本語', body="Line\n\n---\nmore")
    assert (pull.title, pull.state, pull.draft, pull.head, pull.base) == (
        'Fix: the "thing" # 日本語',
        "open",
        True,
        "makimono/1-0badcafe",
        "main",
    )
    assert pull.url
    assert place.again().find_pull(key, "makimono/1-0badcafe") == pull
    assert place.forge.find_pull(key, "makimono/1-0badcaf") is None
    assert "What" not in place.pull_body(pull)
    assert place.pull_body(pull).startswith("Line")


def test_opening_twice_makes_one(place):
    key = place.issue()
    pull = open_pull(place, key)
    assert open_pull(place, key, title="Another title") == pull
    assert place.pulls() == 1
    other = open_pull(place, key, head="makimono/2-0badcafe")
    assert other.id != pull.id


def test_a_title_without_a_word_and_one_that_is_too_long_are_made_to_fit(place):
    key = place.issue()
    for number, title in enumerate(["", "WIP: Draft: ", "日" * 300]):
        pull = open_pull(place, key, head=f"makimono/{number}-0badcafe", title=title)
        needs(place, "drafts")
        ready = place.forge.update_pull(key, pull, title=title, draft=False)
        assert (ready.draft, ready.state, bool(ready.title.strip())) == (False, "open", True)


def test_opening_from_many_threads_makes_one(place):
    key = place.issue()
    found = []
    threads = [threading.Thread(target=lambda: found.append(open_pull(place, key))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {pull.id for pull in found} == {found[0].id}
    assert place.pulls() == 1


def test_a_closed_pull_request_is_found_and_a_new_one_goes_before_it(place):
    key = place.issue()
    pull = open_pull(place, key)
    place.close_pull(pull)
    found = place.forge.find_pull(key, pull.head)
    assert (found.id, found.state) == (pull.id, "closed")
    second = open_pull(place, key)
    assert second.id != pull.id
    assert place.forge.find_pull(key, pull.head).id == second.id


def test_of_closed_pull_requests_the_newest_is_found(place):
    key = place.issue()
    for _ in range(2):
        pull = open_pull(place, key)
        place.close_pull(pull)
    assert place.forge.find_pull(key, pull.head).id == pull.id


def test_a_pull_request_changes_only_in_what_is_named(place):
    key = place.issue()
    pull = open_pull(place, key)
    assert place.forge.update_pull(key, pull) == pull
    needs(place, "drafts")
    ready = place.forge.update_pull(key, pull, draft=False)
    assert ready == replace(pull, draft=False)
    assert place.pull_body(pull) == "What was done."
    again = place.forge.update_pull(key, pull, title="New: title", body="New text\n\nmore")
    assert again == replace(pull, draft=False, title="New: title", body="New text\n\nmore")
    assert place.pull_body(pull) == "New text\n\nmore"
    closed = place.forge.update_pull(key, pull, state="closed")
    assert closed.state == "closed"
    assert place.forge.find_pull(key, pull.head) == closed


def test_the_repository_of_an_issue_is_named(place):
    key = place.issue()
    repository = place.forge.repository(key, place.forge.read_issue(key))
    for part in (repository.host, *repository.owner.split("/"), repository.repo):
        assert part not in ("", ".", "..")
        assert "/" not in part
    assert repository.url
