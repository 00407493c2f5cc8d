"""Servers that a test may need: PostgreSQL, RabbitMQ and Redis on this machine.

None is started here (`scripts/test-peers` starts the installed ones).  When one does not answer, its tests skip with
the reason; with CI=1 they fail.  Each test has its own schema or queue, and removes it at the end.
"""

import hashlib
import os
import re
import socket
from contextlib import contextmanager
from functools import cache
from urllib.parse import parse_qsl, quote, urlsplit
from uuid import uuid4

import pytest

POSTGRES = os.environ.get("MAKIMONO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
RABBITMQ = os.environ.get("MAKIMONO_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
REDIS = os.environ.get("MAKIMONO_TEST_REDIS", "redis://127.0.0.1:6379/15")

PREFIX = "makimono-test-"


def absent(reason):
    """Skip the test, or fail where everything must be installed."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (CI is set)")
    pytest.skip(reason)


@cache
def postgres_fault():
    """The reason why PostgreSQL cannot be used here, "" when it can."""
    import psycopg

    try:
        with psycopg.connect(POSTGRES, connect_timeout=5) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:
        return f"no PostgreSQL at {POSTGRES}: {error}"
    return ""


def need_postgres():
    if postgres_fault():
        absent(postgres_fault())


def schema_of(folder):
    return "makimono_" + hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()


def postgres(folder):
    """The address of the schema that belongs to `folder`."""
    return f"{POSTGRES}?options={quote(f'-csearch_path={schema_of(folder)}')}"


@contextmanager
def schema(folder):
    """Create the schema of `folder`; returns its address."""
    import psycopg

    need_postgres()
    name = schema_of(folder)
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield postgres(folder)
    finally:
        with psycopg.connect(POSTGRES, autocommit=True) as connection:
            connection.execute(f"SET client_min_messages = error; DROP SCHEMA IF EXISTS {name} CASCADE")


@contextmanager
def database(folder):
    """Create a database of its own for `folder`; returns its address.  In one that tests share, transactions of others
    keep old versions of rows."""
    import psycopg

    need_postgres()
    name = schema_of(folder)
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield urlsplit(POSTGRES)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(POSTGRES, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def queue(address, options=""):
    """The address of a new queue, which is removed at the end with its messages."""
    from agent.taskqueue.broker import make_broker

    _sweep(need(address))
    own = f"{address}?queue={PREFIX}{os.getpid()}-{uuid4().hex}{'&' if options else ''}{options}"
    try:
        yield own
    finally:
        broker = make_broker(own)
        broker.connect()
        broker.delete()
        broker.close()
        assert traces(own) == [], "a test leaves nothing on a broker"


def _sweep(address):
    """Remove the queues of killed test runs from a Redis: each name contains the process that made it."""
    if not address.startswith("redis"):
        return
    import redis

    with redis.Redis.from_url(address.partition("?")[0]) as client:
        for key in client.scan_iter(match=f"*{PREFIX}*"):
            pid = re.search(rf"{PREFIX}(\d+)-".encode(), key)
            if pid is None or not os.path.exists(f"/proc/{int(pid[1])}"):
                client.delete(key)


def traces(address):
    """Keys or messages of the queue of an address that are still on its broker."""
    name = dict(parse_qsl(urlsplit(address).query))["queue"]
    if address.startswith("redis"):
        import redis

        with redis.Redis.from_url(address.partition("?")[0]) as client:
            return [key.decode() for key in client.scan_iter(match=f"*{name}*")]
    from amqp.exceptions import NotFound
    from kombu import Connection

    with Connection(address.partition("?")[0]) as connection:
        try:
            connection.channel().queue_declare(name, passive=True)
        except NotFound:
            return []
    return [name]


def need(address):
    """`address`, if a server listens there."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=5).close()
    except OSError as error:
        absent(f"nothing listens at {parts.hostname}:{parts.port} ({parts.scheme}): {error}")
    return address
