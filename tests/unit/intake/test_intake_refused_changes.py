"""A token that may read issues and not write to them: told once, by name, and tried again later each time."""

import pytest
from forges.faults import CHANGE
from forges.github_place import GitHubPlace

from agent import clock
from agent.commands import doctor_sources
from agent.forge.refused_changes import FIRST_SECONDS, LONGEST_SECONDS, RefusedChanges

NO = "Resource not accessible by personal access token"


@pytest.fixture
def refused(watching):
    """A place with two issues that wait, where every change is a 403."""
    watching.keys = [watching.place.issue(), watching.place.issue()]
    watching.place.server.fault(CHANGE, "", status=403, times=-1)
    return watching


def tries(refused):
    """The changes that the host was asked for, as groups of one try."""
    journal = refused.place.server.journal
    return sum("GET" not in str(one) for one in journal)


def test_one_try_and_one_event_by_name_and_no_task(refused):
    assert refused.poll() == []
    (said,) = refused.home.named("issue_unwritable")
    assert (said["task"], said["source"]) == (str(refused.keys[0]), refused.place.forge.source)
    assert "403" in said["why"]
    before = tries(refused)
    for _ in range(4):
        refused.time.move(60)
        refused.poll()
    assert tries(refused) == before
    assert refused.ledger.list() == []
    assert [one for one in refused.home.named("effect_failed") if one["effect"] == "label"] == []
    assert len(refused.home.named("issue_unwritable")) == 1
    assert refused.home.named("poll_failed") == []


def test_it_is_tried_again_later_each_time_and_works_once_it_may(refused):
    refused.poll()
    before = tries(refused)
    refused.time.move(FIRST_SECONDS)
    refused.poll()
    again = tries(refused)
    assert again > before
    refused.time.move(FIRST_SECONDS)
    refused.poll()
    assert tries(refused) == again
    assert len(refused.home.named("issue_unwritable")) == 1
    refused.place.server.faults.clear()
    refused.time.move(FIRST_SECONDS)
    assert len(refused.poll()) == 2
    assert refused.place.labels(refused.keys[0]) == ["coding agent processing"]
    assert RefusedChanges(refused.home.settings.base_dir / "limits", refused.place.forge.instance).all() == {}


@pytest.mark.parametrize("forge_place", ["github"], indirect=True)
def test_a_mention_is_not_lost(watching):
    key = watching.place.issue(labels=())
    watching.ended(key)
    watching.time.move(5)
    watching.place.server.fault(CHANGE, "", status=403, times=-1)
    watching.place.comment(key, "@makimono once more")
    assert watching.poll() == []
    watching.place.server.faults.clear()
    watching.time.move(FIRST_SECONDS)
    assert len(watching.poll()) == 1


def test_doctor_names_the_repository_the_issue_and_the_reason(tmp_path):
    place = GitHubPlace(tmp_path)
    refusals = RefusedChanges(place.settings.base_dir / "limits", place.forge.instance)
    refusals.note("acme/web", "github acme/web issue 7", NO)
    refusals.note("other/one", "github other/one issue 1", NO)
    said = [one.found for one in doctor_sources.forge(place.settings, "github") if NO in one.found]
    assert len(said) == 1
    assert "acme/web issue 7" in said[0]
    refusals.clear("acme/web")
    assert [one.found for one in doctor_sources.forge(place.settings, "github") if NO in one.found] == []
    place.close()


def test_the_pause_grows_to_an_hour_and_a_broken_file_counts_as_empty(tmp_path, time):
    refusals = RefusedChanges(tmp_path / "limits", "example.org")
    for _ in range(9):
        refusals.note("a/b", "issue 1", NO)
    assert refusals.all()["a/b"].again_at - clock.now().timestamp() == LONGEST_SECONDS
    assert RefusedChanges(tmp_path / "limits", "example.org").is_resting("a/b")
    refusals.path.write_text("[1]")
    assert refusals.all() == {}
