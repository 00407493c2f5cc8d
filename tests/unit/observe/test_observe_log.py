"""The structured log, on real files and a real stderr."""

import json
import logging
import os
import stat
import subprocess
import sys
import threading
from enum import Enum

import pytest

from agent import clock
from agent.observe import log


@pytest.fixture(autouse=True)
def _closed():
    yield
    log.close()


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_of_the_file_is_one_json_object_with_time_level_event_and_fields(tmp_path):
    path = tmp_path / "worker.log"
    log.setup(path, level="info", stderr=False, uuid="u-1")
    with clock.use(clock.FakeClock()):
        log.get("llm").info("request_sent", bytes=12, text="日本語\n2", where=tmp_path)
    log.get("llm").debug("tool_started")
    assert records(path) == [
        {
            "timestamp": "2026-01-31T09:15:00.000000Z",
            "level": "info",
            "event": "request_sent",
            "logger": "llm",
            "uuid": "u-1",
            "bytes": 12,
            "text": "日本語\n2",
            "where": str(tmp_path),
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_uuid_is_in_the_lines_of_every_thread(tmp_path):
    path = tmp_path / "worker.log"
    log.setup(path, stderr=False, uuid="u-1")
    thread = threading.Thread(target=lambda: log.get("llm").warning("model_wait"))
    thread.start()
    thread.join()
    assert records(path)[0]["uuid"] == "u-1"


def test_every_line_is_masked_also_inside_fields_and_tracebacks(tmp_path, capsys):
    path = tmp_path / "worker.log"
    log.setup(path, redact=lambda text: text.replace("sk-secret", "[masked]"))
    try:
        raise RuntimeError("key sk-secret refused")
    except RuntimeError:
        log.get("llm").error("model_failed", header={"a": ["sk-secret"]}, exc_info=True)
    logging.getLogger("some.library").warning("header sk-secret")
    text = path.read_text() + capsys.readouterr().err
    assert "sk-secret" not in text
    assert "RuntimeError: key [masked] refused" in records(path)[0]["exception"]
    assert records(path)[1]["message"] == "header [masked]"


def test_what_libraries_log_is_kept_from_warnings_on(tmp_path):
    path = tmp_path / "worker.log"
    log.setup(path, level="debug", stderr=False)
    logging.getLogger("urllib3.connectionpool").debug("Starting new connection")
    logging.getLogger("urllib3.connectionpool").warning("Retrying %s", "now")
    (line,) = records(path)
    assert (line["event"], line["logger"], line["message"]) == ("library", "urllib3.connectionpool", "Retrying now")


def test_stderr_gets_a_short_human_line(capsys):
    log.setup()
    with clock.use(clock.FakeClock()):
        log.get("run").info("task_queued", task="local:a/b#1", title="two words", message="Hello")
    assert capsys.readouterr().err == '09:15:00 info    task_queued (Hello) task=local:a/b#1 title="two words"\n'


def test_nothing_that_a_terminal_obeys_reaches_it(capsys):
    log.setup()
    log.get("run").warning("issue_skipped", why="a\x1b[2J\x9b31m\u202eb\x7f\r", message="x\x1b]0;t\x07")
    try:
        raise ValueError("\x1b[31m")
    except ValueError as error:
        log.get("run").error("poll_failed", exc_info=error)
    said = capsys.readouterr().err
    assert not set(said) & set("\x1b\x9b\u202e\x7f\r\x07")
    assert "ValueError: \\u001b[31m" in said


def test_stderr_can_have_json_lines_too(capsys):
    log.setup(json=True)
    log.get("run").info("task_queued")
    assert json.loads(capsys.readouterr().err)["event"] == "task_queued"


def test_setting_up_again_replaces_what_was_there(tmp_path, capsys):
    log.setup(tmp_path / "a.log")
    log.setup(tmp_path / "b.log", stderr=False)
    log.get("x").info("task_queued")
    assert (tmp_path / "a.log").read_text() == ""
    assert len(records(tmp_path / "b.log")) == 1
    assert capsys.readouterr().err == ""


def test_a_logger_that_was_got_before_follows(tmp_path):
    logger = log.get("x").bind(turn=3)
    log.setup(tmp_path / "a.log", stderr=False)
    logger.info("turn_started")
    assert records(tmp_path / "a.log")[0]["turn"] == 3


def test_the_log_goes_on_in_a_renamed_folder(tmp_path):
    (tmp_path / "running").mkdir()
    log.setup(tmp_path / "running/worker.log", stderr=False)
    log.get("x").info("task_started")
    (tmp_path / "running").rename(tmp_path / "completed")
    log.get("x").info("task_ended")
    assert [line["event"] for line in records(tmp_path / "completed/worker.log")] == ["task_started", "task_ended"]


class Odd:
    """An object whose own text raises what nobody foresees."""

    class Refused(Exception):
        pass

    def __repr__(self):
        raise self.Refused


def odd_values():
    ring, mapping, deep = [], {"a": 1}, []
    ring.append(ring)
    mapping["itself"] = mapping
    for _ in range(5000):
        deep = [deep]
    return {
        "a ring": (ring, ["…"]),
        "a mapping that holds itself": (mapping, {"a": 1, "itself": "…"}),
        "the same twice is no ring": ([mapping["a"], ring[:0], ring[:0]], [1, [], []]),
        "deep": (deep, None),
        "a key that is no text": ({(1, 2): 3, None: 4}, {"(1, 2)": 3, "None": 4}),
        "a text that raises": ([Odd()], ["<Odd: its text raised Refused>"]),
        "a key that raises": ({Odd(): 1}, {"<Odd: its text raised Refused>": 1}),
        "long texts": (["x" * 1_000_000] * 3, None),
        "a long key": ({"k" * 1_000_000: 1}, None),
        "many": (list(range(1_000_000)), None),
        "many keys": ({number: number for number in range(100_000)}, None),
        "bytes": (b"x" * 1_000_000, None),
        "half a character, and no number": (["\ud800", float("nan"), float("inf")], ["\ud800", "nan", "inf"]),
        "a number beyond 64 bits": (10**40, 10**40),
        "a number that Python does not write": (10**6000, f"a number of {(10**6000).bit_length()} bits"),
        "a set": ({7}, [7]),
        "a word of a list": (Level.LOW, "low"),
    }


class Level(Enum):
    LOW = "low"


@pytest.mark.parametrize("what", odd_values())
def test_any_value_is_one_line_of_json_of_bounded_length_and_stops_nothing(what, tmp_path, capsys):
    value, expected = odd_values()[what]
    log.setup(tmp_path / "worker.log")
    log.get("x").info("task_started", value=value, after=1)
    text = (tmp_path / "worker.log").read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert len(text) < 30_000
    assert len(capsys.readouterr().err) < 30_000
    said = json.loads(text, parse_constant=pytest.fail)
    assert said["after"] == 1
    if expected is not None:
        assert said["value"] == expected


def test_what_a_library_or_an_error_says_is_bounded_too_and_stops_nothing(tmp_path, capsys):
    log.setup(tmp_path / "worker.log")
    library = logging.Logger("some.library")  # noqa: LOG001 - of its own: pytest's handlers cannot stand it
    library.addHandler(log._Libraries())
    library.warning("broken %s", Odd())
    try:
        raise RuntimeError("first" + "x" * 1_000_000 + "last")
    except RuntimeError:
        log.get("x").error("task_failed", exc_info=True)
    library, failed = records(tmp_path / "worker.log")
    assert library["message"] == "broken %s"
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("last")
    assert len(failed["exception"]) < 30_000
    assert len(capsys.readouterr().err) < 60_000


def test_a_symlink_in_place_of_the_log_is_not_followed(tmp_path, capsys):
    (tmp_path / "worker.log").symlink_to(tmp_path / "elsewhere")
    log.setup(tmp_path / "worker.log", stderr=False)
    assert "log_refused" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_cannot_be_written_does_not_stop_the_work(capsys):
    log.setup(stderr=False)
    log.setup(_full())
    log.get("x").info("task_started")
    said = capsys.readouterr().err
    assert "task_started" in said
    assert "Traceback" not in said


def _full():
    """A file on which every write fails with "no space left"."""
    from pathlib import Path

    return Path("/dev/full")


def test_strange_text_and_long_text_are_written(tmp_path):
    path = tmp_path / "a.log"
    log.setup(path, stderr=False)
    log.get("x").info("tool_finished", odd="\ud800\x00", long="x" * 50_000)
    (line,) = records(path)
    assert line["odd"] == "\ud800\x00"
    assert len(line["long"]) < 21_000
    assert line["long"].endswith("(50000 characters)")


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="known are debug, info, warning, error"):
        log.setup(level="loud")


def test_a_closed_pipe_on_stderr_does_not_stop_the_work():
    code = "from agent.observe import log; log.setup(); [log.get('x').info('task_queued') for _ in range(3)]; print('done')"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as broken:
        done = subprocess.run([sys.executable, "-c", code], stderr=broken, stdout=subprocess.PIPE, check=False)
    assert done.stdout == b"done\n"


def test_before_it_is_set_up_nothing_is_printed_anywhere():
    code = "from agent.observe import log; log.get('x').error('task_failed'); log.get('x').info('task_queued')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_log_file_that_cannot_be_opened_is_said_on_stderr_which_gets_the_lines(tmp_path, capfd):
    (tmp_path / "worker.log").mkdir()
    log.setup(tmp_path / "worker.log", stderr=False, json=True)
    log.get("llm").info("request_sent")
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [one["event"] for one in said] == ["log_refused", "request_sent"]
    assert said[0]["why"] == f"{tmp_path / 'worker.log'}: Is a directory"


STARTS = """
import multiprocessing, sys
from agent.observe import log
def work():
    log.lose_what_stderr_refuses()
    print("the worker's own words", file=sys.stderr)
if __name__ == "__main__":
    log.lose_what_stderr_refuses()
    print("not yet flushed", file=sys.stderr)
    process = multiprocessing.get_context("forkserver").Process(target=work)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("place", ["full", "gone", "file"])
def test_a_stderr_that_refuses_keeps_no_process_from_its_start(tmp_path, place):
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    if place == "gone":
        reader, errors = os.pipe()
        os.close(reader)
    else:
        errors = os.open("/dev/full" if place == "full" else tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    done = subprocess.run([sys.executable, script], stderr=errors, env={**os.environ, "PYTHONPATH": "."}, check=False)
    os.close(errors)
    assert done.returncode == 0
    if place == "file":
        assert (tmp_path / "log").read_text() == "not yet flushed\nthe worker's own words\n"
