"""Announcing, and listeners that fail alone."""

import json

import pytest

from agent.observe import log
from agent.observe.events import EVENTS, Events, to_log


@pytest.fixture
def lines(tmp_path):
    """The log lines written so far."""
    path = tmp_path / "worker.log"
    log.setup(path, level="debug", stderr=False, uuid="u-1")
    yield lambda: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    log.close()


def test_every_listener_hears_the_name_and_the_fields_in_order():
    heard = []
    events = Events([lambda name, fields: heard.append(("first", name, dict(fields)))])
    events.on(lambda name, fields: heard.append(("second", name, dict(fields))))
    events.emit("turn_started", turn=3)
    assert heard == [("first", "turn_started", {"turn": 3}), ("second", "turn_started", {"turn": 3})]


def test_a_name_that_is_no_event_is_a_bug():
    with pytest.raises(ValueError, match="'turn_begun' is not an event"):
        Events().emit("turn_begun")


def test_a_listener_that_raises_is_logged_and_the_others_still_hear(lines):
    heard = []

    def broken(name, fields):
        raise RuntimeError("no disk")

    events = Events([broken, lambda name, fields: heard.append(name)])
    events.emit("turn_started", turn=1)
    assert heard == ["turn_started"]
    (line,) = lines()
    assert (line["event"], line["level"], line["event_name"]) == ("listener_failed", "error", "turn_started")
    assert "broken" in line["listener"]
    assert line["error"] == "RuntimeError: no disk"
    assert "in broken" in line["exception"]
    events.emit("turn_started", turn=2)
    assert "exception" not in lines()[1], "a traceback at each event would fill the log"


def test_a_listener_of_failures_gets_each_one_and_no_other_event(lines):
    heard, failures = [], []

    def broken(name, fields):
        raise RuntimeError("no disk")

    events = Events([broken, lambda name, _fields: heard.append(name)])
    events.on_failure(broken)
    events.on_failure(lambda name, fields: failures.append((name, fields["event_name"], fields["error"])))
    events.emit("turn_started", turn=1)
    assert heard == ["turn_started"]
    assert failures == [("listener_failed", "turn_started", "RuntimeError: no disk")]
    assert [(line["event"], line["event_name"]) for line in lines()] == [
        ("listener_failed", "turn_started"),
        ("listener_failed", "listener_failed"),
    ]


def test_a_listener_may_be_taken_away_while_it_is_called():
    heard = []
    events = Events()

    def once(name, fields):
        heard.append(name)
        events.off(once)

    events.on(once)
    events.emit("turn_started")
    events.emit("turn_started")
    events.off(once)
    assert heard == ["turn_started"]


def test_a_field_may_have_any_name(lines):
    events = Events([to_log])
    events.emit("tool_started", name="x", self="y", event="z", level="w", logger="v", timestamp="t")
    (line,) = lines()
    assert (line["event"], line["level"], line["name"], line["self_"], line["event_"]) == (
        "tool_started",
        "debug",
        "x",
        "y",
        "z",
    )


def test_every_event_can_be_logged_and_keeps_its_name_and_level(lines):
    events = Events([to_log])
    for name in EVENTS:
        events.emit(name, why="w")
    assert [line["event"] for line in lines()] == list(EVENTS)
    levels = {line["event"]: line["level"] for line in lines()}
    assert (levels["model_wait"], levels["worker_died"], levels["task_ended"]) == ("warning", "error", "info")


def test_the_sentences_of_the_seed_stand_beside_the_name(lines):
    events = Events([to_log])
    events.emit("task_started", uuid="550e8400")
    events.emit("task_failed", uuid="550e8400", error="boom")
    assert [line["message"] for line in lines()] == ["Task started: 550e8400", "Task processing failed"]
    assert lines()[0]["uuid"] == "550e8400"
