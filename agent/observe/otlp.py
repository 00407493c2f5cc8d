"""Makes OpenTelemetry spans of the events of one attempt of a task, and exports them by OTLP/HTTP.

An attempt has these spans: `invoke_agent makimono` for the attempt, below it one `turn` for each turn, below these
`chat MODEL` for each request to a model and `execute_tool TOOL` for each tool call. The trace id is the uuid of the
task, so the attempts of a task, on any host, are one trace. Names and attributes of spans follow the semantic
conventions for generative AI where these have one (github.com/open-telemetry/semantic-conventions, "Semantic
Conventions for Generative AI", the pages of spans and of agent spans); attributes of this program begin with
`makimono.`. Spans contain no text of a message, an argument or a result.

A batch processor of the OpenTelemetry SDK exports the spans in a thread of its own. The queue of spans is bounded: if
it is full, since the endpoint is unreachable or slow, spans are dropped and the task does not wait. `otlp.py` is
imported only when `observe.otlp` is set (`traces.py`).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from agent import __version__
from agent.registry import without

# the packages that detect encodings take memory and are not used (as in llm/transport.py)
with without("chardet", "charset_normalizer"):
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from agent.observe.events import Events

PATH = "/v1/traces"
QUEUE, BATCH = 2048, 256
"""The maximum number of spans that wait for their export, and of spans in one request."""
EXPORT_SECONDS = 5.0
"""The maximum seconds that one export of spans may take, with its repetitions."""
END_SECONDS = 3.0
"""The maximum seconds for which the end of an attempt waits for the export of its last spans."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ENDS_TURN = ("verify_started", "sent_back", "task_ended", "task_paused", "task_failed")
"""Events after which no further request or tool call belongs to the last turn."""
_TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CODE = re.compile(r"([a-z][a-z0-9_]{1,40})(?::|$)")


def endpoint_of(address: str) -> str:
    """The address to which spans are sent: `/v1/traces` is added unless the path ends with it."""
    base = address.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def exporter_of(address: str) -> OTLPSpanExporter:
    """An exporter of spans to the endpoint; the library itself reads the variables OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_EXPORTER_OTLP_CERTIFICATE and the like."""
    session = requests.Session()
    session.trust_env = urlsplit(address).hostname not in LOOPBACK
    return OTLPSpanExporter(endpoint=endpoint_of(address), timeout=EXPORT_SECONDS, session=session)


def probe(address: str) -> str:
    """Send an empty export of spans; returns the error, "" if the endpoint has accepted it."""
    heard = _Heard()
    exporter = exporter_of(address)
    try:
        done = exporter.export([])
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
        heard.close()
    return "" if done is SpanExportResult.SUCCESS else heard.last or "it took no spans"


class TaskTrace:
    """A listener of events that makes the spans of one attempt; `close` ends them. Several threads may emit events."""

    def __init__(self, address: str, uuid: str, attempt: int, events: Events) -> None:
        self._heard = _Heard()
        self._lock = threading.Lock()
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "makimono", "service.version": __version__}),
            id_generator=_OfTask(uuid),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_events=64, max_span_attributes=32, max_span_attribute_length=200),
        )
        reporting = _Reporting(exporter_of(address), lambda: self._announce_lost_spans(address, events))
        self._provider.add_span_processor(
            BatchSpanProcessor(reporting, max_queue_size=QUEUE, max_export_batch_size=BATCH)
        )
        self._tracer = self._provider.get_tracer("makimono", __version__)
        self._told = False
        self._turns = 0
        self._turn: Span | None = None
        self._turn_until = 0  # the end of the newest span in the present turn, in nanoseconds since the epoch
        # thread → its open request to a model, or its open tool call; a thread has at most one of each
        self._requests: dict[int, Span] = {}
        self._tools: dict[int, Span] = {}
        # Thread → the time at which its next request begins, after a request that failed.
        self._begins: dict[int, int] = {}
        self._attempt = self._tracer.start_span(
            "invoke_agent makimono",
            kind=SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "makimono",
                "gen_ai.conversation.id": uuid,
                "makimono.task.uuid": uuid,
                "makimono.task.attempt": attempt,
            },
        )

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Begin, change or end the spans that one event concerns; an event that concerns no span is ignored."""
        found = getattr(self, f"_on_{name}", None)
        with self._lock:
            if name in ENDS_TURN:
                self._end_turn()
            if found is not None:
                found(fields)

    def close(self) -> None:
        """End all spans, and wait at most END_SECONDS for their export; spans that are not exported by then are
        lost."""
        with self._lock:
            for span in (*self._requests.values(), *self._tools.values()):
                span.end()
            self._requests.clear()
            self._tools.clear()
            self._end_turn()
            self._attempt.end()
        # `shutdown` waits for a running export; the thread is a daemon thread, so it does not prevent the end of the
        # process
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(END_SECONDS)
        self._heard.close()

    def _announce_lost_spans(self, address: str, events: Events) -> None:
        """Emit the event `traces_lost`, at most once for this exporter."""
        if not self._told:
            self._told = True
            events.emit("traces_lost", endpoint=endpoint_of(address), error=self._heard.last or "the export failed")

    # --- the events -------------------------------------------------------------------------------------------

    def _on_task_started(self, fields: Mapping[str, Any]) -> None:
        self._attempt.set_attributes(_texts({"makimono.task.key": fields.get("task")}) | _model(fields))

    def _on_turn_started(self, _fields: Mapping[str, Any]) -> None:
        self._end_turn()
        self._turns += 1
        self._turn = self._tracer.start_span(
            "turn", context=set_span_in_context(self._attempt), attributes={"makimono.turn": self._turns}
        )

    def _on_request_sent(self, fields: Mapping[str, Any]) -> None:
        self._requests[threading.get_ident()] = self._request(fields, None)

    def _on_answer_received(self, fields: Mapping[str, Any]) -> None:
        span = self._ended_request(fields)
        if fields.get("finish_reason"):
            span.set_attribute("gen_ai.response.finish_reasons", [str(fields["finish_reason"])])
        self._end_span(span)

    def _on_request_failed(self, fields: Mapping[str, Any]) -> None:
        span = self._ended_request(fields)
        found = _CODE.match(str(fields.get("error") or ""))
        _fail(span, found[1] if found else str(fields.get("status") or "error"))
        self._end_span(span)
        self._begins[threading.get_ident()] = time.time_ns()

    def _on_model_wait(self, fields: Mapping[str, Any]) -> None:
        seconds = float(fields.get("seconds") or 0.0)
        self._begins[threading.get_ident()] = time.time_ns() + round(seconds * 1e9)
        code = str(fields.get("code") or fields.get("why") or "")
        (self._turn or self._attempt).add_event("model_wait", {"makimono.code": code, "makimono.seconds": seconds})

    def _on_tool_started(self, fields: Mapping[str, Any]) -> None:
        self._tools[threading.get_ident()] = self._tool(fields)

    def _on_tool_finished(self, fields: Mapping[str, Any]) -> None:
        # a tool call that is refused has no event `tool_started`
        span = self._tools.pop(threading.get_ident(), None) or self._tool(fields)
        if type(fields.get("seq")) is int:
            span.set_attribute("makimono.tool.number", fields["seq"])
        if (status := str(fields.get("status") or "success")) != "success":
            _fail(span, status)
        self._end_span(span)

    def _on_compaction(self, fields: Mapping[str, Any]) -> None:
        names = ("tokens_before", "tokens_after")
        sizes = {f"makimono.{name}": fields[name] for name in names if type(fields.get(name)) is int}
        (self._turn or self._attempt).add_event(
            "compaction", _texts({"makimono.strategy": fields.get("strategy")}) | sizes
        )

    def _on_task_ended(self, fields: Mapping[str, Any]) -> None:
        status = str(fields.get("status") or "")
        self._attempt.set_attributes(_texts({"makimono.task.status": status, "makimono.task.code": fields.get("code")}))
        if status == "failed":
            _fail(self._attempt, str(fields.get("code") or "failed"))

    def _on_task_paused(self, _fields: Mapping[str, Any]) -> None:
        self._attempt.set_attribute("makimono.task.status", "paused")

    def _on_task_requeued(self, _fields: Mapping[str, Any]) -> None:
        self._attempt.set_attribute("makimono.task.status", "queued")

    # --- spans ------------------------------------------------------------------------------------------------

    def _request(self, fields: Mapping[str, Any], start: int | None) -> Span:
        said = {"gen_ai.operation.name": "chat", "makimono.request.purpose": fields.get("purpose")}
        return self._child(f"chat {fields.get('model') or ''}".strip(), SpanKind.CLIENT, said, fields, start)

    def _tool(self, fields: Mapping[str, Any]) -> Span:
        tool = str(fields.get("tool") or "")
        tool = tool if _TOOL.fullmatch(tool) else "other"  # a model may write anything as the name of a tool
        said = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
        return self._child(f"execute_tool {tool}", SpanKind.INTERNAL, said)

    def _child(
        self,
        name: str,
        kind: SpanKind,
        said: Mapping[str, Any],
        fields: Mapping[str, Any] | None = None,
        start: int | None = None,
    ) -> Span:
        return self._tracer.start_span(
            name[:200],
            context=set_span_in_context(self._turn or self._attempt),
            kind=kind,
            attributes=_texts(said) | _model(fields or {}),
            start_time=None if start is None else min(start, time.time_ns()),
        )

    def _ended_request(self, fields: Mapping[str, Any]) -> Span:
        """The span of the request that this thread has just finished, with the request's token counts; a repeated
        request has no `request_sent` of its own, so its span begins after the wait that followed the last failure."""
        thread = threading.get_ident()
        begins = self._begins.pop(thread, None)
        span = self._requests.pop(thread, None) or self._request(fields, begins)
        counts = {
            "gen_ai.usage.input_tokens": "prompt_tokens",
            "gen_ai.usage.output_tokens": "completion_tokens",
            "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
            "gen_ai.usage.reasoning.output_tokens": "reasoning_tokens",
            "makimono.usage.estimated_tokens": "estimated",
        }
        for attribute, name in counts.items():
            if type(fields.get(name)) is int:
                span.set_attribute(attribute, fields[name])
        if fields.get("cost"):
            span.set_attribute("makimono.usage.cost", float(fields["cost"]))
        return span

    def _end_span(self, span: Span) -> None:
        self._turn_until = time.time_ns()
        span.end(self._turn_until)

    def _end_turn(self) -> None:
        """End the span of the turn at the end of its newest request or tool call; later work does not belong to the
        turn."""
        if self._turn is not None:
            self._turn.end(self._turn_until or None)
        self._turn, self._turn_until = None, 0


def _texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def _model(fields: Mapping[str, Any]) -> dict[str, Any]:
    return _texts({"gen_ai.provider.name": fields.get("provider"), "gen_ai.request.model": fields.get("model")})


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


class _OfTask(IdGenerator):
    """An id generator that uses the uuid of the task as trace id; span ids are random."""

    def __init__(self, uuid: str) -> None:
        self._trace_id = UUID(uuid).int
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        return self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        return self._trace_id


class _Reporting(SpanExporter):
    """An exporter that calls `failed` after an export that the endpoint has not accepted."""

    def __init__(self, inner: SpanExporter, failed: Callable[[], None]) -> None:
        self._inner = inner
        self._failed = failed

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        done = self._inner.export(spans)
        if done is not SpanExportResult.SUCCESS:
            self._failed()
        return done

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


class _Heard(logging.Handler):
    """A log handler that catches the log lines of the OpenTelemetry library, which would otherwise go to stderr; `last`
    is the newest line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self._logger = logging.getLogger("opentelemetry")
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().split())[:300]

    def close(self) -> None:
        self._logger.removeHandler(self)
        if not any(isinstance(one, _Heard) for one in self._logger.handlers):
            self._logger.propagate = True
        super().close()
