"""What workers log reaches who listens in the daemon: each line once, whatever becomes of the folder."""

import json

import pytest

from agent import clock
from agent.daemon.log_tailer import SECONDS, LogTailer
from agent.observe.events import Events

UUID = "0a000000-0000-4000-8000-000000000001"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "running" / UUID
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def heard():
    return []


@pytest.fixture
def watch(tmp_path, heard):
    with clock.use(clock.FakeClock()) as now:
        watch = LogTailer(tmp_path, Events([lambda name, fields: heard.append((name, fields.get("tool")))]))
        watch.clock = now
        yield watch


def log(folder, *tools):
    with (folder / "worker.log").open("a") as file:
        for tool in tools:
            file.write(json.dumps({"event": "tool_finished", "tool": tool, "uuid": UUID}) + "\n")


def test_each_line_is_told_once(folder, watch, heard):
    watch.start(UUID)
    log(folder, "a")
    watch.read_new([UUID])
    watch.clock.move(SECONDS)
    log(folder, "b")
    watch.read_new([UUID])
    assert heard == [("tool_finished", "a"), ("tool_finished", "b")]


def test_it_looks_a_few_times_a_second_at_most(folder, watch, heard):
    watch.start(UUID)
    watch.read_new([UUID])
    log(folder, "a")
    watch.read_new([UUID])
    assert heard == []
    watch.clock.move(SECONDS)
    watch.read_new([UUID])
    assert len(heard) == 1


def test_what_an_earlier_attempt_logged_is_no_news(folder, watch, heard):
    log(folder, "earlier")
    watch.start(UUID)
    log(folder, "now")
    watch.read_new([UUID])
    assert heard == [("tool_finished", "now")]


def test_the_end_of_a_worker_tells_the_rest_from_the_folder_it_was_moved_to(tmp_path, folder, watch, heard):
    watch.start(UUID)
    log(folder, "a")
    watch.read_new([UUID])
    log(folder, "b")
    (tmp_path / "completed").mkdir()
    folder.rename(tmp_path / "completed" / UUID)
    watch.finish(UUID)
    assert heard == [("tool_finished", "a"), ("tool_finished", "b")]


def test_a_worker_without_a_log_is_quiet(watch, heard):
    watch.start(UUID)
    watch.read_new([UUID])
    watch.finish(UUID)
    assert heard == []
