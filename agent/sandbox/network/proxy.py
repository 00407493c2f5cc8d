"""The network proxy of one command: until the command ends, it serves the listening socket that was created inside the
sandbox.

One thread accepts connections, and each connection has a thread that serves it.  When the command ends, the proxy is
closed, which ends all connections.
"""

from __future__ import annotations

import platform
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from agent.errors import SandboxUnavailable
from agent.sandbox.network import connection, socket_opener
from agent.sandbox.network.traffic import Traffic

if TYPE_CHECKING:
    from agent.sandbox.network.dial import Dialer
    from agent.values import Contact

MOST = 64
"""The maximum number of simultaneous connections to the proxy; further connections wait."""

LAST_SECONDS = 5.0
"""Maximum seconds that the end of the proxy waits for the threads of its connections to count their last bytes. The
proxy shuts the sockets down before it waits, so these threads soon end."""


class SandboxProxy:
    """The proxy of one command, as a context manager around the command.

    - `descriptor`: the descriptor through which the opener inside the sandbox sends its listening socket.
    - `file`: the content of the opener's executable file; None if there is no executable for this machine type. Without
      an executable the interpreter `python` inside the sandbox runs the opener; if `python` is None too, the
      constructor raises SandboxUnavailable.
    - `opened`: whether the worker has got the listening socket that the opener created.
    """

    def __init__(self, dialer: Dialer, python: str | None = None, machine: str | None = None) -> None:
        machine = platform.machine() if machine is None else machine
        self.traffic = Traffic()
        self._dialer = dialer
        self._worker, self._inside = socket.socketpair()
        self.descriptor = self._inside.fileno()
        self.file = socket_opener.program(self.descriptor, machine)
        if self.file is None and python is None:
            self._worker.close()
            self._inside.close()
            raise SandboxUnavailable(
                f"sandbox.network: there is no way to the proxy on {machine} without Python in the sandbox; "
                "install the system's python3, or leave sandbox.network and workspace.setup.network empty"
            )
        self.argv = (
            socket_opener.with_python(python, self.descriptor)
            if self.file is None and python
            else [socket_opener.PLACE]
        )
        self._open: set[socket.socket] = {self._worker}
        self._lock = threading.Lock()
        self._closed = False
        self.opened = False
        self._slots = threading.BoundedSemaphore(MOST)
        self._thread = threading.Thread(target=self._wait, name="network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._inside.close()
        self._thread.join()
        self.traffic.wait(LAST_SECONDS)

    def contacts(self) -> tuple[Contact, ...]:
        """The hosts to which the command has tried to connect so far. The byte counts are complete once the proxy (a
        context manager) has ended, unless a connection took longer than LAST_SECONDS to end."""
        return self.traffic.contacts()

    def _keep(self, one: socket.socket) -> bool:
        """Register a socket, which the end of the proxy then shuts down; returns False if the proxy has ended already,
        and the caller closes the socket."""
        with self._lock:
            self._open = {known for known in self._open if known.fileno() >= 0}
            if not self._closed:
                self._open.add(one)
            return not self._closed

    def _wait(self) -> None:
        with self._worker, suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._worker, 1, 1)
            self.opened = bool(descriptors)
            for descriptor in descriptors:
                with socket.socket(fileno=descriptor) as listener:
                    if self._keep(listener):
                        self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections until the proxy ends; the end shuts the listener down, so `accept` raises OSError."""
        while not self._closed:
            if not self._slots.acquire(timeout=0.2):
                continue
            try:
                client, _ = listener.accept()
            except BaseException:
                self._slots.release()
                raise
            threading.Thread(target=self._serve, args=(client,), name="connection", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError):
                if self._keep(client):
                    connection.serve(client, self._dialer, self.traffic, self._keep)
        finally:
            self._slots.release()
