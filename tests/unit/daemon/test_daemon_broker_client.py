"""The messenger between ledger, broker and supervisor; the broker is a real one."""

import errno
import multiprocessing
import socket
import threading
import time
from uuid import uuid4

import pytest
import services
from flow_home import until
from ports import free_port
from run_home import UUID

from agent.daemon.broker_client import BrokerClient, message_of
from agent.daemon.supervisor import Supervisor
from agent.errors import LedgerError
from agent.taskqueue.broker import make_broker
from agent.values import Status


class Door:
    """A port of this machine that leads to `address` while it is open."""

    def __init__(self, host, port):
        self.to = (host, port)
        self.port = free_port()
        self.sockets = []
        self.threads = []

    def open(self):
        server = socket.create_server(("127.0.0.1", self.port))
        self.sockets.append(server)
        self._start(self._serve, server)

    def _start(self, what, *args):
        self.threads.append(threading.Thread(target=what, args=args, daemon=True))
        self.threads[-1].start()

    def _serve(self, server):
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            far = socket.create_connection(self.to)
            self.sockets += [near, far]
            self._start(self._carry, near, far)
            self._start(self._carry, far, near)

    def _carry(self, one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        shut(one, other)

    def close(self):
        shut(*self.sockets)
        for thread in self.threads:
            thread.join()
        for end in self.sockets:
            end.close()
        self.sockets.clear()
        self.threads.clear()


def shut(*sockets):
    for one in sockets:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@pytest.fixture
def queue():
    """The address of an empty queue, and a broker that is connected to it."""
    with services.queue(services.REDIS) as address:
        broker = make_broker(address)
        broker.connect()
        yield address, broker
        broker.close()


def configured(place, address):
    return place(f"taskqueue: {{broker: '{address}'}}\n")


def taken(courier):
    return until(lambda: courier.take_arrived(9), "a message")


def test_what_is_queued_is_published_fetched_and_acknowledged(place, queue):
    address, broker = queue
    here = configured(place, address)
    courier = BrokerClient(here.settings, here.events)
    courier.start()
    try:
        uuid = here.row(1)
        until(lambda: here.named("task_published") == [{"uuid": uuid}])
        until(lambda: broker.depth() == 1)
        assert courier.take_arrived(9) == [], "there was no room"
        courier.room = 1
        assert taken(courier) == [uuid]
        courier.acknowledge(uuid)
        courier.acknowledge(uuid)
        courier.acknowledge(str(uuid4()))
        until(lambda: not courier._held)
    finally:
        courier.stop()
    broker.connect()
    assert broker.depth() == 0
    assert courier.connected is False


def test_what_was_not_settled_goes_back(place, queue):
    address, broker = queue
    here = configured(place, address)
    courier = BrokerClient(here.settings, here.events)
    courier.room = 1
    courier.start()
    try:
        uuid = here.row(1)
        assert taken(courier) == [uuid]
    finally:
        courier.stop()
    assert broker.depth() == 1


def test_a_broker_that_goes_and_comes_is_found_again(place, queue):
    address, _ = queue
    host, _, rest = services.REDIS.partition("://")[2].partition("/")
    name, _, port = host.partition(":")
    door = Door(name, int(port))
    here = configured(place, f"redis://127.0.0.1:{door.port}/{rest}?{address.partition('?')[2]}")
    courier = BrokerClient(here.settings, here.events)
    courier.start()
    try:
        until(lambda: here.named("broker_away"))
        assert courier.connected is False
        door.open()
        until(lambda: courier.connected)
        door.close()
        until(lambda: not courier.connected)
        door.open()
        until(lambda: courier.connected)
        uuid = here.row(1)
        courier.room = 1
        assert taken(courier) == [uuid]
    finally:
        courier.stop()
        door.close()
    assert len(here.named("broker_connected")) == 2


class Brought:
    def __init__(self, uuid):
        self.uuid = uuid


def test_messages_about_what_cannot_be_started_are_let_go(place):
    here = place("taskqueue: {broker: 'redis://127.0.0.1:1'}\nscheduling: {max_workers: 4}\n")
    courier = BrokerClient(here.settings, here.events)
    courier.connected = True
    supervisor = Supervisor(here.wiring, courier=courier)
    held, stopped, hindered = here.claim(1).uuid, here.row(2), here.row(3)
    here.ledger.request(stopped, "stop")
    supervisor.delays.known[hindered] = (1, time.monotonic() + 100)
    messages = [held, stopped, hindered, UUID % 9]
    courier._arrived.extend(map(Brought, messages[:3]))
    supervisor.start_due()
    assert not supervisor.children
    assert sorted(courier._settled) == sorted(messages[:3])
    assert courier.room == 3
    courier._arrived.append(Brought(messages[3]))
    supervisor.start_due()
    assert messages[3] in courier._settled
    supervisor.drain()
    assert courier.room == 0
    assert here.ledger.get(hindered).status is Status.QUEUED


def test_a_message_whose_worker_has_not_claimed_yet_is_not_acknowledged(place, monkeypatch):
    here = place("taskqueue: {broker: 'redis://127.0.0.1:1'}\nscheduling: {max_workers: 4}\n")
    courier = BrokerClient(here.settings, here.events)
    courier.connected = True
    supervisor = Supervisor(here.wiring, courier=courier)
    started = []
    monkeypatch.setattr(supervisor, "start", started.append)
    uuid = here.row(1)
    courier._arrived.append(Brought(uuid))
    supervisor.start_due()
    assert started == [uuid]
    assert uuid in courier._held
    assert not courier._settled
    supervisor.acknowledge(uuid)  # as `reap` does with what the worker reports
    assert list(courier._settled) == [uuid]


class NoProcesses:
    """What the kernel says of the `call` of a start where nothing is left for it."""

    def __init__(self, call):
        self.call = call

    def Pipe(self, duplex):
        if self.call == "pipe":
            raise OSError(errno.EMFILE, "Too many open files")
        return multiprocessing.Pipe(duplex)

    def Process(self, **_):
        return self

    def start(self):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("call", ["pipe", "fork"])
def test_a_worker_that_cannot_be_started_counts_for_none_and_its_message_is_let_go(place, call):
    here = place("taskqueue: {broker: 'redis://127.0.0.1:1'}\nscheduling: {max_workers: 4}\n")
    courier = BrokerClient(here.settings, here.events)
    courier.connected = True
    supervisor = Supervisor(here.wiring, courier=courier)
    supervisor.context = NoProcesses(call)
    uuid = here.row(1)
    courier._arrived.append(Brought(UUID % 7))  # the ledger says which task a message starts
    supervisor.start_due()
    assert (supervisor.children, supervisor.messages) == ({}, {})
    assert list(courier._settled) == [UUID % 7]
    assert courier.room == 4, "its place is free for another one"
    assert [said["uuid"] for said in here.named("worker_died")] == [uuid]
    assert uuid in supervisor.delays.waiting()
    assert here.ledger.due(9) == [uuid], "others may take it"


def test_a_ledger_that_fails_half_way_leaves_each_started_task_its_message(place, monkeypatch):
    here = place("taskqueue: {broker: 'redis://127.0.0.1:1'}\nscheduling: {max_workers: 4}\n")
    courier = BrokerClient(here.settings, here.events)
    courier.connected = True
    supervisor = Supervisor(here.wiring, courier=courier)
    monkeypatch.setattr(supervisor, "start", lambda _uuid: None)
    first, take = here.row(1), here.ledger.reserve

    def once(*args, **more):
        monkeypatch.setattr(here.ledger, "reserve", away)
        return take(*args, **more)

    def away(*_args, **_more):
        raise LedgerError("the database is away")

    monkeypatch.setattr(here.ledger, "reserve", once)
    courier._arrived.extend(map(Brought, [UUID % 7, UUID % 8]))
    with pytest.raises(LedgerError):
        supervisor.start_arrived(courier, 4)
    assert supervisor.messages == {first: UUID % 7}
    assert list(courier._settled) == [UUID % 8]


def test_a_producer_starts_nothing(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring, starts=False)
    supervisor.step()
    assert not supervisor.children
    assert here.ledger.get(uuid).status is Status.QUEUED


def test_a_pointer_says_whose_and_what(place):
    here = place()
    row = here.ledger.get(here.row(7))
    assert message_of(row) == {"uuid": UUID % 7, "user": "alice", **here.key(7)}
