"""A misspelt label of the configuration is told, by `doctor` and after the first poll of a daemon."""

from __future__ import annotations

import pytest
from forges import forgejo_place, forgejo_server, github_place, gitlab_place
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace
from forges.gitlab_state import DEVELOPER
from run_home import Place

from agent.commands.doctor import examine
from agent.commands.doctor_check import OK, WARN
from agent.config import load
from agent.config.forge_sections import Start
from agent.forge.base import ForgeReports, Labels
from agent.forge.misspelt_labels import label_problems
from agent.intake.poller import Poller
from agent.observe.events import Events
from agent.values import TaskKey

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


def test_a_label_that_asks_for_nothing_is_not_taken_and_hides_no_end(make):
    """`start.label: false`: the bot label on an issue is one label more, whatever else asks for work."""
    place = make()
    place.person("bob")
    fresh, ended = place.issue(labels=("coding agent",)), place.issue(labels=("coding agent", "coding agent done"))
    forge = place.again(start={"label": False})
    assert not forge.mark_taken(fresh)
    assert "coding agent" in place.labels(fresh)
    for key in (fresh, ended):
        place.assign(key, "bob", "makimono")
    found = {task.get_task_key(): task.started_by for task in forge.task_getter().get_task_list()}
    assert found[fresh] is None
    assert str(found[ended]).startswith("assigned-")
    assert forge.mark_taken(fresh)
    forge.close()


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


def with_own_labels(place, **labels):
    """The adapters of a section with two projects, of which the one with the issues has labels of its own; a key of the
    other project."""
    source, root = place.forge.source, place.root
    name = PROJECT[source]
    owner, _, _ = name.rpartition("/")
    projects = (f"{owner}/app", {"name": name, "labels": labels})
    if source == "gitlab":
        place.server.project(f"{owner}/app", members={"makimono": DEVELOPER})
        settings = gitlab_place.gitlab_settings(root, place.address, projects=projects)
    else:
        place.server.state.repo(owner, "app").people["makimono"] = "write"
        if source == "github":
            settings = github_place.github_settings(root, place.address, projects=projects)
        else:
            settings = forgejo_place.forgejo_settings(root, base_url=place.address, projects=projects)
    return type(place.forge).from_settings(settings), TaskKey(source, owner, "app", "issue", "1", place.forge.instance)


def test_a_project_is_asked_for_by_its_own_labels_and_shows_them(make):
    place = make("coding agent", "ai: go")
    (rest, own), other = with_own_labels(place, bot_label="ai: go", processing_label="ai: at work")
    tasks = own.task_getter().get_task_list()
    assert [task.get_task_key().task_id for task in tasks] == ["2"], "the other label asks for nothing there"
    assert rest.task_getter().get_task_list() == []
    (task,) = tasks
    key = task.get_task_key()
    assert [(forge.covers(key), forge.covers(other)) for forge in (rest, own)] == [(False, True), (True, False)]
    assert task.prepare()
    assert place.labels(key) == ["ai: at work"]
    assert own.requested(key) is None
    own.move_label(key, "done")
    assert place.labels(key) == ["coding agent done"], "what the entry does not set is that of the section"
    for forge in (rest, own):
        forge.close()


def test_a_misspelt_label_of_a_project_is_told_with_its_entry(make):
    place = make("ai: go")
    source = place.forge.source
    (rest, own), _ = with_own_labels(place, bot_label="ai: goo")
    (one,) = ForgeReports(own).label_problems()
    assert one.startswith(f"{source}.projects, {PROJECT[source]}: labels.bot_label is `ai: goo`, and")
    assert "has `ai: go` instead" in one
    (one,) = ForgeReports(rest).label_problems()
    assert one.startswith(f"{source}.bot_label is `coding agent`, a label that")
    for forge in (rest, own):
        forge.close()


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
    checks = list(examine(lambda complete: load(config, environ={}, complete=complete)))
    (one,) = [check for check in checks if check.name == source and check.state == WARN]
    assert "has `coding agents` instead" in one.found
    kind = "is the agent's own" if source == "gitlab" else "counts as a person's"  # GitLab marks the account as a bot
    (account,) = [check for check in checks if check.name == source and "the token's account makimono" in check.found]
    assert (account.state, kind in account.found) == (OK, True)


def test_doctor_says_once_what_concerns_the_account_of_projects_with_other_labels(make, tmp_path):
    place = make("coding agent", "ai: go")
    source = place.forge.source
    (rest, own), key = with_own_labels(place, bot_label="ai: go")
    rest.close()
    own.close()
    token = {"github": github_place.TOKEN, "gitlab": gitlab_place.TOKEN, "forgejo": forgejo_server.TOKEN}[source]
    config = tmp_path / "config.yaml"
    projects = f"[{key.owner}/{key.repo}, {{name: {PROJECT[source]}, labels: {{bot_label: 'ai: go'}}}}]"
    section = f"{source}: {{base_url: '{place.address}', token: {token}, projects: {projects}}}\n"
    config.write_text(f"task_sources: [{source}]\n{section}llm: {{provider: replay, replay: {{messages: none}}}}\n")
    checks = examine(lambda complete: load(config, environ={}, complete=complete))
    found = [check.found for check in checks if check.name == source]
    read = [one for one in found if "can be read" in one]
    others = [one for one in found if one not in read]
    assert len(read) == 2
    assert len(others) == len(set(others)) > 0


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


def test_a_label_that_asks_for_nothing_is_not_looked_for():
    labels = Labels("coding agent", "p", "d", "w", "s", "f")
    there = {"acme/web": ["bug"]}
    (said,) = label_problems("github", labels, there, str)
    assert "only an assignment" in said
    (said,) = label_problems("github", labels, there, str, Start(assignee=False))
    assert "no label starts a task" in said
    assert list(label_problems("github", labels, there, str, Start(label=False))) == []
