"""Random kill -9 of daemons and workers: nothing is lost, nothing runs twice at once, no effect happens twice.

Two hundred tasks and two minutes with each set of back ends in the long form.  A seed is printed with the table;
`MAKIMONO_SEED=N` chooses it, which makes the kills the same and not the moments at which they hit.
"""

import os
import random

import psycopg
import pytest
import services
from chaos import HEAD, Chaos
from length import either
from psycopg.rows import dict_row

SEED = int(os.environ.get("MAKIMONO_SEED") or random.SystemRandom().randrange(10**6))
TASKS = either(4, 200)
SECONDS = either(5, 120)
AT_ONCE = either(3, 10)
LEAST = either(3, 40)


@pytest.fixture
def judge(capsys):
    """Print the line of the table, then judge it."""

    def judged(told):
        with capsys.disabled():
            print(f"\n{HEAD}\n{told}")
        where = f"{told.name}, MAKIMONO_SEED={told.seed}"
        assert not told.spoilt, f"{where}: the program was changed while it ran, so run it again: {told.spoilt}"
        for what in ("lost", "twice", "effects", "unreadable"):
            found = getattr(told, what)
            assert not found, f"{where}: {what}: {len(found)}\n" + "\n".join(map(str, found[:20]))
        assert told.once == told.tasks
        assert told.workers > 0
        assert told.daemons + told.workers >= LEAST, f"{where}: hardly anything was killed"

    return judged


def shared(ledger):
    """The rows in PostgreSQL."""

    def rows():
        with psycopg.connect(ledger, row_factory=dict_row) as connection:
            try:
                return connection.execute("SELECT * FROM tasks").fetchall()
            except psycopg.errors.UndefinedTable:
                return []

    return rows


def test_sqlite_alone(tmp_path, judge):
    judge(Chaos(tmp_path, "SQLite", tasks=TASKS, seed=SEED, least=LEAST, at_once=AT_ONCE).run(SECONDS))


def test_two_hosts_with_rabbitmq_and_postgresql(tmp_path, judge):
    with services.queue(services.RABBITMQ) as broker, services.schema(tmp_path) as ledger:
        chaos = Chaos(
            tmp_path,
            "RabbitMQ, PostgreSQL, 2 hosts",
            tasks=TASKS,
            seed=SEED,
            least=LEAST,
            hosts=2,
            at_once=AT_ONCE,
            taskqueue=f"taskqueue: {{ledger: '{ledger}', broker: '{broker}'}}\n",
            rows=shared(ledger),
        )
        judge(chaos.run(SECONDS))


def test_two_hosts_with_redis_that_repeats_after_5_s_and_tasks_of_12_s(tmp_path, judge):
    with services.queue(services.REDIS, "visibility_timeout=5") as broker, services.schema(tmp_path) as ledger:
        chaos = Chaos(
            tmp_path,
            "Redis (5 s), PostgreSQL, 2 hosts, 12 s",
            tasks=TASKS,
            seed=SEED,
            least=LEAST,
            hosts=2,
            at_once=AT_ONCE,
            latency=2.0,
            command=2,
            taskqueue=f"taskqueue: {{ledger: '{ledger}', broker: '{broker}'}}\n",
            rows=shared(ledger),
        )
        judge(chaos.run(SECONDS))
