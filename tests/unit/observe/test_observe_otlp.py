"""The trace of a task: an HTTP server reads what the exporter sends with OpenTelemetry's own protobuf messages."""

import importlib.metadata
import logging
import socket
import sys
import threading
import time

import pytest
from otlp_receiver import SECRET, Receiver, attributes

from agent.config import load
from agent.errors import ConfigError
from agent.observe import otlp, traces
from agent.observe.events import Events
from agent.observe.traces import require_otlp, traced

UUID = "0c000000-0000-4000-8000-000000000003"


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()
    assert made.wrong == []


@pytest.fixture
def said():
    return []


@pytest.fixture
def events(said):
    return Events([lambda name, fields: said.append((name, dict(fields)))])


def play(events):
    """Two turns: one with a request that fails, is repeated and calls two tools, one that ends the task."""
    model = {"provider": "openai", "model": "gpt-4o"}
    events.emit("task_started", uuid=UUID, task="local:local/default#3", resumed=False, **model)
    events.emit("turn_started")
    events.emit("request_sent", purpose="turn", tokens=100, bytes=400, **model)
    failed = {"purpose": "turn", "status": "failed", "error": f"model_unreachable: {SECRET}", "prompt_tokens": 0}
    events.emit("request_failed", **failed, **model)
    events.emit("model_wait", retry=1, seconds=0.0, code="model_unreachable", why=SECRET, **model)
    counts = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60, "estimated": 0, "cost": 0.5}
    events.emit("answer_received", purpose="turn", finish_reason="tool_calls", seconds=0.1, **counts, **model)
    events.emit("tool_started", tool="read_file")
    events.emit("tool_finished", tool="read_file", seq=1, status="success", duration_ms=3)
    events.emit("tool_finished", tool="invented", seq=2, status="error", duration_ms=0)
    events.emit("tool_finished", tool=SECRET, seq=3, status="error", duration_ms=0)
    events.emit("compaction", strategy="mask", start_seq=1, end_seq=9, tokens_before=900, tokens_after=300)
    events.emit("turn_started")
    events.emit("request_sent", purpose="turn", tokens=100, bytes=400, **model)
    events.emit("answer_received", purpose="turn", finish_reason="stop", seconds=0.1, **counts, **model)
    events.emit("verify_started", command=SECRET)
    events.emit("task_ended", uuid=UUID, status="completed", end="finished", code="")


def test_the_log_of_the_library_goes_on_when_the_last_trace_has_ended(receiver, events):
    library = logging.getLogger("opentelemetry")
    with traced(receiver.address, UUID, 1, events):
        assert otlp.probe(receiver.address) == ""
        assert not library.propagate
    assert library.propagate


def test_a_task_is_one_trace_with_a_span_for_each_turn_request_and_tool_call(receiver, events, said, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20abc123")
    for attempt in (1, 2):
        with traced(receiver.address, UUID, attempt, events):
            play(events)
    assert not [name for name, _ in said if name in ("traces_lost", "listener_failed")]
    assert {head.get("Authorization") or head.get("authorization") for head in receiver.heads} == {"Bearer abc123"}
    spans = receiver.spans
    assert {span.trace_id.hex() for span in spans} == {UUID.replace("-", "")}
    roots = [span for span in spans if not span.parent_span_id]
    assert [attributes(one)["makimono.task.attempt"] for one in roots] == [1, 2]
    root = roots[0]
    assert root.name == "invoke_agent makimono"
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "makimono",
        "gen_ai.conversation.id": UUID,
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "makimono.task.uuid": UUID,
        "makimono.task.attempt": 1,
        "makimono.task.key": "local:local/default#3",
        "makimono.task.status": "completed",
    }
    turns = [span for span in spans if span.parent_span_id == root.span_id]
    assert [(one.name, attributes(one)["makimono.turn"]) for one in turns] == [("turn", 1), ("turn", 2)]
    first = [span for span in spans if span.parent_span_id == turns[0].span_id]
    assert [one.name for one in first] == [
        "chat gpt-4o",
        "chat gpt-4o",
        "execute_tool read_file",
        "execute_tool invented",
        "execute_tool other",
    ]
    broken, answered, read, invented, _ = first
    assert (broken.status.code, attributes(broken)["error.type"]) == (2, "model_unreachable")
    assert answered.start_time_unix_nano >= broken.end_time_unix_nano
    assert (
        attributes(answered).items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 60,
            "makimono.usage.cost": 0.5,
        }.items()
    )
    [reasons] = [one.value.array_value for one in answered.attributes if one.key == "gen_ai.response.finish_reasons"]
    assert [one.string_value for one in reasons.values] == ["tool_calls"]
    assert answered.kind == 3, "a client"
    assert attributes(read) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read_file",
        "gen_ai.tool.type": "function",
        "makimono.tool.number": 1,
    }
    assert (invented.status.code, attributes(invented)["error.type"]) == (2, "error")
    assert [one.name for one in turns[0].events] == ["model_wait", "compaction"]
    assert turns[0].end_time_unix_nano == max(one.end_time_unix_nano for one in first)
    assert all(one.start_time_unix_nano <= one.end_time_unix_nano for one in spans)
    version = importlib.metadata.version("opentelemetry-sdk")
    resource = receiver.resources[0]
    assert (resource["service.name"], resource["telemetry.sdk.version"]) == ("makimono", version)


def test_requests_and_tools_of_several_threads_are_not_mixed_up(receiver, events):
    """As reviewers send requests at the same time."""
    both = threading.Barrier(2)

    def ask(model):
        both.wait()
        events.emit("request_sent", purpose="review", provider="p", model=model)
        both.wait()
        events.emit("answer_received", purpose="review", provider="p", model=model, prompt_tokens=len(model))

    with traced(receiver.address, UUID, 1, events):
        threads = [threading.Thread(target=ask, args=(model,)) for model in ("a", "bbb")]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    chats = {
        one.name: attributes(one)["gen_ai.usage.input_tokens"]
        for one in receiver.spans
        if one.name != "invoke_agent makimono"
    }
    assert chats == {"chat a": 1, "chat bbb": 3}


def flood(events, count):
    """So many turns; returns the CPU time of this thread."""
    before = time.thread_time()
    for _ in range(count):
        events.emit("turn_started")
        events.emit("tool_started", tool="read_file")
        events.emit("tool_finished", tool="read_file", seq=1, status="success", duration_ms=1)
    return time.thread_time() - before


@pytest.mark.parametrize("what", ["away", "silent", "full"])
def test_an_endpoint_that_does_not_take_spans_costs_the_task_a_bounded_time_and_is_told_once(
    receiver, events, said, monkeypatch, what
):
    address = receiver.address
    monkeypatch.setattr(otlp, "EXPORT_SECONDS", 1.0)
    if what == "away":
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # a port on which nobody listens
            address = f"http://127.0.0.1:{taken.getsockname()[1]}"
            _lose(address, events)
    else:
        receiver.status = 503 if what == "full" else 200
        if what == "silent":
            receiver.gate.clear()
        _lose(address, events)
    lost = [fields for name, fields in said if name == "traces_lost"]
    assert len(lost) == 1
    assert lost[0]["endpoint"] == f"{address}/v1/traces"
    assert lost[0]["error"]
    assert not [name for name, _ in said if name == "listener_failed"]


def _lose(address, events):
    trace = otlp.TaskTrace(address, UUID, 1, events)
    events.on(trace)
    flood(events, 2 * otlp.QUEUE)
    [processor] = trace._provider._active_span_processor._span_processors
    assert len(processor._batch_processor._queue) <= otlp.QUEUE, "more than fits is dropped"
    events.off(trace)
    before = time.monotonic()
    trace.close()
    # the export that is under way, and the end; the machine of the tests may be slow
    assert time.monotonic() - before < otlp.END_SECONDS + 5


def test_nothing_is_imported_without_the_key(events):
    import subprocess

    code = (
        "import sys; from agent.observe.events import Events; from agent.observe.traces import traced, require_otlp\n"
        "require_otlp(None)\n"
        "import agent.worker.attempt\n"
        "with traced(None, 'u', 1, Events()): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    require_otlp("http://127.0.0.1:4318")
    there = traces.find_spec
    monkeypatch.setattr(traces, "find_spec", lambda name: None if ".exporter." in name else there(name))
    with pytest.raises(ConfigError, match=r"observe\.otlp: .* -m pip install opentelemetry-exporter-otlp-proto-http`"):
        require_otlp("http://127.0.0.1:4318")


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://otel.example.org/team", "https://otel.example.org/team/v1/traces"),
        ("https://otel.example.org/v1/traces", "https://otel.example.org/v1/traces"),
    ],
)
def test_the_path_of_the_protocol_is_added(address, sent):
    assert otlp.endpoint_of(address) == sent


@pytest.mark.parametrize("address", ["ftp://h", "h:4318", "http://user:pw@h", "https://h/?token=x"])
def test_another_address_or_a_secret_in_it_is_refused(tmp_path, address):
    (tmp_path / "config.yaml").write_text(f"observe: {{otlp: '{address}'}}\n")
    with pytest.raises(ConfigError, match="otlp") as refused:
        load(tmp_path / "config.yaml", environ={})
    assert "pw@" not in str(refused.value)


def test_the_headers_are_secrets(tmp_path):
    (tmp_path / "config.yaml").write_text("observe: {otlp: 'http://127.0.0.1:4318'}\n")
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc12345,x-team=team-key-9"}
    secrets = load(tmp_path / "config.yaml", environ=environ).secrets()
    assert {"abc12345", "Bearer abc12345", "team-key-9"} <= {str(one) for one in secrets}


def test_doctor_says_whether_the_endpoint_takes_spans(receiver, tmp_path):
    from agent.commands.doctor_traces import findings

    def look(address):
        (tmp_path / "config.yaml").write_text(f"observe: {{otlp: '{address}'}}\n")
        return [(state, found) for state, found, _ in findings(load(tmp_path / "config.yaml", environ={}))]

    assert look(receiver.address) == [("ok", f"{receiver.address}/v1/traces takes spans")]
    receiver.status = 401
    [(state, found)] = look(receiver.address)
    assert state == "warn"
    assert "401" in found or "Unauthorized" in found
    (tmp_path / "config.yaml").write_text("")
    assert list(findings(load(tmp_path / "config.yaml", environ={}))) == []
