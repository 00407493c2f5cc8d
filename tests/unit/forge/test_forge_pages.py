"""A page of a proxy says nothing about an issue or an account, and one list that does not answer is told each time."""

import pytest
from forges.faults import page
from forges.github_place import GitHubPlace
from forges.gitlab_place import PROJECT, GitLabPlace
from forges.gitlab_state import DEVELOPER

from agent import clock
from agent.errors import AnswerOdd, ForgeAccessRefused, ForgeRefused, ForgeUnreachable, IssueUnreadable
from agent.intake.poller import Poller


@pytest.fixture(params=[GitHubPlace, GitLabPlace])
def place(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.close()


@pytest.fixture
def here(tmp_path, place):
    from run_home import Place

    (tmp_path / "home").mkdir()
    made = Place(tmp_path / "home", "")
    yield made
    made.close()


@pytest.mark.parametrize("status", [200, 401, 403, 404, 410, 502, 503])
def test_a_page_is_an_outage_and_its_status_no_fact(place, status):
    key = place.issue()
    place.forge.read_issue(key)
    page(place.server, status)
    for ask in (place.forge.read_issue, place.forge.requested, place.forge.marked_comments):
        with pytest.raises(
            ForgeUnreachable, match=rf"GET .*: {status} text/html '<!DOCTYPE html><html><head><title>Sign in"
        ):
            ask(key)
    with pytest.raises(ForgeUnreachable) as caught:
        place.forge.post_comment(key, "words")
    assert not isinstance(caught.value, AnswerOdd), "it concerns the whole host"
    place.server.faults.clear()
    assert place.forge.requested(key) is None
    assert place.forge.read_issue(key).title == "Fix it"


@pytest.mark.parametrize(
    ("status", "error"), [(401, ForgeAccessRefused), (403, ForgeAccessRefused), (404, IssueUnreadable)]
)
def test_the_hosts_own_refusal_is_still_one(place, status, error):
    key = place.issue()
    place.forge.read_issue(key)
    body = '{"message": "No"}' if isinstance(place, GitHubPlace) else {"message": "No"}
    place.server.fault("GET", "/issues/1$", status=status, body=body, times=-1)
    with pytest.raises(error):
        place.forge.read_issue(key)


def two_projects(place):
    """(an adapter of two projects with an issue each, the path of the second one's list)."""
    place.issue()
    if isinstance(place, GitHubPlace):
        other = place.server.state.repo("acme", "api")
        other.people["alice"] = "write"
        other.issue("Other", "Text.", "alice", ("coding agent",))
        return place.again(projects=("acme/web", "acme/api")), "/repos/acme/api/issues$", "acme/api"
    other = place.server.project("acme/api", members={"makimono": DEVELOPER, "alice": DEVELOPER})
    place.server.issue(other, "alice", title="Other", labels=("coding agent",))
    return place.again(projects=(PROJECT, "acme/api")), f"/projects/{other['id']}/issues$", "acme/api"


def listed(forge):
    getter = forge.task_getter()
    return sorted(task.get_task_key().repo for task in getter.get_task_list()), getter


@pytest.mark.parametrize("status", [200, 502])
def test_a_list_that_does_not_answer_leaves_the_poll_incomplete_and_is_told_each_time(place, status):
    forge, path, _ = two_projects(place)
    assert listed(forge)[0] == ["api", "web"]
    for _ in range(2):
        page(place.server, status, path=path)
        found, getter = listed(forge)
        assert found == ["web"]
        assert f"{status} text/html" in str(getter.failed)
        assert getter.problems == ()
        place.server.faults.clear()
        found, getter = listed(forge)
        assert (found, getter.failed) == (["api", "web"], None)
    forge.close()


def test_a_project_whose_facts_cannot_be_read_does_not_hold_the_others(place):
    forge, _, name = two_projects(place)
    path = name if isinstance(place, GitHubPlace) else name.replace("/", "%2F")
    place.server.fault("GET", f"{path}$", status=502, times=-1, body=None if isinstance(place, GitHubPlace) else {})
    found, getter = listed(forge)
    assert found == ["web"]
    assert "502" in str(getter.failed)
    forge.close()


def test_a_list_that_is_refused_is_a_problem_of_its_project_alone(place):
    forge, path, _ = two_projects(place)
    body = '{"message": "No"}' if isinstance(place, GitHubPlace) else {"message": "No"}
    place.server.fault("GET", path, status=403, times=-1, body=body)
    found, getter = listed(forge)
    assert (found, getter.failed, len(getter.problems)) == (["web"], None, 1)
    forge.close()


def test_events_of_one_issue_that_are_refused_leave_out_this_issue_and_are_told_once(place):
    key = place.issue(labels=("coding agent done",))
    place.assign(key, "alice", "makimono")
    is_github = isinstance(place, GitHubPlace)
    for path in ("/issues/1/events", "/issues/1/notes"):
        place.server.fault(
            "GET", path, status=403, times=-1, body='{"message": "No"}' if is_github else {"message": "No"}
        )
    for told in (1, 0):
        found, getter = listed(place.forge)
        assert (found, getter.failed, len(getter.problems)) == ([], None, told)
    place.server.faults.clear()
    assert listed(place.forge)[0] == ["web"]


def test_lists_that_all_fail_are_a_poll_that_failed(place):
    forge, _, _ = two_projects(place)
    page(place.server)
    with pytest.raises(ForgeUnreachable):
        listed(forge)
    forge.close()


def test_an_incomplete_poll_is_told_and_what_could_be_read_is_taken(place, here):
    forge, path, _ = two_projects(place)
    poller = Poller(here.settings, here.ledger, [forge], here.events)
    page(place.server, 502, path=path)
    assert len(poller.poll(everything=True)) == 1
    assert len(poller.unasked) == 1
    assert "502 text/html" in here.named("poll_failed")[0]["error"]
    assert here.named("poll_finished") == []
    assert not poller.unasks_all()
    assert [row.key.repo for row in here.ledger.list()] == ["web"]
    place.server.faults.clear()
    assert len(poller.poll(everything=True)) == 1
    assert poller.unasked == []
    assert sorted(row.key.repo for row in here.ledger.list()) == ["api", "web"]
    forge.close()


def test_lost_rows_are_looked_for_again_where_a_list_did_not_answer(place, here):
    forge, path, _ = two_projects(place)
    poller = Poller(here.settings, here.ledger, [forge], here.events)
    poller.poll(everything=True)
    poller.places[0].left.surely, poller.places[0].left.at = True, 0.0
    page(place.server, 502, path=path)
    poller.poll(everything=True)
    assert poller.places[0].left.surely, "the second project was not compared"
    place.server.faults.clear()
    clock.sleep(61)
    poller.poll(everything=True)
    assert not poller.places[0].left.surely
    forge.close()


def test_a_refused_page_of_another_status_stays_what_it_is(place):
    """A proxy that takes no request so large says 413, which no waiting changes."""
    key = place.issue()
    page(place.server, 413)
    with pytest.raises(ForgeRefused):
        place.forge.post_comment(key, "words")


def many_projects(place, count=9):
    """(an adapter of `count` more projects with an issue each, the paths of their lists in the adapter's order)."""
    place.issue()
    names, paths = [], []
    for number in range(count):
        name = f"acme/p{number}"
        names.append(name)
        if isinstance(place, GitHubPlace):
            other = place.server.state.repo("acme", f"p{number}")
            other.people["alice"] = "write"
            other.issue("Other", "Text.", "alice", ("coding agent",))
            paths.append(f"/repos/{name}/issues$")
        else:
            other = place.server.project(name, members={"makimono": DEVELOPER, "alice": DEVELOPER})
            place.server.issue(other, "alice", title="Other", labels=("coding agent",))
            paths.append(f"/projects/{other['id']}/issues$")
    first = "acme/web" if isinstance(place, GitHubPlace) else PROJECT
    return place.again(projects=(*names, first)), paths


def test_projects_that_do_not_answer_hold_no_other_project_however_many_they_are(place):
    """Three in a row ended the whole poll, although the host answered everything else."""
    forge, paths = many_projects(place)
    for path in paths[:5]:
        page(place.server, 502, path=path)
    found, getter = listed(forge)
    assert found == ["p5", "p6", "p7", "p8", "web"]
    assert "502" in str(getter.failed)
    place.server.faults.clear()
    assert listed(forge)[0] == ["p0", "p1", "p2", "p5", "p6", "p7", "p8", "web"], "three of them at each poll"
    assert listed(forge)[0] == ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "web"]
    forge.close()


def test_a_host_that_does_not_answer_is_not_asked_for_each_project(place):
    forge, _ = many_projects(place)
    listed(forge)
    page(place.server)
    before = len(place.server.journal)
    with pytest.raises(ForgeUnreachable):
        listed(forge)
    asked = {path.partition("?")[0] for _, path, *_ in place.server.journal[before:] if "/issues" in path}
    assert len(asked) <= 3
    forge.close()
