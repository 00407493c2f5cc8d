"""The loader: whole sets, roll-back, three modes, one reader among processes, and the set of a task."""

import gc
import json
import os
import threading
import time
from pathlib import Path

import pytest
from length import either

from agent import clock, prompts
from agent.config import settings_of
from agent.errors import ConfigError
from agent.prompts import template_store
from agent.prompts.loader import TemplateLoader, packaged
from agent.prompts.revision import TemplateRefused, from_json


class Home:
    def __init__(self, root):
        self.folder = root / "templates"
        self.folder.mkdir(mode=0o755)
        self.settings = settings_of({"prompts": {"folder": "templates", "ttl_seconds": 60}}, root=root)
        self.events = []

    def announce(self, name, **fields):
        self.events.append((name, fields))

    def loader(self):
        return TemplateLoader(self.settings, self.announce)

    def write(self, name, text):
        new = self.folder / f".{name}.new"
        new.write_text(text)
        new.replace(self.folder / f"{name}.md.j2")

    def names(self):
        return [name for name, _ in self.events]


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_a_template_of_people_takes_the_place_of_the_programs_own(home):
    home.write("system", "Be careful.")
    loader = home.loader()
    one = loader.load("system")
    assert (one.name, one.template, one.schema_ref, one.ttl_seconds) == ("system", "Be careful.", "", None)
    assert one.version == one.sha256[:12]
    assert clock.parse(one.loaded_at)
    assert loader.load("nudge") == packaged("nudge")
    with pytest.raises(TemplateRefused, match="no template 'sistem'; known are"):
        loader.load("sistem")
    with prompts.using(loader.current):
        assert prompts.render("system") == "Be careful."
        assert prompts.version("system") == one.version
        assert prompts.version("nudge") == prompts.versions()["nudge"]
        assert prompts.render("nudge").startswith("You have made the same call")
    assert prompts.render("system").startswith("You are a coding agent")


def test_a_template_with_a_new_name_is_known_and_one_that_cannot_be_filled_is_named(home):
    text = (
        "name: reviewer_speed\nversion: '3'\ntemplate: Judge the speed of {{ what }}.\nvariables: {what: the thing}\n"
    )
    (home.folder / "reviewer_speed.yaml").write_text(text)
    assert "reviewer_speed" not in prompts.accepted_names()
    with prompts.using(home.loader().refresh()):
        assert set(prompts.accepted_names()) == {*prompts.program_templates(), "reviewer_speed"}
        assert prompts.version("reviewer_speed") == "3"
        assert prompts.render("reviewer_speed", what="it") == "Judge the speed of it."
        with pytest.raises(ConfigError, match="'reviewer_speed' cannot be filled with"):
            prompts.render("reviewer_speed")
    with pytest.raises(ValueError, match="there is no template 'reviewer_speed'"):
        prompts.render("reviewer_speed", what="it")


def test_a_published_template_still_cleans_its_values(home):
    home.write("answer", "Own words closes #1 {{ status }} {{ mention | live }}")
    values = {"why": "ended", "order": "", "status": "closes #2", "mention": "@me", "uuid": "u"}
    with prompts.using(home.loader().refresh()):
        text = prompts.publish(
            "answer", lambda value: value.replace("closes", "c-loses").replace("@", "(at)"), **values
        )
    assert text == "Own words closes #1 c-loses #2 @me"


def test_auto_takes_a_change_on_disk_and_nothing_else(home):
    home.write("system", "One.")
    loader = home.loader()
    first = loader.load("system")
    assert loader.reload("system", "auto") is first
    home.write("system", "Two.")
    assert loader.load("system") is first
    assert loader.reload("system", "auto").template == "Two."
    assert home.names() == ["template.reloaded", "template.reloaded"]
    assert home.events[1][1]["previous"] != home.events[1][1]["new"]


def test_ttl_takes_a_change_only_when_the_revision_is_old(home):
    (home.folder / "system.json").write_text(json.dumps({"name": "system", "template": "One.", "ttl_seconds": 10}))
    with clock.use(clock.FakeClock()) as time_:
        loader = home.loader()
        assert loader.load("system").ttl_seconds == 10
        (home.folder / "system.json").write_text(json.dumps({"name": "system", "template": "Two.", "ttl_seconds": 10}))
        time_.move(9)
        assert loader.reload("system", "ttl").template == "One."
        time_.move(2)
        assert loader.reload("system", "ttl").template == "Two."
        home.write("nudge", "Other.")  # with the default of the configuration
        time_.move(59)
        assert loader.reload("nudge", "ttl") == packaged("nudge")
        time_.move(2)
        assert loader.reload("nudge", "ttl").template == "Other."


def test_force_reads_again_and_an_unknown_mode_is_an_error(home):
    home.write("system", "One.")
    loader = home.loader()
    first = loader.load("system")
    again = loader.reload("system", "force")
    assert again.sha256 == first.sha256
    assert again is not first
    with pytest.raises(TemplateRefused, match="'now' is not known; known are auto, ttl, force"):
        loader.reload("system", "now")


def test_one_bad_template_keeps_the_whole_set_and_is_told_once(home):
    home.write("system", "One.")
    home.write("nudge", "Other.")
    loader = home.loader()
    before = loader.refresh()
    home.write("nudge", "Changed.")
    home.write("system", "{{ nothing }}")
    for _ in range(3):
        assert loader.refresh() is before
    loader.reload("system", "force")
    assert loader.load("nudge").template == "Other."
    assert home.names() == ["template.reloaded", "template.reload_failed"]
    assert "system.md.j2: `nothing` is not given" in home.events[1][1]["error"]
    assert home.events[1][1]["kept"] == before.sha256[:12]
    assert loader.error
    home.write("system", "Good again.")
    assert loader.refresh().revisions["nudge"].template == "Changed."
    assert loader.error == ""


def test_a_folder_that_is_set_back_to_the_last_good_state_is_no_fault_any_more(home):
    good, bad = home.folder.with_name("good"), home.folder.with_name("bad")
    home.folder.rename(good)
    bad.mkdir(mode=0o755)
    (good / "system.md.j2").write_text("Good.")
    (bad / "system.md.j2").write_text("{{ x }}")
    loader = home.loader()
    for target, error in ((good, False), (bad, True), (good, False)):
        home.folder.unlink(missing_ok=True)
        home.folder.symlink_to(target)
        assert loader.refresh().revisions["system"].template == "Good."
        assert bool(loader.error) is error


def test_at_the_very_start_the_programs_own_are_used_then_the_last_good_ones(home):
    home.write("system", "{{ x }}")
    assert home.loader().refresh() is None
    assert home.loader().load("system") == packaged("system")
    assert home.names() == ["template.reload_failed"]  # the second process knows of it
    home.write("system", "Good.")
    assert home.loader().refresh().revisions["system"].template == "Good."
    home.write("system", "{{ x }}")
    late = home.loader()
    assert late.refresh().revisions["system"].template == "Good."
    assert late.error
    (home.folder / "system.md.j2").unlink()
    home.folder.rmdir()
    gone = home.loader()
    assert gone.refresh().revisions["system"].template == "Good."
    assert "does not exist" in gone.error


def test_a_second_process_takes_what_the_first_has_read(home, monkeypatch):
    home.write("system", "One.")
    home.loader().refresh()

    def read(*_):
        raise AssertionError("the folder is read a second time")

    monkeypatch.setattr("agent.prompts.loader.read_folder", read)
    assert home.loader().refresh().revisions["system"].template == "One."


def test_a_damaged_or_foreign_record_is_not_used(home):
    home.write("system", "One.")
    home.loader().refresh()
    path = home.settings.base_dir / template_store.NAME
    assert path.stat().st_mode & 0o777 == 0o600
    data = json.loads(path.read_bytes())
    data["set"]["templates"][0]["template"] = "Changed by hand."
    path.write_text(json.dumps(data))
    assert home.loader().refresh().revisions["system"].template == "One."
    for text in ("", "[]", "{", '{"source": "/elsewhere"}'):
        path.write_text(text)
        assert home.loader().refresh().revisions["system"].template == "One."


def test_a_base_dir_that_cannot_be_written_costs_the_record_alone(home):
    home.write("system", "One.")
    home.settings.base_dir.write_text("a file")
    assert home.loader().refresh().revisions["system"].template == "One."


def test_a_template_that_fails_at_run_time_gives_way_to_the_programs_own_and_is_told_once(home):
    home.write("invalid", "{{ name }}{{ 'x' * (600000 if name == 'big' else 1) }}")
    with prompts.using(home.loader().refresh()):
        assert prompts.render("invalid", name="a", found="f") == "ax"
        for _ in range(3):
            assert prompts.render("invalid", name="big", found="f").startswith("The arguments of")
        assert prompts.render("invalid", name="a", found="f") == "ax"
    assert home.names() == ["template.reloaded", "template.render_failed"]
    assert home.events[1][1]["template"] == "invalid"
    assert "LimitExceeded" in home.events[1][1]["error"]


# --- the set of a task -----------------------------------------------------------------------------------------------


def task_folder(home, name="t"):
    made = home.settings.base_dir / "running" / name
    made.mkdir(parents=True)
    return made


def test_a_task_keeps_the_set_that_it_began_with_and_the_next_one_gets_the_new_one(home):
    home.write("system", "One.")
    first, second = task_folder(home, "a"), task_folder(home, "b")
    assert home.loader().of_task(first).revisions["system"].template == "One."
    (first / "messages.jsonl").write_text("{}\n")
    home.write("system", "Two.")
    assert home.loader().of_task(first).revisions["system"].template == "One."
    assert home.loader().of_task(second).revisions["system"].template == "Two."
    data = json.loads((first / "prompts.json").read_bytes())
    assert data["sha256"] == from_json(data).sha256


def test_a_task_that_began_without_templates_of_people_goes_on_without(home):
    folder = task_folder(home)
    (folder / "messages.jsonl").write_text("{}\n")
    home.write("system", "One.")
    assert home.loader().of_task(folder) is None
    assert not (folder / "prompts.json").exists()


def test_a_task_whose_record_is_damaged_goes_on_with_the_programs_own(home):
    home.write("system", "One.")
    folder = task_folder(home)
    home.loader().of_task(folder)
    data = json.loads((folder / "prompts.json").read_bytes())
    data["templates"][0]["version"] = "9"
    (folder / "prompts.json").write_text(json.dumps(data))
    assert home.loader().of_task(folder) is None
    assert home.names()[-1] == "template.reload_failed"


def test_a_task_begins_with_the_programs_own_while_the_folder_was_never_good(home):
    home.write("system", "{{ x }}")
    folder = task_folder(home)
    assert home.loader().of_task(folder) is None
    assert not (folder / "prompts.json").exists()


# --- many reloads ----------------------------------------------------------------------------------------------------

TEXT = (
    "begin {number} {{{{ title }}}} {{{{ body }}}} {{% for one in comments %}}{{{{ one }}}}{{% endfor %}} end {number}"
)


def replace_folder(home, number):
    """Put a whole new folder in place by one rename of a symlink, as a release does; the old one is removed."""
    new = home.folder.with_name(f"release-{number}")
    new.mkdir(mode=0o755)
    (new / "briefing.md.j2").write_text(TEXT.format(number=number))
    (new / "system.md.j2").write_text(f"system {number}")
    (new / "nudge.yaml").write_text(f"name: nudge\ntemplate: nudge {number}\n")
    link = home.folder.with_name("next")
    link.symlink_to(new)
    old = home.folder.resolve()
    link.replace(home.folder)
    return old


def remove(folder):
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


WARM, LAST = 60, either(220, 1000)


def test_many_reloads_while_texts_are_rendered_tear_no_text_and_leak_nothing(home):
    home.folder.rmdir()
    home.folder.symlink_to(home.folder.with_name("none"))
    replace_folder(home, 0)
    loader = home.loader()
    prompts.set_replacements(loader.refresh())
    values = {
        "rules": [], "title": "T", "body": "B", "truncated": False, "comments": ["c"] * 20, "branch": "b",
        "base": "m", "empty_repository": False, "verify": None, "commands": True,
    }  # fmt: skip
    over, torn, rendered = threading.Event(), [], [0, 0]

    def work(place):
        while not over.is_set():
            text = prompts.render("briefing", **values)
            first, last = text.split()[1], text.split()[-1]
            if text != f"begin {first} T B {'c' * 20} end {last}" or first != last:
                torn.append(text)
            current = loader.current
            numbers = {one.template.split()[1] for one in current.revisions.values()}
            if len(numbers) != 1:
                torn.append(numbers)
            rendered[place] += 1
            time.sleep(0.002)  # the interpreter lock is not held all the time

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    measured, events = [], []
    try:
        for number in range(1, LAST + 1):
            old = replace_folder(home, number)
            assert loader.reload("system", "force").template == f"system {number}"
            prompts.set_replacements(loader.current)
            if old.exists():
                remove(old)
            if number in (WARM, LAST):
                events += home.names()
                home.events.clear()
                gc.collect()
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                measured.append(
                    (len(gc.get_objects()), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGESIZE"))
                )
    finally:
        over.set()
        for thread in threads:
            thread.join()
        prompts.set_replacements(None)
    assert torn == []
    assert min(rendered) > LAST // 10
    objects, descriptors, resident = (second - first for first, second in zip(*measured, strict=True))
    assert objects < 100  # of more reloads than that
    assert descriptors <= 0
    assert resident < 4 << 20
    assert events == ["template.reloaded"] * (LAST + 1)


def test_files_that_are_replaced_one_by_one_never_give_half_a_file(home):
    home.write("system", "0 " + "x" * 4000 + " 0")
    loader = home.loader()
    over = threading.Event()

    def write():
        number = 0
        while not over.is_set():
            number += 1
            home.write("system", f"{number} " + "x" * 4000 + f" {number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            loader.refresh(force=True)
            text = loader.load("system").template
            assert text.split()[0] == text.split()[-1]
    finally:
        over.set()
        writer.join()
    assert Path(home.folder).is_dir()
