"""Metrics from events, read back as Prometheus reads them."""

import re
import shutil
import subprocess
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent import clock
from agent.errors import LedgerError
from agent.observe import gauges
from agent.observe.events import EVENTS, Events
from agent.observe.gauges import KEPT_SECONDS, MOST_HOSTS, LedgerSnapshot, RateLimit, RowGroup
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
    assert found["makimono_context_assembly_seconds_sum", ()] == 0.0125
    assert found["context_token_count_sum", ()] == 5000
    assert found["memory_layer_usage_total", ("working",)] == 4000
    assert found["memory_layer_usage_total", ("system",)] == 1000


def test_sets_of_templates_are_counted_by_result(metrics, events):
    for name, times in (("template.reloaded", 2), ("template.reload_failed", 1), ("template.render_failed", 3)):
        for _ in range(times):
            events.emit(name)
    found = metrics.text().decode()
    for result, times in (("reloaded", 2), ("reload_failed", 1), ("render_failed", 3)):
        assert f'makimono_template_events_total{{result="{result}"}} {times}.0' in found


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


GROUPS = (
    RowGroup("queued", "", 3, 40.0),
    RowGroup("queued", "a", 1, 90.0),
    RowGroup("running", "a", 2, 7.5),
    RowGroup("completed", "b", 9, None),
)


def test_gauges_tell_states_ages_and_hosts_when_somebody_asks():
    found = samples(Metrics(lambda: LedgerSnapshot(GROUPS, 2)))
    assert found["makimono_rows", ("", "queued")] == 3
    assert found["makimono_rows", ("a", "queued")] == 1
    assert found["makimono_rows", ("a", "running")] == 2
    assert found["makimono_rows", ("b", "completed")] == 9
    assert found["makimono_rows", ("", "paused")] == 0, "an alert on a missing series says nothing"
    assert [found["makimono_oldest_seconds", (status,)] for status in ("queued", "running", "paused")] == [90, 7.5, 0]
    assert found["makimono_workers", ()] == 2
    assert found["makimono_ledger_up", ()] == 1


def test_of_a_ledger_that_is_away_only_that_is_told_and_the_rest_of_the_page_stays():
    def away():
        raise LedgerError("the ledger is away")

    found = samples(Metrics(away))
    assert found["makimono_ledger_up", ()] == 0
    assert not [name for name, _ in found if name in ("makimono_rows", "makimono_oldest_seconds", "makimono_workers")]
    assert ("makimono_turns_total", ()) in found


def test_the_ledger_is_not_asked_by_everybody_who_asks():
    asked = []
    with clock.use(clock.FakeClock()) as time:
        metrics = Metrics(lambda: asked.append(1) or LedgerSnapshot(GROUPS, 2))
        assert asked == []
        for _ in range(5):
            metrics.text()
        assert len(asked) == 1
        time.move(KEPT_SECONDS)
        metrics.text()
    assert len(asked) == 2


def test_a_fleet_of_many_hosts_costs_no_more_series():
    many = tuple(RowGroup("running", f"host{number:04}", 1, 1.0) for number in range(3 * MOST_HOSTS))
    found = samples(Metrics(lambda: LedgerSnapshot(many, 0)))
    rows = {labels: value for (name, labels), value in found.items() if name == "makimono_rows"}
    assert len(rows) == MOST_HOSTS + 1 + 2
    assert rows["other", "running"] == 2 * MOST_HOSTS


FULL = LedgerSnapshot(
    GROUPS, 2, waiting={"worker": 1}, limits=(RateLimit("api.github.com", "core", 7, 60),), disk=(1, 2), jobs=3
)
"""A snapshot from which every gauge has a sample."""

ABBREVIATED = ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")
OTHER_UNITS = (
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "megabytes",
    "bits",
)


def lint(family):
    """What `promtool check metrics` says of a family: the validations of promlint in github.com/prometheus/client_golang
    (prometheus/testutil/promlint/validations)."""
    name, kind = family.name, family.type
    shown = f"{name}_total" if kind == "counter" else name
    parts = shown.lower().split("_")
    if not family.documentation:
        yield "no help text"
    if kind != "counter" and shown.endswith("_total"):
        yield 'non-counter metrics should not have "_total" suffix'
    if kind not in ("histogram", "summary") and shown.endswith(("_bucket", "_count", "_sum")):
        yield "reserved suffix"
    if ":" in shown:
        yield "metric names should not contain ':'"
    if shown != shown.lower() or any(label != label.lower() for one in family.samples for label in one.labels):
        yield "metric names should be written in 'snake_case' not 'camelCase'"
    if set(parts[1:]) & {"counter", "gauge", "histogram", "summary", "untyped"}:
        yield "metric name should not include type"
    if set(parts[1:]) & set(ABBREVIATED):
        yield "metric names should not contain abbreviated units"
    if set(parts) & set(OTHER_UNITS):
        yield "use base unit"
    reserved = {"le", "quantile"} if kind not in ("histogram", "summary") else set()
    if any(set(one.labels) & reserved for one in family.samples):
        yield "reserved label"


def test_promtool_and_the_conventions_have_nothing_to_say():
    text = Metrics(lambda: FULL).text().decode()
    families = list(text_string_to_metric_families(text))
    assert {one.name for one in families} >= {named[0] for named in gauges.ALL}
    assert [(family.name, said) for family in families for said in lint(family)] == []
    if (promtool := shutil.which("promtool")) is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))
    counters = [
        line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ") and line.endswith("counter")
    ]
    assert all(name.endswith("_total") for name in counters)


LINE = re.compile(
    r"# HELP (?P<helped>[a-z_]+) [^\n]+|# TYPE (?P<typed>[a-z_]+) (counter|gauge|histogram)"
    r"|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(\{(?P<labels>[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*)\})?'
    r" (?P<value>[+-]?(\d+(\.\d+)?(e[+-]\d+)?|Inf|NaN))"
)
"""A line of the text format 0.0.4, as docs/metrics.md promises it: names and labels in lower case, no timestamp."""
ODD = ('a "quoted" word', "back\\slash", "two\nlines", "ends in \\", "日本語", '{a="b"} 7', "# TYPE x counter", " ")


def test_the_page_is_the_text_format_line_by_line_also_with_odd_labels(metrics, events):
    for tool in ODD:
        events.emit("tool_finished", tool=tool, status="success", duration_ms=1)
    text = metrics.text().decode()
    assert text.endswith("\n")
    said, seen, current = [], {}, ""
    for line in text.removesuffix("\n").split("\n"):
        found = LINE.fullmatch(line)
        assert found, f"no line of the format: {line!r}"
        if found["helped"]:
            current = found["helped"]
            said.append(("HELP", current))
        elif found["typed"]:
            assert found["typed"] == current, "HELP goes before TYPE"
            said.append(("TYPE", current))
        else:
            assert found["name"].startswith(current), "the samples of a metric stand together"
            series = found["name"], found["labels"]
            assert series not in seen, f"{series} stands twice"
            seen[series] = found["value"]
    assert len(said) == len(set(said)), "HELP and TYPE once each"
    tools = {labels[0] for name, labels in samples(metrics) if name == "makimono_tool_seconds_sum"}
    assert tools == set(ODD), "labels come back as they were"


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
    threads = set(threading.enumerate())
    port = metrics.serve(0)
    try:
        assert len(set(threading.enumerate()) - threads) == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert b"makimono_turns_total" in answer.read()
    finally:
        metrics.close()
    for thread in set(threading.enumerate()) - threads:  # that of the request ends a moment after its answer
        thread.join(10)
    assert set(threading.enumerate()) <= threads


def test_what_the_page_says_of_a_metric_is_what_is_served():
    """Each labelled metric has no sample before it is used: every event comes once, with every field."""
    metrics = Metrics(lambda: FULL)
    events = Events([metrics])
    fields = {"layers": {"working": 1}, "status": "ok", "seconds": 1.0, "latency_ms": 1, "tokens": 1}
    for name in EVENTS:
        events.emit(name, **fields)
    events.emit("task_ended", **fields | {"status": "failed"})
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


def test_deliberations_are_counted_with_what_was_asked_again_and_shortened():
    metrics = Metrics()
    fields = {"why": "", "no_votes": 2, "waits": 1, "tokens_before": 900, "tokens_after": 300}
    for decision in ("APPROVED", "FAILED_SAFE", "APPROVED"):
        metrics("deliberation_ended", {"decision": decision, **fields})
    found = metrics.text().decode()
    assert 'makimono_deliberations_total{decision="APPROVED"} 2.0' in found
    assert 'makimono_reviewer_retries_total{why="no_vote"} 6.0' in found
    assert 'makimono_reviewer_retries_total{why="wait"} 3.0' in found
    assert 'makimono_reviewer_tokens_reduced_total{when="before"} 2700.0' in found
    assert 'makimono_reviewer_tokens_reduced_total{when="after"} 900.0' in found
