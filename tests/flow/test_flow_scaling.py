"""Two daemons of different base_dirs, one ledger in PostgreSQL, and a broker between them.

One only polls and queues, the other only works.  Each task is done once and its effects happen once, although the broker
repeats everything; a broker that is away holds nobody up.
"""

import json
import signal
from itertools import product
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import services
from cut_line import CutLine
from flow_home import FlowHome, finished, until
from length import either
from psycopg.rows import dict_row

from agent.llm.replay_server import ReplayServer
from agent.taskqueue.broker import make_broker

BROKERS = {"rabbitmq": services.RABBITMQ, "redis": services.REDIS}
TASKS = range(1, 7)
AT_ONCE = 3


def said(*calls):
    """One recorded answer."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in calls
        ],
    }


RECORDING = [
    said(("write_file", {"path": "done.txt", "content": "x\n"})),
    said(("finish", {"title": "Done", "summary": "It is done."})),
]


@pytest.fixture(scope="module")
def model():
    with ReplayServer.serve(RECORDING) as server:
        yield server


class Hosts:
    """`here` polls, `there` works: two configurations, one tracker, one ledger, one broker."""

    def __init__(self, home, ledger, broker, scheduling=""):
        self.home = home
        self.ledger = ledger
        text = home.config.read_text()
        text = text.replace("tracker: tracker", f"tracker: {home.folder}/tracker")
        text = text.replace("repos/default.git", f"{home.folder}/repos/default.git")
        text += f"taskqueue: {{ledger: '{ledger}', broker: '{broker}'}}\nscheduling: {{max_workers: {AT_ONCE}{scheduling}}}\n"
        self.here = home.config
        self.there = home.folder / "there" / "config.yaml"
        self.there.parent.mkdir()
        for path in (self.here, self.there):
            path.write_text(text)

    def start(self, config, *args):
        self.home.config = config
        return self.home.start("run", *args)

    def rows(self):
        with psycopg.connect(self.ledger, row_factory=dict_row) as connection:
            try:
                return connection.execute("SELECT * FROM tasks ORDER BY task_id").fetchall()
            except psycopg.errors.UndefinedTable:
                return []


@pytest.mark.parametrize("name", BROKERS)
def test_tasks_of_one_host_are_done_once_by_another(tmp_path, model, name):
    with services.queue(BROKERS[name]) as address, services.schema(tmp_path) as ledger:
        home = FlowHome(tmp_path, url=model.url)
        hosts = Hosts(home, ledger, address)
        broker = make_broker(address)
        try:
            for number in TASKS:
                home.issue(number, f"Short task {number}")
            producer = hosts.start(hosts.here, "--role", "producer")
            until(lambda: len(hosts.rows()) == len(TASKS) and all(row["published_at"] for row in hosts.rows()))
            broker.connect()
            assert {row["status"] for row in hosts.rows()} == {"queued"}
            for row in [*hosts.rows(), *hosts.rows()]:
                broker.publish({"uuid": row["uuid"]})  # a broker that says everything three times
            broker.publish({"uuid": str(uuid4())})  # and speaks of what nobody knows
            worker = hosts.start(hosts.there, "--role", "worker")
            until(lambda: all(row["status"] == "completed" for row in hosts.rows()), "the end of six tasks")
            until(lambda: broker.depth() == 0, "an empty queue")
            for daemon in (worker, producer):
                daemon.send_signal(signal.SIGTERM)
            texts = [finished(daemon) for daemon in (producer, worker)]
            assert [producer.returncode, worker.returncode] == [0, 0], texts
            assert not any("Traceback" in text for text in texts), texts
            broker.connect()
            left = broker.depth()
            assert left <= AT_ONCE, f"{left} of 19: all were acknowledged but those that the worker had just fetched"

            rows = hosts.rows()
            assert [row["attempt"] for row in rows] == [1] * len(TASKS)
            assert [row["deaths"] for row in rows] == [0] * len(TASKS)
            uuids = {row["uuid"] for row in rows}
            assert {path.name for path in (hosts.there.parent / "contexts" / "completed").iterdir()} == uuids
            assert not list((hosts.there.parent / "contexts" / "running").iterdir())
            assert not (hosts.here.parent / "contexts" / "completed").exists()
            assert not (hosts.here.parent / "contexts" / "tasks.db").exists()
            assert not (hosts.there.parent / "contexts" / "tasks.db").exists()
            assert len(home.branches()) == 1 + len(TASKS)
            assert len(home.pulls()) == len(TASKS)
            for number in TASKS:
                assert len(home.said(number)) == 1
                assert len(home.progress(number)) == 1
                assert home.label(number) == "coding agent done"
            home.config = hosts.here
            listed = json.loads(home.run("tasks", "--json", code=0)[1])
            assert {task["uuid"] for task in listed} == uuids
        finally:
            home.close()
            broker.close()


def test_a_broker_that_is_away_holds_nobody_up(tmp_path, model):
    home = FlowHome(
        tmp_path, url=model.url, config="taskqueue: {broker: 'amqp://guest:not-told-to-anyone@127.0.0.1:1/'}\n"
    )
    try:
        home.issue(1, "Short task 1")
        daemon = home.start("run")
        until(lambda: home.row(1).get("status") == "completed")
        daemon.send_signal(signal.SIGTERM)
        text = finished(daemon)
        assert daemon.returncode == 0, text
        assert "not-told-to-anyone" not in text
        assert "does not answer" in text
    finally:
        home.close()


@pytest.mark.parametrize("kind", either(["Loses"], ["Loses", "Repeats", "Reorders"]))
def test_a_broker_that_keeps_no_promise_costs_nothing_but_time(tmp_path, model, kind):
    config = f"taskqueue: {{broker: 'tests.unreliable:{kind}'}}\nscheduling: {{max_workers: 2, interval: 1}}\n"
    home = FlowHome(tmp_path, url=model.url, config=config)
    home.pin(f"tests.unreliable:{kind}")
    numbers = range(1, 6)
    try:
        for number in numbers:
            home.issue(number, f"Short task {number}")
        daemon = home.start("run")
        until(
            lambda: sum(row["status"] == "completed" for row in home.rows().values()) == len(numbers),
            "the end of all",
            300,
        )
        daemon.send_signal(signal.SIGTERM)
        text = finished(daemon)
        assert daemon.returncode == 0, text
        assert "broker_connected" in text
        assert {row["attempt"] for row in home.rows().values()} == {1}
        assert len(home.pulls()) == len(numbers)
        for number in numbers:
            assert len(home.said(number)) == len(home.progress(number)) == 1
    finally:
        home.close()


def test_each_role_does_its_part_once(tmp_path, model):
    home = FlowHome(tmp_path, url=model.url)
    try:
        home.issue(1, "Short task 1")
        home.run("run", "--once", "--role", "producer", code=0)
        assert home.row(1)["status"] == "queued"
        home.run("run", "--once", "--role", "worker", code=0)
        assert home.row(1)["status"] == "completed"
        assert home.run("run", "--role", "boss")[0] == 2
    finally:
        home.close()


@pytest.mark.parametrize(
    ("name", "way"), either([("rabbitmq", "silence"), ("redis", "cut")], list(product(BROKERS, ["cut", "silence"])))
)
def test_a_broker_that_is_lost_in_mid_run_and_comes_back_loses_and_repeats_nothing(tmp_path, model, name, way):
    """Tasks that come before, during and after the outage are done once each, by a daemon that only works."""
    parts = urlsplit(BROKERS[name])
    with (
        CutLine(parts.hostname, parts.port) as line,
        services.queue(BROKERS[name]) as address,
        services.schema(tmp_path) as ledger,
    ):
        home = FlowHome(tmp_path, url=model.url)
        hosts = Hosts(home, ledger, address.replace(f":{parts.port}", f":{line.port}"), ", interval: 1")

        def completed(count):
            until(lambda: sum(row["status"] == "completed" for row in hosts.rows()) == count, f"{count} of the tasks")

        try:
            producer = hosts.start(hosts.here, "--role", "producer")
            worker = hosts.start(hosts.there, "--role", "worker")
            home.issue(1, "Short task 1")
            completed(1)
            assert line.connections >= 2
            getattr(line, way)()
            for number in (2, 3):
                home.issue(number, f"Short task {number}")
            completed(3)
            line.mend()
            before = line.connections
            until(lambda: line.connections >= before + 2, "both daemons are connected again")
            for number in (4, 5):
                home.issue(number, f"Short task {number}")
            completed(5)
            for daemon in (worker, producer):
                daemon.send_signal(signal.SIGTERM)
            texts = [finished(daemon) for daemon in (producer, worker)]
            assert [producer.returncode, worker.returncode] == [0, 0], texts
            assert not any("Traceback" in text for text in texts), texts
            assert all(text.count("broker_connected") >= 2 and "broker_away" in text for text in texts), texts
            assert [(row["attempt"], row["deaths"]) for row in hosts.rows()] == [(1, 0)] * 5
            assert len(home.pulls()) == 5
            for number in range(1, 6):
                assert len(home.said(number)) == len(home.progress(number)) == 1
        finally:
            home.close()
