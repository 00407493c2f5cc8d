"""Metrics from events, read back as Prometheus reads them."""

import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.observe.events import EVENTS, Events
from agent.observe.metrics import MOST_LABELS, Metrics


def samples(metrics):
    """{(name, labels): value} of everything."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def events(metrics):
    return Events([metrics])


def test_the_metrics_of_the_seed_have_their_names(metrics, events):
    events.emit("context_assembled", latency_ms=12.5, tokens=5000, limit=9000, layers={"working": 4000, "system": 1000})
    found = samples(metrics)
    assert found["context_assembly_latency_ms_sum", ()] == 12.5
    assert found["context_token_count_sum", ()] == 5000
    assert found["memory_layer_usage_total", ("working",)] == 4000
    assert found["memory_layer_usage_total", ("system",)] == 1000


def test_turns_tools_tokens_and_tasks_are_counted(metrics, events):
    events.emit("turn_started", turn=1)
    events.emit("turn_started", turn=2)
    events.emit("tool_finished", tool="read_file", status="success", duration_ms=250)
    events.emit("tool_finished", tool="read_file", status="error", duration_ms=50)
    events.emit("answer_received", model="gpt-4o", prompt_tokens=100, completion_tokens=20, cached_tokens=80, seconds=2)
    events.emit("answer_received", model="gpt-4o", prompt_tokens=None)
    events.emit("task_queued", uuid="a")
    events.emit("task_ended", uuid="a", status="completed")
    events.emit("task_ended", uuid="b", status="failed")
    events.emit("compaction", strategy="mask")
    found = samples(metrics)
    assert found["makimono_turns_total", ()] == 2
    assert found["makimono_tool_calls_total", ("read_file", "success")] == 1
    assert found["makimono_tool_calls_total", ("error", "read_file")] == 1
    assert found["makimono_tool_seconds_sum", ("read_file",)] == 0.3
    assert found["makimono_tokens_total", ("gpt-4o", "prompt")] == 100
    assert found["makimono_tokens_total", ("cached", "gpt-4o")] == 80
    assert found["makimono_answer_seconds_count", ("gpt-4o",)] == 1
    assert found["makimono_tasks_queued_total", ()] == 1
    assert found["makimono_tasks_total", ("completed",)] == 1
    assert found["makimono_tasks_total", ("failed",)] == 1
    assert found["makimono_compactions_total", ("mask",)] == 1


def test_workers_that_are_alive_are_a_gauge(metrics, events):
    events.emit("task_claimed", uuid="a", pid=1)
    events.emit("task_claimed", uuid="b", pid=2)
    events.emit("worker_died", uuid="a", pid=1)
    events.emit("task_ended", uuid="a", status="failed")
    events.emit("task_claimed", uuid="c", pid=3)
    events.emit("task_requeued", uuid="c")
    found = samples(metrics)
    assert found["makimono_workers", ()] == 1
    assert found["makimono_workers_died_total", ()] == 1


def test_invented_tool_names_do_not_cost_memory_for_ever(metrics, events):
    for number in range(3 * MOST_LABELS):
        events.emit("tool_finished", tool=f"invented_{number}", status="error")
    tools = {labels for name, labels in samples(metrics) if name == "makimono_tool_calls_total"}
    assert len(tools) == MOST_LABELS + 1
    assert samples(metrics)["makimono_tool_calls_total", ("error", "other")] == 2 * MOST_LABELS


def test_every_event_is_taken_also_without_fields(metrics):
    for name in EVENTS:
        metrics(name, {})


def test_two_of_them_do_not_meet():
    one, other = Metrics(), Metrics()
    one("turn_started", {})
    assert samples(other)["makimono_turns_total", ()] == 0


def test_a_file_for_a_collector_is_written_whole(metrics, tmp_path):
    metrics("turn_started", {})
    metrics.write(tmp_path / "makimono.prom")
    assert (tmp_path / "makimono.prom").read_bytes() == metrics.text()
    assert [path.name for path in tmp_path.iterdir()] == ["makimono.prom"]


def test_a_port_answers_only_when_asked_for(metrics):
    threads = threading.active_count()
    port = metrics.serve(0)
    try:
        assert threading.active_count() == threads + 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert b"makimono_turns_total" in answer.read()
    finally:
        metrics.close()
    assert threading.active_count() == threads


def test_what_the_page_says_of_a_metric_is_what_is_served(metrics, events):
    """Each labelled metric has no sample before it is used: every event comes once, with every field."""
    fields = {"layers": {"working": 1}, "status": "ok", "seconds": 1.0, "latency_ms": 1, "tokens": 1}
    for name in EVENTS:
        events.emit(name, **fields)
    described = {one.name: one for one in metrics.described}
    assert len(described) == len(metrics.described)
    served = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    served = {name: family for name, family in served.items() if not name.endswith("_created")}
    for name, one in described.items():
        family = served.pop(name.removesuffix("_total"))
        assert (family.type, family.documentation) == (one.kind, one.meaning)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(one.labels), sample
            assert sample.name.startswith(name) or sample.name.endswith("_created")
        assert family.samples, f"no event is counted by {name}"
    assert served == {}, "every metric that is served is described"
