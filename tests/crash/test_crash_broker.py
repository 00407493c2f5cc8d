"""The message stays with the broker until its worker has the row: a daemon that dies before loses nothing and repeats
nothing.

The claim, and nothing else, is held up by a lock, so that the daemon is killed between the start of the worker and its
claim.  A lock on the row would hold nothing up: the daemon passes over a row that it cannot reserve.
"""

import signal

import psycopg
import pytest
import services
from flow_home import FlowHome, finish, finished, until, write
from psycopg.rows import dict_row

from agent.daemon.broker_client import message_of
from agent.taskqueue import LEDGERS
from agent.taskqueue.broker import make_broker
from agent.values import TaskKey


@pytest.fixture
def broker():
    with services.queue(services.RABBITMQ) as address:
        made = make_broker(address)
        made.connect()
        yield address, made
        made.close()


@pytest.fixture
def home(tmp_path, broker):
    with services.schema(tmp_path) as ledger:
        made = FlowHome(tmp_path, {"Write": [write("done.txt"), finish()]})
        more = f"taskqueue: {{ledger: '{ledger}', broker: '{broker[0]}'}}\nscheduling: {{max_workers: 1}}\n"
        made.config.write_text(made.config.read_text() + more)
        for number in (1, 2):
            made.issue(number, "Write", labels="[coding agent processing]")
        yield made, ledger
        made.close()


def ask(ledger, query, *values):
    with psycopg.connect(ledger, row_factory=dict_row, autocommit=True) as connection:
        return connection.execute(query, values).fetchone()


HOLD = """
CREATE FUNCTION wait_before_a_claim() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema())); RETURN NEW; END $$;
CREATE TRIGGER held BEFORE UPDATE OF attempt ON tasks FOR EACH ROW EXECUTE FUNCTION wait_before_a_claim()
"""
WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE %s AND datname = current_database()
"""


def test_a_daemon_that_dies_before_the_claim_leaves_the_message_and_a_second_one_starts_nothing_twice(home, broker):
    home, address = home
    broker = broker[1]
    ledger = LEDGERS.load("postgresql")(home.contexts, address)

    def put(number):
        return ledger.enqueue(TaskKey("local", "local", "default", "issue", number, str(home.folder / "tracker")))

    first = put("1")
    [row] = ledger.publish(1)
    broker.publish(message_of(row))
    with psycopg.connect(address, autocommit=True) as setting:
        setting.execute(HOLD)
    with psycopg.connect(address) as held:
        held.execute("SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
        daemon = home.start("run", "--role", "worker")
        until(lambda: ask(address, WAITING, "%attempt = attempt + 1%"), "a claim that waits")
        second = put("2")
        there = set()

        def arrived(*uuids):
            found = broker.get()
            there.update([found.uuid] if found else [])
            return there.issuperset(uuids)

        # The message itself, not the mark in its row, which comes first: a daemon killed between the two sends nothing.
        until(lambda: arrived(second), "the second message")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        until(lambda: arrived(first, second), "that both messages are there", 20)
        broker.close()  # they come again

    def done():
        rows = [ledger.get(uuid) for uuid in (first, second)]
        return all(row.status == "completed" for row in rows) and rows

    other = home.start("run", "--role", "worker")
    try:
        rows = until(done, "that both are done")
        assert [row.attempt for row in rows] == [1, 1], "the second delivery started nothing"
        assert len(home.branches()) == 3
        assert len(home.pulls()) == 2
    finally:
        other.send_signal(signal.SIGTERM)
        finished(other)
        ledger.close()
