"""A small SOCKS 5 proxy on 127.0.0.1 (RFC 1928, 1929): CONNECT by address or name, with or without a login."""

import contextlib
import socket
import socketserver
import struct
import threading


class SocksServer:
    """`asked` has (host, port) of each connection; `login` is (user, password) or None; with `refuse`, it answers with
    that code."""

    def __init__(self, login=None, refuse=0):
        self.asked = []
        self.login = login
        self.refuse = refuse
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError):
                    server.serve(self.request)

        self.tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.tcp.daemon_threads = True
        self.tcp.block_on_close = False
        self.thread = threading.Thread(target=self.tcp.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.tcp.server_address[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tcp.shutdown()
        self.tcp.server_close()
        self.thread.join()

    def serve(self, client):
        _, count = read(client, 2)
        methods = read(client, count)
        wanted = 2 if self.login else 0
        client.sendall(bytes([5, wanted if wanted in methods else 255]))
        if self.login:
            read(client, 1)
            user = read(client, read(client, 1)[0]).decode()
            password = read(client, read(client, 1)[0]).decode()
            good = (user, password) == self.login
            client.sendall(bytes([1, 0 if good else 1]))
            if not good:
                return
        _, _, _, kind = read(client, 4)
        host = socket.inet_ntoa(read(client, 4)) if kind == 1 else read(client, read(client, 1)[0]).decode()
        port = struct.unpack("!H", read(client, 2))[0]
        self.asked.append((host, port))
        if self.refuse:
            client.sendall(bytes([5, self.refuse, 0, 1]) + bytes(6))
            return
        with socket.create_connection(("127.0.0.1", port), timeout=10) as far:
            client.sendall(bytes([5, 0, 0, 1]) + bytes(6))
            back = threading.Thread(target=pump, args=(far, client), daemon=True)
            back.start()
            pump(client, far)
            back.join()


def read(sock, count):
    data = b""
    while len(data) < count:
        if not (piece := sock.recv(count - len(data))):
            raise OSError("closed")
        data += piece
    return data


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
