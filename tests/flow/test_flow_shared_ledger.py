"""Two daemons with a folder each, one PostgreSQL ledger and one project of a forge: each word of a person is obeyed once."""

from __future__ import annotations

from itertools import product

import pytest
import services
from flow_home import Held, do, finish, until, write
from forge_home import HOMES, TASK
from length import either


@pytest.fixture
def pair(kind, tmp_path):
    """(home, start): `start` starts both daemons."""
    with services.schema(tmp_path) as ledger:
        more = f"taskqueue: {{ledger: '{ledger}'}}\nscheduling: {{interval: 0.5, idle_interval: 0.5}}\n"
        home = HOMES[kind](tmp_path, {}, config=more)
        other = tmp_path / "other" / "config.yaml"
        other.parent.mkdir()
        other.write_text(home.flow.config.read_text())
        home.row = lambda: row(ledger)
        yield home, lambda: [home.flow.start("run"), home.flow.start("run", config=other)]
        home.close()


def row(ledger):
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(ledger, row_factory=dict_row) as connection:
        try:
            return connection.execute("SELECT * FROM tasks").fetchone() or {}
        except psycopg.errors.UndefinedTable:
            return {}


def told_once(home, key):
    until(lambda: home.row()["status"] == "stopped", "the stop")
    until(lambda: home.labels(key) == ["bug", "coding agent stopped"], "the label")
    until(lambda: home.own(key, "final"), "the last word")


@pytest.mark.parametrize(
    ("kind", "when"),
    either([("github", "running"), ("gitlab", "waiting")], list(product(["github", "gitlab"], ["running", "waiting"]))),
)
def test_of_two_daemons_on_one_ledger_one_obeys_a_stop(pair, when):
    home, start = pair
    held = Held(finish("Write a"))
    step = held if when == "running" else do("ask_user", question="Red or blue?")
    home.flow.plays[TASK] = [write("a.txt", "one\n"), step]
    key = home.issue("bug")
    daemons = start()
    if when == "running":
        held.arrived()
    else:
        until(lambda: home.row().get("status") == "paused", "the question")
        until(lambda: home.labels(key) == ["bug", "coding agent paused"], "its label")
    home.place.comment(key, "/stop")
    told_once(home, key)
    held.go()
    for daemon in daemons:
        daemon.terminate()
    texts = [daemon.communicate(timeout=60)[0] for daemon in daemons]
    assert [daemon.returncode for daemon in daemons] == [0, 0], texts
    told_once(home, key)
    assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1, texts
    assert "alice wrote /stop." in home.own(key, "progress")[0]
    assert len(home.row()["obeyed"].split()) == 1
    assert sum(text.count("task_started") for text in texts) == 1, texts
    assert home.pulls() == []
