"""An answer of 200 that is not what it must be: the forge is away, whatever the adapter trips over in it."""

from __future__ import annotations

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.errors import ForgeUnreachable


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def place(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.close()


@pytest.mark.parametrize("body", ["null", "[]", "{}", "5", '"words"', ""])
def test_an_issue_that_reads_as_something_else_is_no_bug_of_ours(place, body):
    key = place.issue()
    place.forge.read(key)
    shown = body if isinstance(place, GitHubPlace) else body.encode()
    place.server.fault("GET", r"/issues/1$", status=200, body=shown, times=9)
    with pytest.raises(ForgeUnreachable):
        place.forge.read(key)
    place.server.faults.clear()
    assert place.forge.read(key).title == "Fix it"


@pytest.mark.parametrize("body", ["null", "[5]", "[{}]"])
def test_a_list_of_odd_things_is_not_polled_into_a_bug(place, body):
    shown = body if isinstance(place, GitHubPlace) else body.encode()
    place.server.fault("GET", r"/(issues|merge_requests)$", status=200, body=shown, times=9)
    with pytest.raises(ForgeUnreachable):
        place.forge.getter().get_task_list()
