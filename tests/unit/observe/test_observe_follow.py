"""Events of other processes, read from their logs."""

import subprocess
import sys

from agent.observe.events import Events
from agent.observe.log_follower import MOST, LogFollower
from agent.observe.metrics import Metrics


def heard():
    found = []
    return found, LogFollower(Events([lambda name, fields: found.append((name, fields.get("n")))]))


def line(number, name="turn_started"):
    return f'{{"event": "{name}", "n": {number}}}\n'.encode()


def test_each_line_is_heard_once_and_a_torn_one_when_it_is_whole(tmp_path):
    path = tmp_path / "worker.log"
    found, follower = heard()
    assert follower.read("u", path) == 0
    path.write_bytes(line(1) + line(2) + line(3)[:9])
    assert follower.read("u", path) == 2
    assert follower.read("u", path) == 0
    with path.open("ab") as file:
        file.write(line(3)[9:])
    assert follower.read("u", path) == 1
    assert found == [("turn_started", 1), ("turn_started", 2), ("turn_started", 3)]


def test_it_goes_on_in_a_renamed_folder_and_begins_anew_in_a_new_file(tmp_path):
    (tmp_path / "running").mkdir()
    (tmp_path / "running/worker.log").write_bytes(line(1))
    found, follower = heard()
    follower.read("u", tmp_path / "running/worker.log")
    (tmp_path / "running").rename(tmp_path / "completed")
    with (tmp_path / "completed/worker.log").open("ab") as file:
        file.write(line(2))
    follower.read("u", tmp_path / "completed/worker.log")
    (tmp_path / "other.log").write_bytes(line(3))
    follower.read("u", tmp_path / "other.log")
    assert [number for _, number in found] == [1, 2, 3]
    follower.forget("u")
    follower.read("u", tmp_path / "other.log")
    assert [number for _, number in found] == [1, 2, 3, 3]


def test_what_is_no_event_is_passed_over(tmp_path):
    path = tmp_path / "worker.log"
    path.write_bytes(b'\n[]\nnot json\n\xff\xfe\n{"event": "library"}\n{"event": ["x"]}\n' + line(5))
    found, follower = heard()
    assert follower.read("u", path) == 1
    assert found == [("turn_started", 5)]


def test_an_endless_line_does_not_stop_it(tmp_path):
    path = tmp_path / "worker.log"
    path.write_bytes(b"x" * (MOST + 10) + b"\n" + line(7))
    found, follower = heard()
    assert follower.read("u", path) == 0
    assert follower.read("u", path) == 1
    assert found == [("turn_started", 7)]


def test_what_was_there_before_can_be_skipped(tmp_path):
    path = tmp_path / "worker.log"
    path.write_bytes(line(1))
    found, follower = heard()
    follower.skip("u", path)
    follower.skip("v", tmp_path / "none")
    with path.open("ab") as file:
        file.write(line(2))
    follower.read("u", path)
    assert found == [("turn_started", 2)]


def test_a_symlink_is_not_followed(tmp_path):
    (tmp_path / "real").write_bytes(line(1))
    (tmp_path / "worker.log").symlink_to(tmp_path / "real")
    assert heard()[1].read("u", tmp_path / "worker.log") == 0


def test_a_daemon_counts_what_the_process_of_a_task_announces(tmp_path):
    path = tmp_path / "worker.log"
    code = f"""
from pathlib import Path
from agent.observe import log
from agent.observe.events import Events, to_log
log.setup(Path({str(path)!r}), uuid="u-1", stderr=False)
events = Events([to_log])
events.emit("turn_started")
events.emit("context_assembled", tokens=10, limit=20, latency_ms=1.5, layers={{"working": 10}}, dropped=[])
events.emit("answer_received", model="m", prompt_tokens=7, completion_tokens=2, cached_tokens=0, seconds=1)
events.emit("tool_finished", tool="read_file", seq=1, status="success", duration_ms=3)
events.emit("task_ended", uuid="u-1", status="completed", end="finished", code="")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    metrics = Metrics()
    assert LogFollower(Events([metrics])).read("u-1", path) == 5
    text = metrics.text().decode()
    for sample in (
        "makimono_turns_total 1.0",
        'memory_layer_usage_total{layer="working"} 10.0',
        "makimono_context_assembly_seconds_sum 0.0015",
        'makimono_tokens_total{kind="prompt",model="m"} 7.0',
        'makimono_tool_calls_total{status="success",tool="read_file"} 1.0',
        'makimono_tasks_total{status="completed"} 1.0',
    ):
        assert sample in text
