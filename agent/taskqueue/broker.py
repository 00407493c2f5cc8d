"""Sends and receives the messages of a broker, by which the daemons of all hosts learn that a task is queued: a message
contains the uuid of the task's row, never the row itself.

The contract of a broker is `BaseBroker`; `KombuBroker` implements it over kombu for RabbitMQ, Redis and kombu's other
transports. The broker may lose, repeat or reorder messages: the claim of the row decides which worker runs the task,
and the uuids of rows that are still queued are published again from time to time. The daemon acknowledges a message as
soon as its worker has claimed the task, within seconds, so a task may take hours although brokers deliver a message
again that is not acknowledged in time. Only one thread of a process uses a broker object (`daemon/broker_client.py`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from kombu import Connection, Queue
from kombu.exceptions import KombuError, MessageStateError

from agent.error_text import reason
from agent.errors import BrokerAway, ConfigError
from agent.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.registry import Guard

QUEUE = "makimono"
SECONDS = 10
"""Time-out in seconds of connecting to the broker, and for AMQP and Redis of each call; after a time-out the connection
counts as cut."""

OPTIONS: dict[str, dict[str, Any]] = {
    "amqp": {"read_timeout": SECONDS, "write_timeout": SECONDS, "confirm_publish": True},
    "redis": {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS, "socket_keepalive": True},
    "sentinel": {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS, "socket_keepalive": True},
}
"""URL scheme (without the `s` of `amqps` or `rediss`) → options of kombu's transport."""

UNACKED = ("unacked", "unacked_index", "unacked_mutex")
"""Keys in Redis that kombu's transport uses for messages that were delivered but not acknowledged.

This program gives the messages of each queue their own keys in Redis, so that a queue affects neither another queue nor
another program in the same Redis database.
"""

ADDRESS_OPTIONS = ("ssl", "login_method")
"""Beginnings of the names of options that kombu itself reads from an address."""

BROKERS = Registry("broker", {"kombu": "agent.taskqueue.broker:KombuBroker"})
"""`kombu` serves every URL; if the setting `taskqueue.broker` is a dotted path, it names a class of a third party,
which is called without arguments."""


class Delivery(Protocol):
    """A message that was taken from the queue and is not yet acknowledged."""

    @property
    def uuid(self) -> str:
        """The uuid of the task that the message names, in canonical form."""
        ...

    def ack(self) -> None:
        """Acknowledge the message, so that the broker does not deliver it again. A second call of `ack` does nothing.
        Raises BrokerAway when the connection is cut."""
        ...


class BaseBroker(Protocol):
    """The contract of a broker, with one queue of messages.

    Only one thread uses a broker object. The methods of a broker raise BrokerAway for every error that may disappear
    with a new connection.
    """

    where: str
    """The address of the broker without its password."""

    def connect(self) -> None:
        """Connect to the broker, and create the queue if it is missing; messages of an older connection can no longer
        be acknowledged."""
        ...

    def publish(self, pointer: Mapping[str, Any]) -> None:
        """Put a message into the queue: a mapping with `uuid`, and further fields for people who inspect the queue."""
        ...

    def get(self) -> Delivery | None:
        """Take the next message; returns None at once, without waiting for a message, if there is none at present.

        A message is delivered again, to this host or another, when this connection ends without an `ack`. A message
        without a valid uuid is discarded.
        """
        ...

    def depth(self) -> int:
        """The number of messages in the broker's queue, without those that were delivered; 0 when the broker does not
        report it."""
        ...

    def close(self) -> None:
        """Close the connection to the broker; a second call does nothing."""
        ...


class KombuDelivery:
    """A message that kombu has delivered."""

    def __init__(self, broker: KombuBroker, uuid: str, message: Any) -> None:
        self.uuid = uuid
        self._broker = broker
        self._message = message

    def ack(self) -> None:
        # kombu raises MessageStateError if the message is acknowledged already; `ack` then does nothing
        with self._broker.translated(), suppress(MessageStateError):
            self._message.ack()


class KombuBroker:
    """`address` is the value of `taskqueue.broker`; its parameter `?queue=NAME` names another queue than `makimono`,
    and its other parameters are options of kombu's transport (`visibility_timeout=300`, `region=eu-west-1`)."""

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
            made.transport  # noqa: B018 - loads the client library, to find out if it is missing
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
                # only kombu's Redis transport has `restore_visible`: it puts the messages of a dead consumer back into
                # the queue, which nothing else would do
                restore()
            # The queue is declared, not only looked up, since it may have been deleted, and an empty queue does not
            # exist in Redis.
            return int(self._queue.queue_declare().message_count)
        return 0

    def delete(self) -> None:
        """Remove the broker's queue with its messages, including those that were delivered to other consumers."""
        self._connected()
        with self.translated():
            self._queue.purge()  # on some transports `delete` alone leaves the messages
            self._queue.delete()
            if (family := self._family) in ("redis", "sentinel"):
                self._channel.client.delete(*self._unacked(family).values())

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # a cut connection cannot be closed; it is forgotten anyway
                connection.release()

    def translate_error(self, error: BaseException) -> BrokerAway:
        """Make the BrokerAway that stands for an error of kombu or of the client library."""
        return BrokerAway(f"taskqueue.broker: {self.where} does not answer ({reason(error)}); it is tried again")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """A context manager that turns any error of kombu or of the client library into BrokerAway; the connection is
        unusable after such an error."""
        try:
            yield
        except Exception as error:
            raise self.translate_error(error) from error

    def _connected(self) -> None:
        if self._connection is None:
            raise BrokerAway(f"taskqueue.broker: {self.where} is not connected")

    @property
    def _family(self) -> str:
        return self._scheme.removesuffix("s") if self._scheme in ("amqps", "rediss") else self._scheme

    def _unacked(self, family: str) -> dict[str, str]:
        """Options for kombu's Redis transport with the names of the keys that only this queue uses; {} for another
        transport."""
        if family not in ("redis", "sentinel"):
            return {}
        return {f"{key}_key": f"{self.name}.{key}" for key in UNACKED}

    def _made(self) -> Any:
        family = self._family
        # No heartbeats: the broker client sends a request at least every 15 seconds, and with RabbitMQ and Redis each
        # call has a time-out, so a dead connection is noticed without them.
        return Connection(
            self._address,
            connect_timeout=SECONDS,
            heartbeat=0,
            transport_options={**OPTIONS.get(family, {}), **self._unacked(family), **self._options},
        )


def _option(text: str) -> str | int | float | bool:
    """Convert the text of an option to the type that kombu's transports expect: a number or a boolean if the text looks
    like one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _uuid(message: Any) -> str | None:
    """The uuid in a message in canonical form, because it may become the name of a folder; None when the message
    contains no uuid."""
    try:
        pointer = message.decode()
        return str(UUID(pointer["uuid"]))
    except (KombuError, ValueError, TypeError, KeyError, AttributeError):
        return None


def make_broker(address: str, guard: Guard | None = None) -> BaseBroker:
    """Make the broker object that the setting `taskqueue.broker` names.

    Raises ConfigError when the broker cannot be built; the function opens no connection.
    """
    if "://" in address:
        broker: BaseBroker = KombuBroker(address)
    else:
        broker = BROKERS.load(address, guard)()
    return broker


__all__ = ["BROKERS", "BaseBroker", "Delivery", "KombuBroker", "make_broker"]
