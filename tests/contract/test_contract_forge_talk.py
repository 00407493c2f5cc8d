"""What an adapter shows and says at the comments of people: the same on each host, as far as the host has it."""

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent.errors import ForgeError
from agent.forge.base import ForgeReports

KINDS = {"github": GitHubPlace, "gitlab": GitLabPlace, "forgejo": ForgejoPlace}


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    made = KINDS[request.param](tmp_path)
    yield made
    made.forge.close()
    made.close()


def with_pull(place):
    """(key of an issue, the pull request of its task)."""
    key = place.issue()
    head = f"makimono/{key.task_id}-0badcafe"
    place.branch(head)
    return key, place.forge.open_pull(key, title="Fix", body="Done.", head=head, base="main", draft=False)


def comments_of(place, key, pull):
    cursor = ForgeReports(place.forge).with_pull(None, pull.url)
    return place.forge.comments_since(key, cursor)[0]


def test_a_request_is_acknowledged_by_one_request_and_once(place):
    key, pull = with_pull(place)
    ids = [place.comment(key, "On the issue."), place.said_on(pull, "Why?"), place.line_comment(pull, "Here.")]
    if hasattr(place, "review"):
        ids.append(place.review(pull, "Not yet."))
    comments = {one.id: one for one in comments_of(place, key, pull)}
    assert sorted(comments) == sorted(ids)
    has_none = place.forge.source == "forgejo"  # for the text of a review
    for number in (None, *ids):
        if has_none and number is not None and number.startswith("v"):
            ForgeReports(place.forge).acknowledge(key, comments[number])
            continue
        for _ in range(2):
            before = len(place.server.asked("POST"))
            ForgeReports(place.forge).acknowledge(key, comments.get(number))
            assert len(place.server.asked("POST")) == before + 1
            assert place.seen(key, number) == ["eyes"]


def test_a_reaction_that_is_refused_is_an_error_of_the_forge(place):
    key, pull = with_pull(place)
    place.said_on(pull, "Why?")
    (comment,) = comments_of(place, key, pull)
    place.server.fault("POST", r".*(reactions|award_emoji)", status=403)
    with pytest.raises(ForgeError):
        ForgeReports(place.forge).acknowledge(key, comment)
