"""A TCP line to a server on loopback that can be cut, go silent, and be mended, as in an outage of a network."""

import contextlib
import select
import socket
import threading


class CutLine:
    """Forwards connections to (host, port).

    `cut()` ends every connection and refuses new ones; `silence()` forwards nothing, and answers nobody; `mend()` lets
    new connections through.
    """

    def __init__(self, host, port):
        self.target = (host, port)
        self.state = "whole"
        self.connections = 0
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        self._listener.close()

    def cut(self):
        self.state = "cut"
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def silence(self):
        self.state = "silent"

    def mend(self):
        self.cut()  # connections of the outage are gone
        self.state = "whole"

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(connection,), daemon=True).start()

    def _connect(self, connection):
        self._open.add(connection)
        with contextlib.suppress(OSError), connection:
            if self.state == "cut":
                return
            while self.state == "silent":
                if not select.select([connection], [], [], 0.1)[0]:
                    continue
                if not connection.recv(1 << 16):
                    return
            with socket.create_connection(self.target) as server:
                self.connections += 1
                self._open.add(server)
                self._forward(connection, server)
                self._open.discard(server)
        self._open.discard(connection)

    def _forward(self, one, other):
        ends = {one: other, other: one}
        while self.state != "cut":
            for ready in select.select(list(ends), [], [], 0.1)[0]:
                data = ready.recv(1 << 16)
                if not data:
                    return
                if self.state == "whole":
                    ends[ready].sendall(data)
