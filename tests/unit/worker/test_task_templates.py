"""Which templates a task uses: recorded once, part of the replica, and nothing at all where none are configured."""

import subprocess
import sys

import pytest

from agent import prompts
from agent.config import settings_of
from agent.observe.events import Events
from agent.store.replica import take_snapshot
from agent.worker.task_templates import FILE, present_templates, templates_of


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "contexts" / "running" / "t"
    made.mkdir(parents=True)
    return made


def settings(tmp_path, **keys):
    return settings_of({"prompts": keys}, root=tmp_path)


def test_a_task_uses_its_set_inside_the_block_alone_and_the_replica_has_it(tmp_path, folder):
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "system.md.j2").write_text("One.")
    with templates_of(settings(tmp_path, folder="own"), Events(), folder):
        assert prompts.render("system") == "One."
    assert prompts.render("system").startswith("You are a coding agent")
    assert FILE in take_snapshot(folder, (), {}, {}).once


def test_work_that_is_no_task_uses_the_present_set_and_records_nothing(tmp_path, folder):
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "reviewer_safety.md.j2").write_text("Look for harm.")
    (tmp_path / "own" / "reviewer_speed.yaml").write_text("name: reviewer_speed\ntemplate: Speed.\nvariables: {}\n")
    with present_templates(settings(tmp_path, folder="own"), Events()):
        assert prompts.render("reviewer_safety") == "Look for harm."
        assert "reviewer_speed" in prompts.accepted_names()
    assert not (folder / FILE).exists()
    with present_templates(settings(tmp_path), Events()):
        assert prompts.accepted_names() == prompts.program_templates()


def test_a_recorded_set_is_used_although_none_is_configured_any_more(tmp_path, folder):
    (tmp_path / "own").mkdir(mode=0o755)
    (tmp_path / "own" / "system.md.j2").write_text("One.")
    with templates_of(settings(tmp_path, folder="own"), Events(), folder):
        pass
    with templates_of(settings(tmp_path), Events(), folder):
        assert prompts.render("system") == "One."


def test_the_set_of_the_daemon_is_not_that_of_a_task_without_one(tmp_path, folder):
    class Set:
        def fill(self, name, values):
            return "of the daemon"

        def names(self):
            return []

        def version(self, name):
            return "1"

    with prompts.using(Set()), templates_of(settings(tmp_path), Events(), folder):
        assert prompts.render("system").startswith("You are a coding agent")


def test_nothing_is_imported_where_none_are_configured(tmp_path, folder):
    code = (
        "import sys; from pathlib import Path\n"
        "from agent.config import settings_of; from agent.observe.events import Events\n"
        "from agent.worker.task_templates import templates_of\n"
        "with templates_of(settings_of({}, root=Path(sys.argv[1])), Events(), Path(sys.argv[2])): pass\n"
        "print([name for name in sys.modules if name.startswith('agent.prompts.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(folder)], capture_output=True, text=True)
    assert done.stdout.strip() == "['agent.prompts.rendering']", done.stderr
