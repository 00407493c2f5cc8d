"""The contract of `agent/taskqueue/broker.py`, run against RabbitMQ and Redis."""

import time
from uuid import uuid4

import pytest
import services

from agent.errors import BrokerAway, ConfigError
from agent.taskqueue.broker import KombuBroker, make_broker

ADDRESSES = {"rabbitmq": services.RABBITMQ, "redis": services.REDIS}


@pytest.fixture(params=ADDRESSES)
def address(request):
    """A queue of its own."""
    with services.queue(ADDRESSES[request.param]) as address:
        yield address


@pytest.fixture
def broker(address):
    broker = make_broker(address)
    broker.connect()
    yield broker
    broker.close()


def pointer():
    return {"uuid": str(uuid4()), "user": "alice", "owner": "o", "repo": "r", "task_id": "7"}


def settled(broker, depth):
    """The depth once the broker has counted: RabbitMQ tells it a moment late."""
    deadline = time.monotonic() + 10
    while broker.depth() != depth and time.monotonic() < deadline:
        time.sleep(0.02)
    return broker.depth()


def test_what_is_published_is_fetched_once(broker):
    sent = [pointer() for _ in range(3)]
    for one in sent:
        broker.publish(one)
    assert settled(broker, 3) == 3
    got = [broker.get() for _ in sent]
    assert {one.uuid for one in got} == {one["uuid"] for one in sent}
    assert broker.get() is None
    for one in got:
        one.ack()
        one.ack()
    assert settled(broker, 0) == 0


def test_the_queue_is_there_before_its_consumers_and_after_their_end(broker, address):
    sent = pointer()
    broker.publish(sent)
    broker.close()
    other = make_broker(address)
    other.connect()
    assert other.get().uuid == sent["uuid"]
    other.close()


def test_what_was_not_acknowledged_comes_again_when_the_connection_ends(broker, address):
    sent = pointer()
    broker.publish(sent)
    first = broker.get()
    other = make_broker(address)
    other.connect()
    assert other.get() is None
    broker.close()
    assert settled(other, 1) == 1
    again = other.get()
    assert again.uuid == first.uuid == sent["uuid"]
    again.ack()
    other.close()
    broker.connect()
    assert broker.get() is None


@pytest.mark.parametrize("body", [{"uuid": "../../etc"}, {"user": "x"}, ["uuid"], "text", {"uuid": None}])
def test_what_is_no_pointer_is_thrown_away(broker, body):
    broker._producer.publish(body, exchange="", routing_key=broker.name)
    sent = pointer()
    broker.publish(sent)
    assert broker.get().uuid == sent["uuid"]
    assert broker.get() is None


def test_a_message_of_another_kind_than_json_is_thrown_away(broker):
    broker._producer.publish({"uuid": str(uuid4())}, serializer="pickle", exchange="", routing_key=broker.name)
    assert broker.get() is None


def test_without_a_connection_the_broker_is_away(address):
    broker = make_broker(address)
    for call in (broker.get, broker.depth, lambda: broker.publish(pointer())):
        with pytest.raises(BrokerAway, match="not connected"):
            call()
    broker.close()


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_a_broker_that_does_not_answer_is_away_and_its_password_is_not_told(scheme):
    broker = KombuBroker(f"{scheme}://guest:very-secret@127.0.0.1:1/")
    with pytest.raises(BrokerAway, match="does not answer") as raised:
        broker.connect()
    assert "very-secret" not in str(raised.value)
    assert "guest" in str(raised.value)
    broker.close()


def test_a_client_library_that_is_missing_is_named():
    with pytest.raises(ConfigError, match="client library"):
        make_broker("gcpubsub://projects/p")


def test_a_fault_of_the_client_library_is_a_broker_that_is_away(broker):
    class Faulty:
        def __getattr__(self, name):
            raise ZeroDivisionError("nobody foresaw it")

    queue, producer = broker._queue, broker._producer
    broker._queue = broker._producer = Faulty()
    for call in (broker.get, broker.depth, lambda: broker.publish(pointer())):
        with pytest.raises(BrokerAway, match="nobody foresaw it"):
            call()
    broker._queue, broker._producer = queue, producer


def test_a_queue_that_is_deleted_leaves_nothing(address):
    broker, other = make_broker(address), make_broker(address)
    broker.connect()
    other.connect()
    for _ in range(3):
        broker.publish(pointer())
    assert broker.get() is not None
    other.delete()
    other.close()
    broker._connection.collect()  # killed: nothing is given back
    assert services.traces(address) == []


def test_other_parts_of_an_address_are_options_of_the_transport(address):
    broker = make_broker(f"{address}&visibility_timeout=5&region=eu-west-1&fanout_prefix=false")
    options = broker._made().transport_options
    assert (options["visibility_timeout"], options["region"], options["fanout_prefix"]) == (5, "eu-west-1", False)
    assert f"{broker.name}" not in broker._address


def test_what_a_dead_consumer_of_redis_held_comes_back_after_its_time_out():
    with services.queue(services.REDIS, "visibility_timeout=1") as address:
        dead, living = make_broker(address), make_broker(address)
        dead.connect()
        living.connect()
        sent = pointer()
        dead.publish(sent)
        assert dead.get().uuid == sent["uuid"]
        deadline = time.monotonic() + 20
        while living.depth() == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert living.get().uuid == sent["uuid"]
        for one in (dead, living):
            one.close()
