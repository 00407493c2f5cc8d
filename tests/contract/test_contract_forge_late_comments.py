"""No adapter loses a comment of a person that is written, or shown, at an unlucky moment between two looks of the
program, by the clock of the host."""

from datetime import timedelta

import pytest
from forge_places import PLACES

from agent import clock
from agent.forge.base import ForgeReports


@pytest.fixture(params=["local", "forgejo", "github", "gitlab"])
def place(request, tmp_path):
    place = PLACES[request.param](tmp_path)
    yield place
    place.forge.close()
    place.close()


@pytest.fixture
def frozen():
    """A clock of the place and the program that only a test moves, 0.4 s after the beginning of a second."""
    with clock.use(clock.FakeClock(clock.now().replace(microsecond=400_000))) as fake:
        yield fake


def look(place, key, changes, comments):
    """One look of the program: the next cursors of the list of changes and of the comments."""
    return place.forge.changed_since({key: None}, changes)[1], place.forge.comments_since(key, comments)[1]


def news(place, key, changes, comments):
    """Comments that the next look of another process finds, by the list of changes and then by the comment cursor."""
    if key not in place.again().changed_since({key: None}, changes)[0]:
        return []
    return [one.body for one in place.again().comments_since(key, comments)[0]]


def minute_ago():
    return clock.stamp(clock.now() - timedelta(seconds=60))


@pytest.mark.parametrize("looks", [1, 2, 3, 5])
def test_a_comment_in_the_same_second_as_the_last_change_and_the_looks_is_found(place, frozen, looks):
    key = place.issue()
    place.comment(key, "one")
    cursors = minute_ago(), None
    for _ in range(looks):
        frozen.move(0.1)
        cursors = look(place, key, *cursors)
    place.comment(key, "two")
    frozen.move(30)
    assert news(place, key, *cursors) == ["two"]


@pytest.mark.parametrize("seconds", [3, 20])
def test_a_comment_that_the_host_shows_later_than_a_younger_one_is_found(place, frozen, seconds):
    """The transaction of the older comment ends after that of the younger one."""
    key = place.issue()
    frozen.move(seconds)
    place.comment(key, "younger")
    cursors = minute_ago(), None
    for _ in range(3):
        frozen.move(1.5)
        cursors = look(place, key, *cursors)
    frozen.move(-seconds - 4.5)
    place.comment(key, "older")
    frozen.move(seconds + 4.5)
    assert news(place, key, *cursors) == ["older"]


def test_a_request_for_changes_that_gitlab_shows_later_than_a_younger_comment_is_found(tmp_path, frozen):
    place = PLACES["gitlab"](tmp_path)
    key = place.issue()
    head = f"makimono/{key.task_id}-0badcafe"
    place.branch(head)
    pull = place.forge.open_pull(key, title="Fix", body="Done.", head=head, base="main", draft=False)
    _, cursor = place.forge.comments_since(key, ForgeReports(place.forge).with_pull(None, pull.url))
    frozen.move(20)
    place.comment(key, "younger")
    _, cursor = place.forge.comments_since(key, cursor)
    frozen.move(-20)
    place.request_changes(pull, "")
    frozen.move(20)
    found, cursor = place.forge.comments_since(key, cursor)
    assert [one.requests_changes for one in found] == [True]
    assert place.forge.comments_since(key, cursor)[0] == ()
    place.forge.close()
    place.close()


def test_a_comment_that_was_read_is_not_reported_for_ever(place, frozen):
    key = place.issue()
    place.comment(key, "one")
    cursors = minute_ago(), None
    for _ in range(4):
        frozen.move(1.5)
        cursors = look(place, key, *cursors)
    assert place.again().changed_since({key: None}, cursors[0])[0] == {}
    assert place.again().comments_since(key, cursors[1]) == ((), cursors[1])
