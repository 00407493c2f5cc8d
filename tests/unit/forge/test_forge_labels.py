"""A misspelt label of the configuration is told, by `doctor` and after the first poll of a daemon."""

from __future__ import annotations

import pytest
from forges import forgejo_server, github_place, gitlab_place
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from run_home import Place

from agent.commands.doctor import WARN, examine
from agent.config import load
from agent.forge.base import ForgeReports, Labels
from agent.forge.label_check import label_problems
from agent.intake.poller import Poller
from agent.observe.events import Events

PROJECT = {"github": "acme/web", "gitlab": "acme/tools/web", "forgejo": "acme/web"}


@pytest.fixture(params=["github", "gitlab", "forgejo"])
def make(request, tmp_path):
    """A place with these keys of its section, and issues with these labels."""
    places = []

    def made(*labels, **section):
        place = {"github": GitHubPlace, "gitlab": GitLabPlace, "forgejo": ForgejoPlace}[request.param](
            tmp_path, **section
        )
        places.append(place)
        for label in labels:
            place.issue(labels=(label,))
        return place

    yield made
    for place in places:
        place.close()


def said(place):
    return list(ForgeReports(place.forge).label_problems())


def test_a_label_in_another_spelling_is_told_with_the_right_one(make):
    place = make("coding agent", bot_label="codign agent")
    name = place.forge.source
    (one,) = said(place)
    assert f"{name}.bot_label is `codign agent`, and {PROJECT[name]} has `coding agent` instead: set the key to" in one


def test_capitals_are_another_label_but_on_github(make):
    place = make("Coding Agent")
    assert [("has `Coding Agent` instead" in one) for one in said(place)] == [True] * (place.forge.source != "github")


def test_a_label_that_no_project_has_is_told_and_one_that_is_there_is_not(make):
    place = make("bug")
    (one,) = said(place)
    assert f"a label that {PROJECT[place.forge.source]} has not: make it there" in one
    place.issue()
    assert said(place) == []


def test_a_label_that_shows_a_state_is_told_only_where_one_is_like_it(make):
    place = make("coding agent", "coding agent faild")
    (one,) = said(place)
    assert f"{place.forge.source}.failed_label is `coding agent failed`" in one
    assert "`coding agent faild` instead" in one


def test_without_a_list_the_projects_of_the_owner_are_read(make):
    place = make("coding agents", projects=(), owner="acme")
    (one,) = said(place)
    assert f"{PROJECT[place.forge.source]} has `coding agents` instead" in one


def test_of_many_projects_those_are_named_that_lack_it():
    labels = Labels("go", "busy", "done", "paused", "stopped", "failed")
    there = {f"a/{number}": ["bug"] for number in range(5)}
    (one,) = label_problems("github", labels, there, str.casefold)
    assert "a label that a/0, a/1, a/2 and 2 more have not" in one
    assert list(label_problems("github", labels, there | {"a/9": ["Go"]}, str.casefold)) == []
    assert list(label_problems("github", labels, {}, str.casefold)) == []
    near = Labels("agent go", "agent going", "", "", "", "")
    assert list(label_problems("gitlab", near, {"a/b": ["agent go"]}, str)) == []  # one of ours is no misspelling
    assert len(list(label_problems("gitlab", near, {"a/b": ["agent go", "Agent Going"]}, str))) == 1


def test_doctor_tells_it(make, tmp_path):
    place = make("coding agents")
    source = place.forge.source
    token = {"github": github_place.TOKEN, "gitlab": gitlab_place.TOKEN, "forgejo": forgejo_server.TOKEN}[source]
    config = tmp_path / "config.yaml"
    section = f"{source}: {{base_url: '{place.address}', token: {token}, projects: [{PROJECT[source]}]}}\n"
    config.write_text(f"task_sources: [{source}]\n{section}llm: {{provider: replay, replay: {{messages: none}}}}\n")
    checks = examine(lambda complete: load(config, environ={}, complete=complete))
    (one,) = [check for check in checks if check.name == source and check.state == WARN]
    assert "has `coding agents` instead" in one.found


def test_a_poller_tells_it_after_its_first_poll_once(make, tmp_path):
    place = make("coding agents")
    (tmp_path / "run").mkdir()
    here = Place(tmp_path / "run")
    told = []
    events = Events([lambda name, fields: told.append(fields["why"]) if name == "label_unknown" else None])
    poller = Poller(here.settings, here.ledger, [place.forge], events)
    place.server.fault("GET", "", status=502, times=-1)
    poller.poll(everything=True)
    assert told == []
    place.server.faults.clear()
    poller.poll(everything=True)
    poller.poll(everything=True)
    assert ["`coding agents` instead" in one for one in told] == [True]
    here.close()
