"""Stops an HTTP exchange (a request to the model server and its answer) at its deadline, or when `control` reports that
the task shall stop; a separate thread watches the exchange.

The thread of the exchange may block in a read or a write, so the watching thread shuts down the transport's open
sockets, which ends the blocked read or write. `transport.py` registers each socket when it connects.
"""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from urllib3.util import wait_for_read

from agent import clock
from agent.errors import ModelStalled
from agent.llm.base import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from agent.values import Control, Outcome

CONNECT = 10.0
"""Maximum seconds for establishing a connection."""
TICK = 1.0
"""Seconds between two checks of `control` and the deadline by the watching thread."""


class Sockets:
    """The open sockets of one transport.

    `patience` is the number of seconds without progress after which sending a request fails.  `broken_off` is True if a
    request was not sent completely, so that its connection cannot be used again.  `sent` is True if the sending of a
    request's body has begun.
    """

    def __init__(self) -> None:
        self.patience = CONNECT
        self.broken_off = False
        self.sent = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._open = {known for known in self._open if known.fileno() >= 0} | {sock}

    @contextmanager
    def sending(self, sock: socket.socket) -> Iterator[None]:
        """A context manager for sending the body of a request.

        A model server may answer before it has read the whole body of a request (with 413 or 401), and then close the
        connection or stop reading. If sending fails because the connection was closed, or while an answer has already
        begun to arrive, `sending` raises BrokenPipeError; urllib3 then reads the answer. A time-out before any answer
        is raised unchanged.
        """
        self.sent = True
        sock.settimeout(self.patience)  # the time-out for sending replaces the time-out for connecting
        try:
            yield
        except (ssl.SSLError, ConnectionError, TimeoutError) as error:
            self.broken_off = True
            if isinstance(error, TimeoutError) and not wait_for_read(sock, 0):
                raise
            raise BrokenPipeError from error

    def shut(self) -> None:
        """Shut down the open sockets, so that a thread that reads from a socket or writes to it returns.

        The method `shutdown` of the class `socket.socket` is called also for a TLS socket, so that its TLS state does
        not change.
        """
        with self._lock:
            for sock in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class ExchangeWatch:
    """The state of one watched exchange: if the watching thread ends the exchange, it sets `outcome` (the reason of the
    stop) or `late` (the deadline has passed)."""

    def __init__(self, whole: float) -> None:
        self.whole = whole
        self.deadline = clock.monotonic() + whole
        self.pause = min(TICK, max(0.01, whole))
        self.done = threading.Event()
        self.outcome: Outcome | None = None
        self.late = False
        self.answering = False  # True if a byte of the answer's body has arrived

    def raise_outcome(self) -> None:
        """If the watching thread has ended the exchange, raise the reason as an error: Interrupted or ModelStalled."""
        if self.outcome is not None:
            raise Interrupted(self.outcome)
        if self.late:
            late = ModelStalled(f"the whole call took longer than {self.whole:g} s (timeout); nothing of it was used")
            late.answering = self.answering
            raise late


class ExchangeWatcher:
    """Watches exchanges: a thread checks `control` and the deadline during an exchange.

    The watching thread serves one exchange after another, since a new thread for each exchange would take more time
    than the checks; the thread ends its loop when it finds no exchange to watch.
    """

    def __init__(self, sockets: Sockets, control: Control | None) -> None:
        self.sockets = sockets
        self.control = control
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="llm-watch")
        # the watching thread holds this lock during a check, so that the watched exchange does not change meanwhile
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._watch: ExchangeWatch | None = None
        self._running: Future[None] | None = None

    @contextmanager
    def watching(self, whole: float) -> Iterator[ExchangeWatch]:
        """A context manager that watches its block, in which an exchange takes place; an error that `control.poll`
        raises in the watching thread is raised again at the end of the block."""
        watch = ExchangeWatch(whole)
        with self._lock:
            self._watch = watch
            if self._running is None:
                self._running = self._threads.submit(self._run)
            elif watch.pause < TICK:
                self._wake.set()
        try:
            yield watch
        finally:
            watch.done.set()
            with self._lock:
                self._watch = None
                failed = self._running if self._running is not None and self._running.done() else None
                self._running = self._running if failed is None else None
            if failed is not None:
                failed.result()

    def close(self) -> None:
        """End the watching thread without waiting for its next check."""
        self._wake.set()
        self._threads.shutdown()

    def _run(self) -> None:
        """The loop of the watching thread: check `control` and the deadline regularly; shut down the sockets when the
        task has to stop, at the deadline, or when a check raises an error."""
        while True:
            watch = self._watch
            self._wake.wait(TICK if watch is None else watch.pause)
            self._wake.clear()
            with self._lock:
                if self._watch is None:
                    self._running = None
                    return
                self._watch_exchange(self._watch)

    def _watch_exchange(self, watch: ExchangeWatch) -> None:
        ended = True
        try:
            watch.outcome = self.control.poll(answering=True) if self.control is not None else None
            watch.late = clock.monotonic() >= watch.deadline
            ended = watch.outcome is not None or watch.late
        finally:
            if ended:
                self.sockets.shut()
                # the shutdown is repeated, since a connection may be established just after the first shutdown
                while not watch.done.wait(0.1):
                    self.sockets.shut()
