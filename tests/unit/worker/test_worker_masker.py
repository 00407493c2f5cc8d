"""A process has one masker: a secret that it learns late is masked from then on in everything that it writes."""

import ast
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

import agent
from agent import clock
from agent.commands.doctor import examine
from agent.config import settings_of
from agent.context import TaskContextManager
from agent.issue.publish_filter import PublishFilter
from agent.observe import log
from agent.observe.events import Events
from agent.security.redact import AFTERWARDS, SHORTEST, Redactor, masker_of
from agent.tools import Toolbox
from agent.values import End, Outcome, Usage
from agent.wiring.wiring import Wiring

SECRET = "ghs_LearntLate0123456789abcdefghijkl"
KEY = {"task_source": "local", "instance": "t", "owner": "o", "repo": "r", "task_type": "issue", "task_id": "1"}
UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def here(tmp_path):
    """The parts of a process that write, all of them made before anybody learns a secret."""
    settings = settings_of(
        {
            "context_storage": {"base_dir": str(tmp_path / f"contexts-{SECRET}"), "durability": "none"},
            "llm": {"provider": "openai", "openai": {"model": "m", "context_length": 8192, "api_key": "key-declared"}},
        }
    )
    with closing(Wiring(settings)) as wiring, TaskContextManager(KEY, str(uuid4()), settings) as context:
        place = context.context_dir
        (place / "read.txt").write_text(f"it is {SECRET}\n")
        tools = Toolbox(
            root=place, context_dir=place, run=None, redact=wiring.redact, clean=str, lookup=lambda _seq: None
        )
        log.setup(tmp_path / "worker.log", redact=wiring.redact, stderr=False)
        store = context.get_message_store()
        store.add_message("system", "You help.")
        store.add_message("user", "Do it.")
        door = PublishFilter.for_task(settings, Events(), "forge.example")
        yield SimpleNamespace(
            settings=settings, wiring=wiring, context=context, store=store, tools=tools, door=door, top=tmp_path
        )
        log.close()


def in_the_log(here):
    log.get("forge").info("told", why=f"refused {SECRET}")
    return (here.top / "worker.log").read_text()


def newest(here, seq):
    (line,) = [record for record in here.store.records() if record["seq"] == seq]
    return str(line)


def in_row_and_folder(here):
    row = here.wiring.ledger.get(here.context.uuid)
    return str(row) + (here.context.context_dir / "end.json").read_text()


def in_a_message(here):
    seq = here.store.add_message("user", f"Use {SECRET}.")
    return newest(here, seq)


def in_a_call(here):
    seq = here.store.add_message(
        "assistant", "", tool_calls=[{"id": "c1", "name": "x", "arguments": {"a": [SECRET], SECRET: 1}}]
    )
    return newest(here, seq)


def in_a_field_of_the_server(here):
    fields = {"message": {"reasoning": f"It is {SECRET}."}}
    seq = here.store.add_message("assistant", "Yes.", provider_fields=fields)
    return newest(here, seq)


def in_a_summary(here):
    here.store.add_message("assistant", "One.")
    seq = here.store.add_message("user", "Two.")
    carried = {"plan": f"use {SECRET}"}
    here.store.compact(
        strategy="summary", end_seq=seq - 1, summary=f"Used {SECRET}.", summary_tokens=3, carried=carried
    )
    names = ("summaries", "compactions", "messages", "current")
    return "".join((here.context.context_dir / f"{name}.jsonl").read_text() for name in names)


def in_a_record_of_a_tool(here):
    here.context.get_tool_store().add_tool_call("x", {"a": SECRET}, f"got {SECRET}", "error", 1, f"no {SECRET}")
    return str(here.context.get_tool_store().last())


def in_a_result_of_a_tool(here):
    return here.tools.run("read_file", {"path": "read.txt"}).content


def in_a_request(here):
    requests = here.context.get_request_store()
    begun = requests.begin(purpose="turn", provider="openai", model="m", tokens=1)
    requests.end(begun, status="error", usage=Usage(1), error=f"401 {SECRET}")
    return requests.path.read_text()


def in_the_row(here):
    here.context.fail(f"no {SECRET}")
    return in_row_and_folder(here)


def in_the_row_of_a_stopped_task(here):
    here.context.stopped(f"no {SECRET}")
    return in_row_and_folder(here)


def in_a_comment(here):
    outcome = Outcome(End.ASKED, summary=f"Is it {SECRET}?")
    return here.door.render("final", outcome=outcome, report=None, uuid=UUID, facts={})


def in_a_title(here):
    return here.door.title(f"Use {SECRET}")


def in_a_comment_of_a_copy_of_the_settings(here):
    copy = here.settings.model_copy(update={"task_sources": ()})
    return PublishFilter.for_task(copy, Events(), "forge.example").title(f"Use {SECRET}")


def in_what_doctor_finds(here):
    for check in examine(lambda _complete: here.settings):
        if check.name == "base_dir":
            return check.found + check.advice
    raise AssertionError


OUTLETS = [
    *(in_the_log, in_a_message, in_a_call, in_a_field_of_the_server, in_a_summary, in_a_record_of_a_tool),
    *(in_a_result_of_a_tool, in_a_request, in_the_row, in_the_row_of_a_stopped_task, in_a_comment, in_a_title),
    *(in_a_comment_of_a_copy_of_the_settings, in_what_doctor_finds),
]


@pytest.mark.parametrize("outlet", OUTLETS, ids=lambda outlet: outlet.__name__)
def test_a_secret_that_is_learnt_late_is_masked_wherever_it_is_written(here, outlet):
    masker_of(here.settings).learn(SECRET)
    written = outlet(here)
    assert SECRET not in written
    assert "***" in written


@pytest.fixture
def frozen():
    """Time that moves only when somebody waits."""
    with clock.use(clock.FakeClock()) as fake:
        yield fake


PUBLISHED = (in_a_comment, in_a_title, in_a_comment_of_a_copy_of_the_settings)
"""Where tokens are masked for their shape alone."""


@pytest.mark.parametrize("outlet", [one for one in OUTLETS if one not in PUBLISHED], ids=lambda one: one.__name__)
def test_it_stands_there_before_it_is_learnt(here, outlet):
    """Or the test above would say nothing."""
    assert SECRET in outlet(here)


def test_half_of_a_secret_that_is_learnt_late_is_not_published(here):
    secret = "Correct-Horse-Battery-Staple-4711"
    half = secret[: len(secret) * 2 // 3]
    assert half in here.door.title(half)
    masker_of(here.settings).learn(secret)
    assert half not in here.door.title(half)


def test_copies_of_the_settings_have_one_masker_and_another_configuration_has_its_own(here):
    copy = here.settings.model_copy(update={"task_sources": ()})
    assert masker_of(copy) is masker_of(here.settings) is here.wiring.redact is here.door.redact is here.store.redact
    other = settings_of({})
    assert masker_of(other) is not masker_of(here.settings)
    assert "key-declared" in masker_of(here.settings).secrets
    assert "key-declared" not in masker_of(other).secrets


def test_what_a_copy_of_the_settings_declares_is_masked_everywhere(here):
    queue = here.settings.taskqueue.model_copy(update={"broker": "redis://:pass-of-the-broker@localhost/0"})
    masker_of(here.settings.model_copy(update={"taskqueue": queue}))
    assert here.store.redact("it is pass-of-the-broker") == "it is ***"


def test_a_token_is_masked_until_a_day_after_its_end(frozen):
    masker = Redactor(["declared-for-good"])
    masker.learn("first-token", until=clock.now() + timedelta(hours=1))
    frozen.sleep(3600 + AFTERWARDS.total_seconds() - 60)
    masker.learn("second-token", until=clock.now() + timedelta(hours=1))
    assert masker("first-token second-token declared-for-good") == "*** *** ***"
    frozen.sleep(120)
    masker.learn("third-token", until=clock.now() - timedelta(days=400))  # by a clock that goes wrong
    assert masker("first-token second-token third-token") == "first-token *** ***"
    assert masker("declared-for-good") == "***"


def test_what_is_learnt_for_good_stays_although_it_was_a_token_before(frozen):
    masker = Redactor()
    masker.learn("some-token", until=clock.now())
    masker.learn("some-token")
    masker.learn("some-token", until=clock.now())
    frozen.sleep(2 * AFTERWARDS.total_seconds())
    masker.learn("another-one")
    assert masker("some-token") == "***"
    masker.learn("x" * (SHORTEST - 1))
    assert masker("x" * (SHORTEST - 1)) == "x" * (SHORTEST - 1)


def test_a_masker_is_made_in_one_place():
    top = Path(agent.__file__).parent
    made = [
        (path.relative_to(top).as_posix(), node.lineno)
        for path in top.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Redactor"
    ]
    assert [path for path, _ in made] == ["security/redact.py"], "others ask masker_of(settings), or are given one"
