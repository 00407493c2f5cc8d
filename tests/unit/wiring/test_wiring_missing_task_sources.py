"""A tracker that was moved keeps its tasks; of a source that is not configured it is said that its tasks wait."""

import json
import shutil

import pytest
from run_home import UUID, Place

from agent.commands.doctor_sources import missing_sources
from agent.errors import ConfigError
from agent.forge.local.forge import IDENTITY
from agent.intake.poller import fetch_and_enqueue_tasks
from agent.wiring import missing_task_sources
from agent.wiring.wiring import Wiring


def opened(here, tracker="tracker"):
    """The wiring of a process that is configured with this tracker, after its start."""
    local = here.settings.local.model_copy(update={"tracker": here.folder / tracker})
    wiring = Wiring(here.settings.model_copy(update={"local": local}), events=here.events)
    missing_task_sources.move_instances(wiring)
    missing_task_sources.tell_missing(wiring)
    return wiring


def test_the_rows_of_a_tracker_follow_its_folder(place):
    here = place()
    here.issue(1)
    opened(here).close()
    (uuid,) = fetch_and_enqueue_tasks(here.settings, here.ledger, here.wiring.forges, here.events)
    (here.folder / "tracker").rename(here.folder / "moved")
    for _ in range(2):
        wiring = opened(here, "moved")
        row = wiring.ledger.get(uuid)
        assert row.instance == str(here.folder / "moved")
        assert wiring.forge_of(row.key).read_issue(row.key).title == "An issue"
        assert fetch_and_enqueue_tasks(wiring.settings, wiring.ledger, wiring.forges, here.events) == []
        wiring.close()
    assert here.named("source_moved") == [
        {"source": "local", "was": str(here.folder / "tracker"), "instance": str(here.folder / "moved"), "tasks": 1}
    ]
    assert here.named("source_missing") == []


def test_a_killed_start_is_made_good_by_the_next(place, monkeypatch):
    """The rows follow first: dead before the tracker has written down where it is, the next one looks again."""
    here = place()
    here.row(1)
    opened(here).close()
    (here.folder / "tracker").rename(here.folder / "moved")
    monkeypatch.setattr("agent.forge.local.forge.LocalForge.remember", lambda _self: None)
    opened(here, "moved").close()
    monkeypatch.undo()
    wiring = opened(here, "moved")
    assert wiring.ledger.get(UUID % 1).instance == str(here.folder / "moved")
    assert len(here.named("source_moved")) == 1
    wiring.close()


def test_a_copy_beside_its_tracker_is_another_one(place):
    here = place()
    here.row(1)
    opened(here).close()
    shutil.copytree(here.folder / "tracker", here.folder / "copy")
    wiring = opened(here, "copy")
    assert wiring.ledger.get(UUID % 1).instance == str(here.folder / "tracker")
    ids = {json.loads((here.folder / name / IDENTITY).read_text())["id"] for name in ("tracker", "copy")}
    assert len(ids) == 2
    assert here.named("source_missing") == [{"source": "local", "instance": str(here.folder / "tracker"), "tasks": 1}]
    wiring.close()


def test_a_backup_that_is_restored_elsewhere_goes_on(place, tmp_path_factory):
    here = place()
    here.issue(1)
    here.row(1)
    opened(here).close()
    here.close()
    other = tmp_path_factory.mktemp("other") / "home"
    shutil.move(here.folder, other)
    (here.folder).mkdir()
    there = Place.__new__(Place)
    (other / "tracker" / "issues").rename(other / "issues-kept")
    Place.__init__(there, other)
    shutil.rmtree(other / "tracker" / "issues")
    (other / "issues-kept").rename(other / "tracker" / "issues")
    wiring = opened(there)
    assert wiring.ledger.get(UUID % 1).instance == str(other / "tracker")
    wiring.close()
    there.close()


def test_a_row_whose_key_is_open_at_the_new_place_stays(place):
    here = place()
    here.row(1)
    other = str(here.folder / "new")
    here.ledger.enqueue(here.key(1) | {"instance": other}, uuid=UUID % 2)
    here.ledger.enqueue(here.key(3), uuid=UUID % 3)
    assert here.ledger.move_instance("local", here.forge.instance, other) == [UUID % 3]
    assert here.ledger.get(UUID % 1).instance == here.forge.instance


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 5, "path": 7}', "\xff"])
def test_an_id_file_that_says_nothing_is_written_anew(place, text):
    here = place()
    path = here.folder / "tracker" / IDENTITY
    path.write_text(text)
    opened(here).close()
    assert json.loads(path.read_text())["path"] == str(here.folder / "tracker")


def test_doctor_says_how_many_tasks_wait_for_nobody(place):
    here = place()
    assert list(missing_sources(here.settings)) == []
    for number in (1, 2):
        here.ledger.enqueue(here.key(number) | {"instance": "/elsewhere"}, uuid=UUID % number)
    (check,) = missing_sources(here.settings)
    assert check.found.startswith("2 open tasks of local /elsewhere, which is not configured")
    with pytest.raises(ConfigError):
        here.wiring.forge_of(here.ledger.get(UUID % 1).key)
