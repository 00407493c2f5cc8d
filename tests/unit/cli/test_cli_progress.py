"""What a person sees while tasks run."""

from urllib.request import urlopen

import pytest

from agent.cli.progress import Board, serve_metrics, worker_to_log
from agent.config import Settings
from agent.observe import log
from agent.observe.events import Events
from agent.values import Status

UUID = "0a000000-0000-4000-8000-000000000001"


@pytest.fixture
def logged(capsys):
    log.setup(level="info")
    yield lambda: capsys.readouterr().err
    log.close()


def test_the_line_counts_what_runs_and_waits_and_what_ended_since():
    board = Board()
    board.counts = {Status.RUNNING: 2, Status.QUEUED: 5, Status.PAUSED: 1, Status.COMPLETED: 70}
    board.add_event("tool_finished", {"uuid": UUID, "tool": "run_command", "status": "success"})
    board.add_event("task_ended", {"uuid": UUID, "status": "completed"})
    board.add_event("task_ended", {"uuid": UUID, "status": "failed"})
    assert board.text() == ("2 running, 5 queued, 1 paused · 1 completed, 1 failed · 0a000000 run_command: success")


def test_a_tool_that_a_model_made_up_is_harmless_on_the_line():
    board = Board()
    board.add_event("tool_finished", {"uuid": UUID, "tool": "\x1b[2J[red]x\n", "status": "error"})
    assert board.text() == "0 running, 0 queued · 0a000000 [red]x : error"


def test_of_a_worker_its_beginning_its_end_and_its_warnings_are_logged(logged):
    for name, fields in (
        ("task_started", {"uuid": UUID, "task": "t"}),
        ("turn_started", {"uuid": UUID}),
        ("tool_finished", {"uuid": UUID, "tool": "x"}),
        ("model_wait", {"uuid": UUID, "why": "busy"}),
        ("task_ended", {"uuid": UUID, "status": "completed"}),
    ):
        worker_to_log(name, fields | {"timestamp": "2026", "level": "info", "logger": "events", "message": "m"})
    said = logged()
    assert [line.split()[2] for line in said.splitlines()] == ["task_started", "model_wait", "task_ended"]
    assert "timestamp" not in said
    assert said.count(UUID) == 4  # once more in the sentence of task_started


def test_metrics_are_answered_while_the_block_runs_and_count_both(logged):
    events, heard = Events(), Events()
    with serve_metrics(0, Settings(), events, heard):
        port = int(logged().rpartition("port=")[2])
        events.emit("task_queued", uuid=UUID, task="t")
        heard.emit("turn_started", uuid=UUID)
        page = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert "makimono_tasks_queued_total 1.0" in page
    assert "makimono_turns_total 1.0" in page


def test_failed_listeners_of_the_daemon_and_of_workers_are_counted(logged):
    events, heard = Events(), Events()

    def broken(_name, _fields):
        raise RuntimeError("no disk")

    with serve_metrics(0, Settings(), events, heard):
        port = int(logged().rpartition("port=")[2])
        heard.emit("listener_failed", uuid=UUID, listener="x", event_name="turn_started", error="y")
        for one in (events, heard):
            one.on(broken)
            one.emit("turn_started", uuid=UUID)
        page = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert "makimono_listener_failures_total 3.0" in page


def test_without_a_port_nothing_is_measured():
    events = Events()
    with serve_metrics(None, Settings(), events):
        events.emit("task_queued", uuid=UUID, task="t")
