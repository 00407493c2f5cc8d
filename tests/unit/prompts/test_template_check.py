"""Templates of people are refused with a clear reason, before they are used; samples are like the real values."""

import dataclasses
import time

import pytest

from agent import prompts
from agent.forge.base import IssueText, PullRef
from agent.prompts import rendering, sample_values
from agent.prompts.limited_environment import TEMPLATE_LIMIT
from agent.prompts.revision import TemplateRefused
from agent.prompts.sample_values import SAMPLES
from agent.prompts.template_check import check
from agent.work.changes import DiffStat
from agent.work.verify import Verdict
from agent.worker.delivery_report import Report
from agent.worker.outcome import StatusDecision


def attributes_of(kind):
    own = {name for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")}
    return own | {one.name for one in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("kind", "sample"),
    [
        (Report, sample_values.report()),
        (Report, sample_values.nothing_delivered()),
        (Verdict, sample_values.verdict()),
        (StatusDecision, sample_values.decision()),
        (IssueText, sample_values.ISSUE),
        (PullRef, sample_values.report().pull),
        (DiffStat, sample_values.report().stat),
    ],
)
def test_a_sample_has_exactly_the_attributes_of_the_real_value(kind, sample):
    assert set(vars(sample)) == attributes_of(kind)


@pytest.mark.parametrize("name", prompts.program_templates())
def test_each_template_of_the_program_has_samples_with_all_its_variables_and_is_good_itself(name):
    variables = prompts.describe(name)[1]
    for sample in SAMPLES[name]:
        assert {one.name for one in variables if not one.optional} <= set(sample)
    assert {one.name for one in variables} <= {key for sample in SAMPLES[name] for key in sample}
    assert check("own", {"name": name, "template": rendering.source(name)}, {})["name"] == name


def fields(name="system", template="You are a careful agent.", **more):
    return {"name": name, "template": template, **more}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (fields(template="{{ titel }}"), r"`titel` is not given to 'system'; its variables are none"),
        (fields("nudge", "{{ uuid }}"), "`uuid` is not given"),
        (fields("persona", "Judge it."), "no template 'persona'; known are .*system.*needs `variables`"),
        (fields("Persona"), "name 'Persona'; allowed are a small letter"),
        (fields("../x"), "name '../x'"),
        (fields(""), "name is required"),
        (fields(template="  \n"), "template is required, and is text; found an empty text"),
        (fields(template=5), "template is required, and is text; found the number '5'"),
        (fields(template="x" * (TEMPLATE_LIMIT + 1)), f"{TEMPLATE_LIMIT} are allowed"),
        (fields(template="a\ud800"), "half a surrogate pair"),
        (fields(template="a\0b"), "NUL"),
        (fields(template="{# nothing #}"), "its text is empty with every sample"),
        (fields(version=2), "version is text, in quotes"),
        (fields(ttl_seconds=0), "ttl_seconds is a number above 0"),
        (fields(ttl_seconds=True), "ttl_seconds is a number above 0"),
        (fields(ttl_seconds="5"), "ttl_seconds is a number above 0"),
        (fields(schema_ref="vote.schema.json"), "schema_ref 'vote.schema.json' was not found"),
        (fields(colour="red"), "'colour' is no field; allowed are name, version"),
        (fields(variables=["a"]), "variables is a mapping"),
        (fields(variables={"a": 1}), "variables is a mapping"),
        (fields("persona", "{{ a }}", variables={"b": "B"}), "uses `a`, which .*; `variables` names `b`, which"),
        (fields("briefing", "{{ title }}"), "'briefing' must show `body`"),
        (fields("text_tools", "{{ tools }}"), "must show `mark`"),
        (fields(template="{% if %}"), "line 1 of the template: Expected an expression"),
        (fields(template="a\n{{ 'a' | centre }}"), "line 2 of the template: No filter named 'centre'"),
        (fields(template="{% include 'system.md.j2' %}"), "include is not allowed"),
        (fields(template="{% extends 'system.md.j2' %}"), "extends is not allowed"),
        (fields(template="{% import 'a' as b %}x"), "import is not allowed"),
        (fields(template="{% block a %}x{% endblock %}"), "block is not allowed"),
        (fields(template="{% autoescape true %}x{% endautoescape %}"), "is not allowed"),
        (fields(template="{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"), "cannot be compiled"),
        (fields(template="{{ 'a' * 10 ** 9 }}"), "cannot be rendered with sample values: LimitExceeded"),
        (fields(template="{{ ''.__class__ }}"), "cannot be rendered with sample values: SecurityError"),
        (fields("fix", "{{ report.verdictt }}"), "no attribute 'verdictt'"),
        (fields("fix", "{{ report.verdict.command }}"), "None"),  # a sample without a verdict
        (fields("briefing", "{{ title }}{{ body }}{{ about }}"), "'about' is undefined"),  # optional
    ],
)
def test_a_wrong_template_is_refused_with_the_reason(given, why):
    with pytest.raises(TemplateRefused, match=why) as caught:
        check("/place/x.yaml", given, {})
    assert str(caught.value).startswith("/place/x.yaml")


@pytest.mark.parametrize(
    "given",
    [
        fields(),
        fields("persona", "{{ a | upper }}", variables={"a": "what it is"}, version="1", ttl_seconds=5),
        fields("briefing", "{{ title }}{{ body }}{{ about if about is defined }}"),
        fields("fix", "{{ report.verdict.command if report.verdict else 'no check' }}"),
        fields("nudge", "Again.", variables={}),
    ],
)
def test_a_good_template_is_taken(given):
    assert check("here", given, {}) == given


def test_a_template_that_is_slow_with_each_sample_is_refused_after_some_of_them(monkeypatch):
    monkeypatch.setattr("agent.prompts.template_check.SECONDS", 0.2)
    slow = "{% for i in range(3000) %}{{ loop.index }}{% endfor %}{{ outcome.end }}"
    started = time.thread_time()
    with pytest.raises(TemplateRefused, match=r"takes longer than 0\.2 s to render all samples"):
        check("here", fields("final", slow), {})
    assert time.thread_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "{{ summary | live }}",
        "{{ ('x' ~ summary) | live }}",
        "{{ (issue.title | line) | live }}",
        "{% set mention = summary %}{{ mention | live }}",
        "{% set a = summary %}{% set b = a %}{{ b | live }}",
        "{% for mention in [summary] %}{{ mention | live }}{% endfor %}",
        "{% macro m(mention) %}{{ mention | live }}{% endmacro %}{{ m(summary) }}",
        "{{ [summary] | map('live') | first }}",
        "{{ [summary] | map(key.task_id) | first }}",
        "{% filter live %}{{ summary }}{% endfilter %}",
        "{% set mention %}{{ summary }}{% endset %}{{ mention | live }}",
        "{% with mention = summary %}{{ mention | live }}{% endwith %}",
    ],
)
def test_text_of_a_model_or_an_issue_never_acts_on_the_forge(text):
    with pytest.raises(TemplateRefused, match="live is not allowed for"):
        check("here", fields("pull_request", text), {})


def test_what_the_programs_own_template_shows_live_may_be_live():
    check("here", fields("pull_request", "{{ (mention if mention is defined else 'x') | live }} {{ summary }}."), {})
    check("here", fields("final", "{% set a = facts.get('mention') %}{{ (a or '') | live }}{{ outcome.summary }}"), {})
