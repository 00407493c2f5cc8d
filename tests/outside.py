"""Servers outside of a sandbox: on the loopback, under names and addresses that only the proxy knows."""

import functools
import socket
import threading
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

from git_backend import answered

from agent.sandbox.network.dial import Dialer

GIT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


class World:
    """`names` maps name → addresses, as a resolver returns them; `places` maps (address, port) → the loopback port of
    the server for it.  `asked` has the addresses of the connections."""

    def __init__(self):
        self.names = {}
        self.places = {}
        self.asked = []
        self.looked_up = []

    def put(self, name, port, server, address="93.184.215.14"):
        self.names[name] = [address]
        self.places[address, port] = server

    def look_up(self, host, port, **options):
        self.looked_up.append(host)
        if host in self.names:
            found = self.names[host]
            return [(socket.AF_INET6 if ":" in one else socket.AF_INET, None, 0, "", (one, port)) for one in found]
        try:
            return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **options)
        except OSError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None

    def connect(self, address, timeout):
        self.asked.append(address)
        if address not in self.places:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.create_connection(("127.0.0.1", self.places[address]), timeout)

    def dialer(self, allowed, **options):
        return Dialer(allowed, look_up=self.look_up, connect=self.connect, **options)


class Quiet:
    def log_message(self, *_):
        pass


class Files(Quiet, SimpleHTTPRequestHandler):
    """Static files; the server's `asked` has each request line and its headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.requestline, dict(self.headers)))
        super().do_GET()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.requestline, dict(self.headers)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Git(Quiet, BaseHTTPRequestHandler):
    """Smart HTTP by `git http-backend`, read only."""

    protocol_version = "HTTP/1.1"  # GnuTLS reports an end of stream without a TLS close as an error

    def do_GET(self):
        status, fields, content = answered(self, GIT)
        self.send_response(status)
        for name, value in fields:
            if name != "Content-Length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        self.do_GET()


class Serving:
    """A server on a free port of the loopback; with TLS if a context is given."""

    def __init__(self, handler, root, tls=None):
        if issubclass(handler, SimpleHTTPRequestHandler):
            handler = functools.partial(handler, directory=str(root))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.root = str(root)
        self.server.asked = self.asked = []
        self.server.daemon_threads = True
        self.server.block_on_close = False
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.server.server_address[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class CompanyProxy:
    """A proxy for CONNECT that leads every name to one port of the loopback; `asked` are the names with ports."""

    def __init__(self, port):
        self.target = port
        self.asked = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://me:s3cr3t@127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1 << 16)
            self.asked.append(head.split()[1].decode())
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            server.sendall(client.recv(1 << 16))
            while chunk := server.recv(1 << 16):
                client.sendall(chunk)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
