"""docs/grafana_dashboard.json: it names metrics that exist, with labels that they have, and follows Grafana's schema."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

from agent.daemon.task_reasons import REASONS
from agent.observe.metrics import Metrics

DOCS = Path(__file__).parents[2] / "docs"
PATH = DOCS / "grafana_dashboard.json"

REF = {
    "type": "object",
    "required": ["type", "uid"],
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "additionalProperties": False,
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "gridPos", "datasource", "targets", "fieldConfig", "options"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "timeseries"},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "datasource": REF,
        "gridPos": {
            "type": "object",
            "required": ["h", "w", "x", "y"],
            "properties": {
                "h": {"type": "integer", "minimum": 1},
                "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "x": {"type": "integer", "minimum": 0, "exclusiveMaximum": 24},
                "y": {"type": "integer", "minimum": 0},
            },
            "additionalProperties": False,
        },
        "fieldConfig": {
            "type": "object",
            "required": ["defaults", "overrides"],
            "properties": {
                "defaults": {
                    "type": "object",
                    "properties": {
                        "color": {
                            "type": "object",
                            "properties": {
                                "mode": {
                                    "enum": [
                                        *("thresholds", "palette-classic", "palette-saturated"),
                                        *("continuous-GrYlRd", "fixed"),
                                    ]
                                }
                            },
                        },
                        "unit": {"enum": ["short", "s", "bytes", "percentunit", "currencyUSD"]},
                    },
                },
                "overrides": {"type": "array"},
            },
        },
        "options": {"type": "object"},
        "targets": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["refId", "expr", "datasource", "legendFormat"],
                "properties": {"datasource": REF, "expr": {"type": "string", "minLength": 1}},
            },
        },
    },
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "required": ["editable", "graphTooltip", "schemaVersion", "panels", "title", "uid", "templating"],
    "properties": {
        "id": {"type": "null"},
        "uid": {"type": "string", "minLength": 8, "maxLength": 40},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "timezone": {"enum": ["browser", "utc"]},
        "editable": {"type": "boolean"},
        "graphTooltip": {"enum": [0, 1, 2]},
        "time": {"type": "object", "required": ["from", "to"], "additionalProperties": {"type": "string"}},
        "timepicker": {"type": "object"},
        "fiscalYearStartMonth": {"type": "integer", "minimum": 0, "exclusiveMaximum": 12},
        "weekStart": {"type": "string"},
        "refresh": {"type": "string"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "version": {"type": "integer", "minimum": 0},
        "panels": {"type": "array", "items": PANEL},
        "templating": {
            "type": "object",
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "type"],
                        "properties": {
                            "type": {
                                "enum": [
                                    *("query", "adhoc", "constant", "datasource"),
                                    *("interval", "textbox", "custom", "system"),
                                ]
                            },
                            "hide": {"enum": [0, 1, 2]},
                        },
                    },
                }
            },
        },
        "annotations": {"type": "object"},
        "links": {"type": "array"},
    },
    "additionalProperties": False,
}
"""The parts of Grafana's schema of a classic dashboard that this one uses: kinds/dashboard/dashboard_kind.cue in
github.com/grafana/grafana (there `schemaVersion` is 36; Grafana migrates a dashboard of an older version)."""

FUNCTIONS = {"max", "min", "sum", "by", "increase", "rate", "histogram_quantile"}


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(PATH.read_text())


@pytest.fixture(scope="module")
def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_it_follows_the_schema_and_no_panels_overlap(dashboard):
    jsonschema.validate(dashboard, SCHEMA)
    cells = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        cells |= taken
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


def test_every_metric_and_label_in_its_expressions_exists(dashboard, expressions):
    labels = {}
    for one in Metrics().described:
        names = [one.name]
        if one.kind == "histogram":
            names = [f"{one.name}_{part}" for part in ("bucket", "sum", "count")]
        labels |= {name: {*one.labels, "job", "instance", "le"} for name in names}
    [job] = [one for one in dashboard["templating"]["list"] if one["name"] == "job"]
    named = set()
    for expression in [*expressions, job["definition"].removeprefix("label_values(").removesuffix(", job)")]:
        plain = re.sub(r'"[^"]*"', '""', expression)
        metrics = re.findall(r"\b(?:makimono|context|memory)_\w+", plain)
        assert metrics, expression
        assert set(metrics) <= labels.keys(), expression
        known = set.union(*(labels[name] for name in metrics))
        used = {
            *re.findall(r"(\w+)\s*(?:=~|!=|=)", plain),
            *re.findall(r"\w+", ",".join(re.findall(r"by \(([^)]*)\)", plain))),
        }
        assert used <= known, expression
        words = set(re.findall(r"[a-z_]+", re.sub(r"\[\d+[mhd]\]", "", plain)))
        assert words - set(metrics) - known <= FUNCTIONS, expression
        named |= set(metrics)
    wanted = (
        *("makimono_rows", "makimono_waiting_tasks", "makimono_cost_total", "makimono_tokens_total"),
        *("makimono_task_errors_total", "makimono_answer_seconds_bucket", "makimono_forge_remaining_requests"),
        *("makimono_disk_free_bytes", "makimono_memory_waiting_jobs"),
    )
    assert set(wanted) <= named


def test_prometheus_reads_its_expressions(expressions, tmp_path):
    """By a file of rules, which promtool parses as Prometheus does."""
    if (promtool := shutil.which("promtool")) is None:
        reason = "promtool is not here (Debian's package prometheus)"
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"{reason}, and CI is set")
        pytest.skip(reason)
    rules = [
        {"record": f"test:expression:{number}", "expr": one.replace("$job", "makimono")}
        for number, one in enumerate(expressions)
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.json")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_operations_names_it_and_every_reason():
    page = (DOCS / "operations.md").read_text()
    assert "(grafana_dashboard.json)" in page
    assert [code for code in REASONS if f"`{code}`" not in page] == []
