"""Settings of single projects in the list `projects` of a forge's section."""

import json
import re

import pytest

from agent.config import load
from agent.config.configured_commands import check_commands
from agent.config.project_settings import for_project, labels_key, sections_by_labels
from agent.errors import CommandRefused, ConfigError

OF_PROJECT = """\
task_sources: [github]
verify: {command: make check, timeout: 60}
limits: {turns: 50, tokens: 1000}
github:
  token: x
  projects:
    - acme/app
    - name: acme/web
      verify: {command: npm test}
      setup: {command: npm ci, network: [registry.npmjs.org]}
      base: develop
      limits: {turns: 7}
"""


def read(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load(path, environ={})


def test_the_settings_of_a_project_take_the_place_of_the_others(tmp_path):
    settings = read(tmp_path, OF_PROJECT)
    (section,) = settings.github
    assert section.project_names == ("acme/app", "acme/web")
    assert for_project(settings, section, "acme/app") is settings
    web = for_project(settings, section, "Acme/Web")
    assert (web.verify.command, web.verify.timeout) == ("npm test", 600)  # the section as a whole
    assert (web.workspace.setup.command, web.workspace.base) == ("npm ci", "develop")
    assert (web.limits.turns, web.limits.tokens) == (7, 1000)  # single limits
    assert (settings.verify.command, settings.workspace.setup, settings.limits.turns) == ("make check", None, 50)
    assert web.loaded is settings.loaded
    assert {web.origins[key] for key in ("verify.command", "workspace.base", "limits.turns")} == {"config.yaml"}
    shown = {key: text for key, text, _ in settings.show()}["github.projects"]
    assert json.loads(shown)[0] == "acme/app"
    assert json.loads(shown)[1]["limits"] == {"turns": 7}


def test_projects_with_labels_of_their_own_are_a_part_of_the_section(tmp_path):
    text = OF_PROJECT.replace("limits: {turns: 7}", "labels: {bot_label: go}")
    settings = read(tmp_path, f"{text}    - {{name: acme/docs, labels: {{bot_label: go}}}}\n")
    (section,) = settings.github
    rest, own = sections_by_labels(section)
    assert (rest.project_names, rest.bot_label) == (("acme/app",), "coding agent")
    assert (own.project_names, own.bot_label, own.done_label) == (("acme/web", "acme/docs"), "go", "coding agent done")
    assert (own.token, own.base_url) == (section.token, section.base_url)
    web = for_project(settings, own, "acme/web")
    assert (web.verify.command, web.origins["verify.command"]) == ("npm test", "config.yaml")
    assert (labels_key(rest, "github"), labels_key(own, "github")) == (
        "github",
        "github.projects, acme/web, acme/docs: labels",
    )


def test_where_all_projects_have_labels_of_their_own_nothing_else_is_polled(tmp_path):
    settings = read(
        tmp_path,
        "github:\n  owner: acme\n  projects:\n"
        "    - {name: acme/a, labels: {bot_label: one}}\n    - {name: acme/b, labels: {bot_label: two}}\n",
    )
    parts = sections_by_labels(settings.github[0])
    assert [(part.project_names, part.bot_label) for part in parts] == [(("acme/a",), "one"), (("acme/b",), "two")]
    plain = read(tmp_path, "github: {projects: [acme/a]}\n").github[0]
    assert sections_by_labels(plain) == (plain,)


def test_the_labels_of_a_project_differ_from_those_that_it_keeps(tmp_path):
    said = (
        "github: projects, acme/web: bot_label and done_label are the same label 'coding agent done'; they must differ"
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(tmp_path, "github:\n  projects: [{name: acme/web, labels: {bot_label: Coding Agent Done}}]\n")


def test_a_section_without_projects_has_none(tmp_path):
    settings = read(tmp_path, "task_sources: [local]\n")
    assert for_project(settings, settings.local, "local/default") is settings
    assert for_project(settings, None, "local/default") is settings


def test_commands_of_a_project_are_not_run_where_others_may_write_the_file(tmp_path):
    settings = read(tmp_path, OF_PROJECT.replace("verify: {command: make check, timeout: 60}\n", ""))
    check_commands(settings)
    (tmp_path / "config.yaml").chmod(0o666)
    changed = load(tmp_path / "config.yaml", environ={})
    with pytest.raises(CommandRefused, match=r"^github\.projects is a command of config\.yaml"):
        check_commands(changed)
    web = for_project(changed, changed.github[0], "acme/web")
    with pytest.raises(CommandRefused, match=r"^workspace\.setup\.command is a command of config\.yaml"):
        check_commands(web)


@pytest.mark.parametrize(
    ("projects", "said"),
    [
        ("[acme/app, {name: acme/web, verfy: {}}]", "github.projects.1.verfy is not a known key; did you mean"),
        ("[{name: acme/web, verify: {comand: x}}]", "github.projects.0.verify.comand is not a known key; did you mean"),
        ("[{name: acme/web, base: 'a b'}]", "github.projects.0.base: found 'a b'; allowed is the name of a git branch"),
        ("[{verify: {command: x}}]", "github.projects.0.name is missing"),
        ("[[1]]", "github.projects.0: found a list; allowed is a list, each a name or a mapping of name, verify"),
        ("[{name: '7', base: x}]", "github.projects.0: 7 has settings; name it by its path"),
        ("[{name: acme/web, limits: {turns: 0}}]", "github.projects.0.limits.turns: found 0; allowed is a whole"),
        ("[{name: acme/web, limits: {memory: 1G}}]", "github.projects.0.limits.memory is not a known key"),
        ("[{name: acme/web, labels: {queued: x}}]", "github.projects.0.labels.queued is not a known key"),
        ("acme/web", "github.projects: found text (not shown); allowed is a list, each a name or a mapping"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_line_and_key(tmp_path, projects, said):
    with pytest.raises(ConfigError, match=re.escape(f"config.yaml, line 2: {said}")):
        read(tmp_path, f"github:\n  projects: {projects}\n")


def test_the_environment_names_projects_with_commas_or_as_json():
    comma = load(environ={"AGENT__GITHUB__PROJECTS": "acme/app, acme/web"})
    assert comma.github[0].project_names == ("acme/app", "acme/web")
    mapping = load(environ={"AGENT__GITLAB__PROJECTS": '["acme/app", 7, {"name": "acme/web", "base": "develop"}]'})
    assert mapping.gitlab[0].project_names == ("acme/app", "7", "acme/web")
    assert mapping.gitlab[0].projects[2].base == "develop"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("{mentoin: true}", "github.start.mentoin is not a known key; did you mean github.start.mention"),
        ("{mention: often}", "github.start.mention: found"),
        ("{label: false, assignee: false}", "github.start: label, assignee and mention are all false"),
        ("{mention: true}", "github: start.mention needs projects"),
    ],
)
def test_a_wrong_start_is_refused_with_its_key(tmp_path, start, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(tmp_path, f"github:\n  owner: acme\n  start: {start}\n")


def test_what_starts_a_task_has_defaults_and_names_in_the_environment(tmp_path):
    assert read(tmp_path, "github:\n  owner: acme\n").github[0].start.model_dump() == {
        "label": True,
        "assignee": True,
        "mention": False,
        "review": True,
    }
    changed = load(environ={"AGENT__GITLAB__START__ASSIGNEE": "false"})
    assert not changed.gitlab[0].start.assignee
