"""A broker wakes workers on other hosts: it carries pointers to rows, never the truth.

The contract is `BaseBroker`; `KombuBroker` fulfils it over kombu for RabbitMQ, Redis and kombu's other transports.  The
broker may lose, repeat or reorder everything: a claim of the row decides who works, and the sweep publishes again
what is still queued.  A message is acknowledged after the claim, within seconds, so no time-out of a broker ever meets
a task of hours.  Imported only when `taskqueue.broker` is set; used by one thread, `run/courier.py`.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from kombu import Connection, Queue
from kombu.exceptions import KombuError, MessageStateError

from agent.errors import BrokerAway, ConfigError
from agent.reasons import reason
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

QUEUE = "makimono"
SECONDS = 10
"""How long one call to the broker may take before the connection counts as cut."""

OPTIONS: dict[str, dict[str, Any]] = {
    "amqp": {"read_timeout": SECONDS, "write_timeout": SECONDS, "confirm_publish": True},
    "redis": {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS, "socket_keepalive": True},
    "sentinel": {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS, "socket_keepalive": True},
}
UNACKED = ("unacked", "unacked_index", "unacked_mutex")
"""Keys of kombu's Redis transport for what is delivered and not acknowledged; here each queue has its own, so that
neither a neighbour's queue nor another program in the same database is touched."""

"""Options of kombu's transports, by scheme without its `s`."""

ADDRESS_OPTIONS = ("ssl", "login_method")
"""Beginnings of the names that kombu itself reads out of an address."""

BROKERS = Registry("broker", {"kombu": "agent.taskqueue.broker:KombuBroker"})
"""`kombu` for every address; a dotted path of `taskqueue.broker` is somebody else's class, built without arguments."""


class Delivery(Protocol):
    """A pointer that was taken out of the queue and is not acknowledged yet."""

    @property
    def uuid(self) -> str:
        """The task; a uuid in its one form."""
        ...

    def ack(self) -> None:
        """Take it off the broker's list.  A second time does nothing.  BrokerAway when the connection is cut."""
        ...


class BaseBroker(Protocol):
    """One queue of one broker.  Used by one thread.  BrokerAway for whatever a new connection may mend."""

    where: str
    """The address without its password."""

    def connect(self) -> None:
        """Connect, and make the queue when there is none; what was held by an older connection is given up."""
        ...

    def publish(self, pointer: Mapping[str, Any]) -> None:
        """Put a pointer into the queue: a mapping with `uuid`, and what a person who looks there likes to see."""
        ...

    def get(self) -> Delivery | None:
        """The next pointer, None when there is none now; never waits.  It comes again, here or elsewhere, when this
        connection ends without an `ack`.  What is no pointer is thrown away."""
        ...

    def depth(self) -> int:
        """How many pointers wait in the queue, those in delivery not counted; 0 when the broker does not tell."""
        ...

    def close(self) -> None:
        """End the connection; a second time does nothing."""
        ...


class KombuDelivery:
    """A message of kombu."""

    def __init__(self, broker: KombuBroker, uuid: str, message: Any) -> None:
        self.uuid = uuid
        self._broker = broker
        self._message = message

    def ack(self) -> None:
        with self._broker.translated(), suppress(MessageStateError):  # it was acknowledged before
            self._message.ack()


class KombuBroker:
    """`address` as in `taskqueue.broker`; `?queue=NAME` names another queue than `makimono`, and what else stands there
    is an option of kombu's transport (`visibility_timeout=300`, `region=eu-west-1`)."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        self.name = query.pop("queue", QUEUE)
        user, at, host = parts.netloc.rpartition("@")
        self.where = f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"
        kept = {name: value for name, value in query.items() if name.startswith(ADDRESS_OPTIONS)}
        self._options = {name: _option(value) for name, value in query.items() if name not in kept}
        self._address = urlunsplit(parts._replace(query=urlencode(kept)))
        self._scheme = parts.scheme
        self._connection: Any = None
        self._channel: Any = None
        try:
            made = self._made()
            made.transport  # noqa: B018 - loads the client library
        except (ImportError, KeyError, ValueError, TypeError) as error:
            raise ConfigError(
                f"taskqueue.broker: {self.where} cannot be used ({error}); install the client library that kombu needs "
                f"for {parts.scheme}, or mend the address"
            ) from error

    def connect(self) -> None:
        self.close()
        with self.translated():
            self._connection = self._made()
            self._connection.connect()
            self._channel = self._connection.channel()
            self._queue = Queue(self.name, channel=self._channel, durable=True)
            self._queue.declare()
            self._producer = self._connection.Producer(channel=self._channel, serializer="json")

    def publish(self, pointer: Mapping[str, Any]) -> None:
        self._connected()
        with self.translated():
            self._producer.publish(dict(pointer), exchange="", routing_key=self.name, delivery_mode=2)

    def get(self) -> KombuDelivery | None:
        self._connected()
        with self.translated():
            while (message := self._queue.get(accept=["json"])) is not None:
                if (uuid := _uuid(message)) is not None:
                    return KombuDelivery(self, uuid, message)
                message.reject()
        return None

    def depth(self) -> int:
        self._connected()
        with self.translated(), suppress(NotImplementedError):
            restore = getattr(getattr(self._channel, "qos", None), "restore_visible", None)
            if restore is not None:
                restore()  # Redis: what a dead consumer held comes back, or its traces would stay for ever
            # Not passive: a queue that somebody deleted is made again, and an empty one of Redis does not exist.
            return int(self._queue.queue_declare().message_count)
        return 0

    def delete(self) -> None:
        """Remove the queue with what is in it and what was delivered to others."""
        self._connected()
        with self.translated():
            self._queue.purge()  # transports without bindings keep what a deleted queue held
            self._queue.delete()
            if (family := self._family) in ("redis", "sentinel"):
                self._channel.client.delete(*self._unacked(family).values())

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it was cut before
                connection.release()

    def away(self, error: BaseException) -> BrokerAway:
        """What kombu raised, as one of ours."""
        return BrokerAway(f"taskqueue.broker: {self.where} does not answer ({reason(error)}); it is tried again")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Whatever kombu or the client library below it raises means one thing: this connection is of no more use."""
        try:
            yield
        except Exception as error:
            raise self.away(error) from error

    def _connected(self) -> None:
        if self._connection is None:
            raise BrokerAway(f"taskqueue.broker: {self.where} is not connected")

    @property
    def _family(self) -> str:
        return self._scheme.removesuffix("s") if self._scheme in ("amqps", "rediss") else self._scheme

    def _unacked(self, family: str) -> dict[str, str]:
        """Options of the Redis transport that name the queue's own keys."""
        if family not in ("redis", "sentinel"):
            return {}
        return {f"{key}_key": f"{self.name}.{key}" for key in UNACKED}

    def _made(self) -> Any:
        family = self._family
        # Heartbeats are off: something is asked every second, and a call that hangs has a time-out.
        return Connection(
            self._address,
            connect_timeout=SECONDS,
            heartbeat=0,
            transport_options={**OPTIONS.get(family, {}), **self._unacked(family), **self._options},
        )


def _option(text: str) -> str | int | float | bool:
    """The value of an option as the transports want it: a number or a truth where it looks like one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _uuid(message: Any) -> str | None:
    """The uuid in a message in its one form; None when it is no pointer: it may become the name of a folder."""
    try:
        pointer = message.decode()
        return str(UUID(pointer["uuid"]))
    except (KombuError, ValueError, TypeError, KeyError, AttributeError):
        return None


def make_broker(address: str) -> BaseBroker:
    """The broker of `taskqueue.broker`.  ConfigError when it cannot be built; nothing is connected."""
    if "://" in address:
        broker: BaseBroker = KombuBroker(address)
    else:
        broker = BROKERS.load(address)()
    return broker


__all__ = ["BROKERS", "BaseBroker", "Delivery", "KombuBroker", "make_broker"]
