"""The pages over each kind of ledger: the same lists, and a connection that cannot write."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import services
from cli_home import Home
from cut_line import CutLine
from flow_home import until

from agent.config import load
from agent.dashboard import ledger_reader
from agent.dashboard.health_page import HealthPage
from agent.dashboard.ledger_reader import LedgerReader
from agent.dashboard.pages import Pages
from agent.dashboard.task_list import SORTS, TaskListQuery
from agent.dashboard.watcher import ChangeWatcher
from agent.errors import MakimonoError
from agent.store import postgres
from agent.store.configured_ledger import LedgerKind


@contextmanager
def ledger_of(name, folder):
    """The settings of a home with a ledger of the kind `name`, and 60 queued tasks in it."""
    home = Home(folder)
    if name == "sqlite":
        settings = home.settings
        fill(settings)
        yield settings
        return
    with services.schema(folder) as address:
        home.config.write_text(home.config.read_text() + f"taskqueue: {{ledger: '{address}'}}\n")
        settings = load(home.config, environ={})
        fill(settings)
        yield settings


def fill(settings):
    ledger = LedgerKind.from_settings(settings).open()
    key = {"task_source": "github", "instance": "github.com", "owner": "o", "repo": "r", "task_type": "issue"}
    for number in range(60):
        ledger.enqueue({**key, "task_id": str(number)}, title=f"100% of Task_{number}", user="alice")
    ledger.close()


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_every_list_and_the_health_page_work_on_every_ledger(name, tmp_path):
    with ledger_of(name, tmp_path / "h") as settings:
        reader = LedgerReader(settings)
        pages = Pages(settings, reader)
        for sort in SORTS:
            for order in ("asc", "desc"):
                found = pages.tasks(TaskListQuery.from_parameters({"sort": sort, "order": order, "page": "2"}))
                assert (found["problems"], len(found["tasks"]), found["total"]) == ([], 10, 60)
        found = pages.tasks(
            TaskListQuery.from_parameters({"text": "100% of task_7", "repository": "o/r", "status": "queued"})
        )
        assert [one["title"] for one in found["tasks"]] == ["100% of Task_7"]
        view = HealthPage(settings, reader).view()
        assert view["problems"] == []
        assert view["groups"][0]["count"] == 60
        assert view["ledger"] == LedgerKind.from_settings(settings).where
        task = pages.task(found["tasks"][0]["uuid"], "timeline", {})
        assert task["task"]["title"] == "100% of Task_7"
        with reader.ledger() as ledger, pytest.raises(MakimonoError):
            ledger.enqueue(ledger.get(found["tasks"][0]["uuid"]).key.to_dict() | {"task_id": "999"})
        assert pages.tasks(TaskListQuery())["total"] == 60
        watcher = ChangeWatcher(settings, reader, None)
        assert [watcher._find_changes(set())[0] for _ in range(3)] == [False, False, False]
        ledger = LedgerKind.from_settings(settings).open()
        ledger.request(found["tasks"][0]["uuid"], "pause")
        ledger.close()
        assert [watcher._find_changes(set())[0] for _ in range(2)] == [True, False]
        watcher._drop()
        reader.close()


def test_a_server_that_is_away_gives_a_page_with_the_reason(tmp_path):
    home = Home(tmp_path / "h")
    address = "postgresql://someone:a-password-of-the-test@127.0.0.1:9/none"
    home.config.write_text(home.config.read_text() + f"taskqueue: {{ledger: '{address}'}}\n")
    settings = load(home.config, environ={})
    found = Pages(settings, LedgerReader(settings)).tasks(TaskListQuery())
    assert found["tasks"] == []
    assert "127.0.0.1:9" in found["problems"][0]
    assert "a-password" not in found["problems"][0]


def test_for_a_server_that_takes_connections_and_answers_nothing_only_one_reader_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_reader, "TURN_SECONDS", 0.2)
    home = Home(tmp_path / "h")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/none"
        home.config.write_text(home.config.read_text() + f"taskqueue: {{ledger: '{address}'}}\n")
        settings = load(home.config, environ={})
        pages = Pages(settings, LedgerReader(settings))
        started = time.monotonic()
        assert {pages.tasks(TaskListQuery())["problems"][0] for _ in range(50)} == {f"{address} does not answer"}
        assert time.monotonic() - started < 5


def test_a_server_that_stops_during_a_statement_holds_no_reader_and_not_the_end_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_reader, "TURN_SECONDS", 0.2)
    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT", 2)
    with ledger_of("postgresql", tmp_path / "h") as settings:
        server = urlsplit(settings.taskqueue.ledger)
        with CutLine(server.hostname, server.port) as line, ThreadPoolExecutor(1) as pool:
            address = server._replace(netloc=server.netloc.replace(f":{server.port}", f":{line.port}")).geturl()
            queue = settings.taskqueue.model_copy(update={"ledger": address})
            reader = LedgerReader(settings.model_copy(update={"taskqueue": queue}))
            pages = Pages(reader.settings, reader)
            assert pages.tasks(TaskListQuery())["problems"] == []
            line.silence()
            first = pool.submit(pages.tasks, TaskListQuery())
            until(reader._lock.locked, "the begin of the first reader", 20)
            assert "does not answer" in pages.tasks(TaskListQuery())["problems"][0]
            assert first.result(30)["problems"]
            reader.close()
