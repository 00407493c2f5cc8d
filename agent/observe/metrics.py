"""Metrics in the format of Prometheus, which are counted from events; no port is opened unless `serve` is called.

`Metrics` is a listener for events. A daemon registers a `Metrics` for its own events and, through a `LogFollower`, for
the events of its workers. Each `Metrics` has a Prometheus registry of its own, so that two `Metrics` in one process
(tests, an embedding program) do not collide. Names of metrics follow the conventions of Prometheus
(prometheus.io/docs/practices/naming): base units as a suffix, `_total` for counters. Two names of metrics in
docs/design/assembler.md, section 0 are used unchanged; all other names begin with `makimono_`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, make_wsgi_app

from agent import durable_files
from agent.observe import gauges
from agent.observe.http_server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.observe.gauges import LedgerSnapshot

    Health = Callable[[], tuple[bool, bool, tuple[str, ...]]]

MOST_LABELS = 64
"""The maximum number of values of one label of a metric.

Further values count as `other`: a model may invent tool names, and each label value takes memory until the process
ends.
"""

LATENCY = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
TOKENS = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000)
SLOW = (1, 2, 5, 10, 30, 60, 300)
SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)


PAGE_WIDTH = 120
"""The maximum line length of docs/metrics.md."""


@dataclass(frozen=True, slots=True)
class Described:
    """One metric under the name that `GET /metrics` shows (the names of a histogram end in `_bucket`, `_sum` and
    `_count`)."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Metrics:
    """A listener that counts events as metrics; it is called with `(name, fields)`: `events.on(Metrics())`.

    `rows` is a function that reads the ledger for the gauges, at most once every few seconds; without it there are no
    gauges.
    """

    def __init__(self, rows: Callable[[], LedgerSnapshot] | None = None) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        self._seen: dict[str, set[str]] = {}
        histogram, counter = self._histogram, self._counter
        self.assembly = histogram("makimono_context_assembly_seconds", "Time to plan one request.", LATENCY)
        self.context_tokens = histogram("context_token_count", "Tokens of one request as planned.", TOKENS)
        self.layers = counter("memory_layer_usage", "Tokens sent, by layer.", "layer")
        self.turns = counter("makimono_turns", "Turns begun.")
        self.tools = counter("makimono_tool_calls", "Tool calls, by tool and status.", "tool", "status")
        self.tool_seconds = histogram("makimono_tool_seconds", "Time of one call.", SECONDS, "tool")
        self.tokens = counter("makimono_tokens", "Tokens of requests, as reported or else estimated.", "kind", "model")
        self.cost = counter(
            "makimono_cost", "Cost of requests with a price, in the currency of `llm.currency`.", "model"
        )
        self.requests = counter("makimono_requests", "Requests to models, by purpose and end.", "purpose", "status")
        self.answer_seconds = histogram("makimono_answer_seconds", "Time of one answer.", SECONDS, "model")
        self.waits = counter("makimono_model_waits", "Waits for a model's server, by reason.", "why")
        self.tasks = counter("makimono_tasks", "Runs that ended, by status.", "status")
        self.errors = counter("makimono_task_errors", "Runs that failed, by error code.", "code")
        self.queued = counter("makimono_tasks_queued", "Tasks put in the queue.")
        for name, meaning, labels in gauges.ALL:
            self.described.append(Described(name, "gauge", labels, meaning))
        if rows is not None:
            self.registry.register(gauges.Gauges(rows))
        self.died = counter("makimono_workers_died", "Workers that ended without closing their task.")
        self.compactions = counter("makimono_compactions", "Compactions, by strategy.", "strategy")
        self.effects = counter("makimono_effects", "Outside effects, by result.", "result")
        self.templates = counter("makimono_template_events", "Sets of templates taken or refused.", "result")
        self.memory_jobs = counter(
            "makimono_memory_jobs", "Extraction jobs of long-term memory that ended, by result.", "result"
        )
        self.deliberations = counter("makimono_deliberations", "Deliberations of reviewers, by decision.", "decision")
        self.asked_again = counter(
            "makimono_reviewer_retries", "Requests to reviewers that were sent again: no vote, or a wait.", "why"
        )
        self.reduced = counter(
            "makimono_reviewer_tokens_reduced", "Tokens of texts that were shortened for reviewers.", "when"
        )
        self.polls = counter("makimono_polls", "Polls, by source and result.", "source", "result")
        self.unwritable = counter(
            "makimono_repositories_unwritable", "Repositories in which changes of issues began to be refused.", "source"
        )
        self.pokes = counter("makimono_pokes", "Requests to poll at once, by result.", "result")
        self.slow = histogram("makimono_disk_slow_seconds", "Writes and syncs of a second or longer.", SLOW, "what")
        self.listeners = counter(
            "makimono_listener_failures", "Errors of listeners of events, in the daemon and in workers."
        )
        self._server: HttpServer | None = None

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.described.append(Described(f"{name}_total", "counter", labels, meaning))
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self.described.append(Described(name, "histogram", labels, meaning))
        return Histogram(name, meaning, labels, buckets=buckets, registry=self.registry)

    def __call__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Count one event; events and fields without a metric are ignored."""
        count = getattr(self, f"_on_{name.replace('.', '_')}", None)
        if count is not None:
            count(fields)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def write(self, path: Path) -> None:
        """Write all metrics to a file atomically (for a collector that reads files). Raises DiskError."""
        durable_files.write_file(path, self.text(), 0o644, sync=False)

    def serve(self, port: int, address: str = "127.0.0.1", health: Health | None = None) -> int:
        """Answer `GET /metrics` in a thread until `close`; returns the port (with `port` 0 a free port is chosen).

        `health` is a function that returns (live, ready, reasons). With `health`, the addresses `/live` and `/ready`
        are answered too, with 200 or 503 and a JSON object. Raises HostError when the port for metrics cannot be
        opened.
        """
        self._server = HttpServer("metrics", _Answers(make_wsgi_app(self.registry), health))
        return self._server.start(address, port)

    def close(self) -> None:
        """Stop the HTTP server for metrics."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _label(self, kind: str, value: Any) -> str:
        """The first 100 characters of `value` as a label of a metric, `unknown` for an empty value, or `other` if the
        value is new and the label has `MOST_LABELS` values already."""
        text = str(value or "unknown")[:100]
        seen = self._seen.setdefault(kind, set())
        if text not in seen and len(seen) >= MOST_LABELS:
            return "other"
        seen.add(text)
        return text

    def _on_context_assembled(self, fields: Mapping[str, Any]) -> None:
        if "latency_ms" in fields:
            self.assembly.observe(fields["latency_ms"] / 1000)
        if "tokens" in fields:
            self.context_tokens.observe(fields["tokens"])
        for layer, tokens in (fields.get("layers") or {}).items():
            self.layers.labels(self._label("layer", layer)).inc(tokens)

    def _on_turn_started(self, _fields: Mapping[str, Any]) -> None:
        self.turns.inc()

    def _on_tool_finished(self, fields: Mapping[str, Any]) -> None:
        tool = self._label("tool", fields.get("tool"))
        self.tools.labels(tool, self._label("tool status", fields.get("status"))).inc()
        self.tool_seconds.labels(tool).observe((fields.get("duration_ms") or 0) / 1000)

    def _request(self, fields: Mapping[str, Any], status: str) -> str:
        """Count one request to a model; returns the label of its model."""
        model = self._label("model", fields.get("model"))
        for kind in ("prompt", "completion", "cached"):
            self.tokens.labels(kind, model).inc(fields.get(f"{kind}_tokens") or 0)
        self.cost.labels(model).inc(max(0.0, float(fields.get("cost") or 0.0)))
        purpose = self._label("purpose", fields.get("purpose") or "turn")
        self.requests.labels(purpose, self._label("request status", status)).inc()
        return model

    def _on_request_failed(self, fields: Mapping[str, Any]) -> None:
        self._request(fields, str(fields.get("status")))

    def _on_answer_received(self, fields: Mapping[str, Any]) -> None:
        model = self._request(fields, "ok")
        if fields.get("seconds") is not None:
            self.answer_seconds.labels(model).observe(fields["seconds"])

    def _on_model_wait(self, fields: Mapping[str, Any]) -> None:
        self.waits.labels(self._label("why", fields.get("code") or fields.get("why"))).inc()

    def _on_task_queued(self, _fields: Mapping[str, Any]) -> None:
        self.queued.inc()

    def _on_task_ended(self, fields: Mapping[str, Any]) -> None:
        self.tasks.labels(self._label("status", fields.get("status"))).inc()
        if fields.get("status") == "failed":
            self.errors.labels(self._label("code", fields.get("code"))).inc()

    def _on_memory_extracted(self, _fields: Mapping[str, Any]) -> None:
        self.memory_jobs.labels("done").inc()

    def _on_memory_extraction_failed(self, fields: Mapping[str, Any]) -> None:
        self.memory_jobs.labels("failed" if fields.get("last") else "tried_again").inc()

    def _on_worker_died(self, _fields: Mapping[str, Any]) -> None:
        self.died.inc()

    def _on_compaction(self, fields: Mapping[str, Any]) -> None:
        self.compactions.labels(self._label("strategy", fields.get("strategy"))).inc()

    def _on_effect_done(self, _fields: Mapping[str, Any]) -> None:
        self.effects.labels("done").inc()

    def _on_effect_failed(self, _fields: Mapping[str, Any]) -> None:
        self.effects.labels("failed").inc()

    def _on_poll_finished(self, fields: Mapping[str, Any]) -> None:
        self.polls.labels(self._label("source", fields.get("source")), "finished").inc()

    def _on_poll_failed(self, fields: Mapping[str, Any]) -> None:
        self.polls.labels(self._label("source", fields.get("source")), "failed").inc()

    def _on_issue_unwritable(self, fields: Mapping[str, Any]) -> None:
        self.unwritable.labels(self._label("source", fields.get("source"))).inc()

    def _on_poked(self, _fields: Mapping[str, Any]) -> None:
        self.pokes.labels("taken").inc()

    def _on_poke_refused(self, _fields: Mapping[str, Any]) -> None:
        self.pokes.labels("refused").inc()

    def _on_template_reloaded(self, _fields: Mapping[str, Any]) -> None:
        self.templates.labels("reloaded").inc()

    def _on_template_reload_failed(self, _fields: Mapping[str, Any]) -> None:
        self.templates.labels("reload_failed").inc()

    def _on_template_render_failed(self, _fields: Mapping[str, Any]) -> None:
        self.templates.labels("render_failed").inc()

    def _on_deliberation_ended(self, fields: Mapping[str, Any]) -> None:
        self.deliberations.labels(self._label("decision", fields.get("decision"))).inc()
        self.asked_again.labels("no_vote").inc(fields.get("no_votes") or 0)
        self.asked_again.labels("wait").inc(fields.get("waits") or 0)
        self.reduced.labels("before").inc(fields.get("tokens_before") or 0)
        self.reduced.labels("after").inc(fields.get("tokens_after") or 0)

    def _on_disk_slow(self, fields: Mapping[str, Any]) -> None:
        self.slow.labels(self._label("what", fields.get("what"))).observe(fields.get("seconds") or 0)

    def _on_listener_failed(self, _fields: Mapping[str, Any]) -> None:
        self.listeners.inc()


class _Answers:
    """The WSGI application: answers with the metrics and the health of the daemon."""

    def __init__(self, metrics: Any, health: Health | None) -> None:
        self.metrics = metrics
        self.health = health

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if self.health is None or path not in ("/live", "/ready"):
            return self.metrics(environ, start_response)
        live, ready, why = self.health()
        well = live if path == "/live" else ready
        status = "200 OK" if well else "503 Service Unavailable"
        start_response(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
        return [orjson.dumps({"live": live, "ready": ready, "why": why})]


def markdown() -> str:
    """The text of docs/metrics.md."""
    return _HEAD + "".join(_item(one) for one in Metrics().described)


def _item(metric: Described) -> str:
    labels = f"; labels {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    text = f"- `{metric.name}` ({metric.kind}{labels}): {metric.meaning}"
    return (
        textwrap.fill(text, PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    )


_HEAD = f"""\
# Metrics

`./main.py run --metrics PORT` answers `GET http://127.0.0.1:PORT/metrics` in Prometheus' text format, for one daemon
and the workers that it started. `/live` and `/ready` beside it answer with 200 or 503 and a JSON object with the
reason ([operations](operations.md#health)). Without the option no port is opened.

Counters and histograms are made from the [events](events.md), and start from zero with each daemon. Gauges are read
from the ledger at each request, so every daemon reports the tasks of all hosts. A histogram `NAME` has the series
`NAME_bucket` (with the label `le`), `NAME_sum` and `NAME_count`. A label has at most {MOST_LABELS} values; further
ones count as `other`. Names follow the conventions of Prometheus: `promtool check metrics` has no remark.
[grafana_dashboard.json](grafana_dashboard.json) shows them ([operations](operations.md#grafana)).
This page is made from the program (`scripts/write_docs.py`).

"""
