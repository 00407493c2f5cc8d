"""A mistake of this program is no fault of something else: it is raised, or its traceback is in the log, wherever every
error of a tool, a layer, a server or an item counts as a failure of that one."""

import json
from types import SimpleNamespace

import pytest

from agent import clock
from agent.daemon.daemon import Daemon
from agent.daemon.supervisor import Supervisor
from agent.errors import BrokerAway, ConfigError, MemoryUnavailable
from agent.extraction import job as extraction_job
from agent.forge.answer_reader import TIME, fault_in
from agent.memory.log import Entry
from agent.memory.log_projection import LogProjection
from agent.observe import log
from agent.registry import Registry
from agent.security.redact import Redactor
from agent.security.sanitise import output
from agent.tools import Toolbox
from agent.tools.read_file import ReadFile
from agent.window import recall_layers
from agent.window.carry_over import CarryOver


def typo(*_arguments, **_keywords):
    """What a misspelt name of a method does."""
    return object().no_such_method


@pytest.fixture
def bugs(tmp_path):
    """The lines `bug` of the log, as a function."""
    path = tmp_path / "bugs.log"
    log.setup(path, stderr=False)

    def found():
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == "bug"]

    yield found
    log.setup(None)


def test_a_mistake_in_a_tool_has_its_traceback_in_the_log(tmp_path, monkeypatch, bugs):
    monkeypatch.setattr(ReadFile, "run", typo)
    box = Toolbox(root=tmp_path, context_dir=tmp_path, run=None, redact=Redactor(), clean=output, lookup={}.get)
    result = box.run("read_file", {"path": "a"})
    assert "AttributeError" in result.content, "the model may try another tool"
    [bug] = bugs()
    assert bug["item"] == "read_file"
    assert "in typo" in bug["exception"]


def test_a_mistake_in_a_layer_of_memory_has_its_traceback_in_the_log(bugs):
    found = recall_layers.recall_memories({"own": SimpleNamespace(recall=typo)}, "query", 5, 1000, len)
    assert "AttributeError" in found.missing["own"]
    [bug] = bugs()
    assert bug["item"] == "own"


def test_a_mistake_that_became_an_error_of_a_server_is_found_by_its_cause(bugs):
    try:
        try:
            typo()
        except AttributeError as cause:
            raise BrokerAway("the broker does not answer") from cause
    except BrokerAway as error:
        log.mistake("broker", "redis://localhost", error)
    log.mistake("broker", "redis://localhost", BrokerAway("the broker does not answer"))
    [bug] = bugs()
    assert "in typo" in bug["exception"]


def test_a_mistake_of_an_extraction_has_its_traceback_in_the_log(place, bugs):
    here = place()
    here.row(1)
    [row] = here.ledger.list()
    ends = []
    store = SimpleNamespace(jobs=SimpleNamespace(end=lambda *found: ends.append(found)))
    job = SimpleNamespace(id="j")
    try:
        typo()
    except AttributeError as error:
        extraction_job._record_failed_try(here.wiring, store, job, row, 1, error)
    assert ends[0][0] == "j"
    [bug] = bugs()
    assert bug["item"] == row.uuid


def test_an_entry_of_the_log_of_memory_that_meets_a_mistake_has_a_traceback(bugs):
    views = object.__new__(LogProjection)
    views._operations = {"used": typo}
    with pytest.raises(MemoryUnavailable, match="entry 3 of the log"):
        views.apply(Entry(number=3, operation="used", subject="", at="", reason="", who="", payload={}))
    assert len(bugs()) == 1


@pytest.mark.parametrize("step", ["changes", "text"])
def test_a_mistake_in_the_view_of_the_work_tree_ends_the_compaction(step):
    work = SimpleNamespace(**{step: typo})
    carried = CarryOver(SimpleNamespace(last_seq=5), work=work)
    with pytest.raises(AttributeError):
        carried._changes_now() if step == "changes" else carried._content("a.py")


def test_a_mistake_in_a_poller_is_no_lost_notice(place):
    here = place()
    daemon = Daemon(here.settings, here.events)
    daemon.notices = SimpleNamespace(fileno=lambda: 0, poll=lambda: True, close=lambda: None)
    daemon.pollers = SimpleNamespace(wake_all=typo)
    daemon.waker = SimpleNamespace(wait=lambda *_: True)
    with pytest.raises(AttributeError):
        daemon._wait(Supervisor(here.wiring), once=False)
    assert here.named("notices_lost") == []


def test_a_mistake_where_times_are_read_is_no_odd_answer(monkeypatch):
    assert fault_in(5, TIME, "at") == "the field `at` must be a time, and is 5"
    monkeypatch.setattr(clock, "parse", typo)
    with pytest.raises(AttributeError):
        fault_in("2026-01-31T09:15:00Z", TIME, "at")


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("agent.values:Nothing", AttributeError),
        ("agent.no_such_module:Thing", ModuleNotFoundError),
        ("no_such_package:Thing", ConfigError),
    ],
)
def test_an_own_adapter_that_cannot_be_imported_is_a_mistake_and_a_missing_package_is_not(target, error):
    with pytest.raises(error):
        Registry("task source", {"one": target}).load("one")
