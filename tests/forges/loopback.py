"""The HTTP handler of our loopback forges: one address for the API and for git, with faults on demand for both."""

from __future__ import annotations

from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler

from agent import clock
from forges.faults import answer_git, take
from forges.front import hand_on


def handler_of(server):
    """The handler class of `server`, which has `answer(verb, target, headers, text)`, `faults`, `state.lock`, and `git`:
    the address of the git server, or None.  `prefix` is the sub-path of the forge, if it has one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # one write per answer: no wait for delayed ACKs

        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            if server.git is not None and ".git/" in self.path:
                with server.state.lock:
                    fault = take(server.faults, self.command, self.path, len(raw), git=True)
                if fault is not None:
                    answer_git(self, fault)
                else:
                    hand_on(self, server.git, self.path.removeprefix(getattr(server, "prefix", "")), raw)
                return
            answer = server.answer(self.command, self.path, self.headers, raw.decode())
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            data = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json; charset=utf-8"} | headers).items():
                if status not in (204, 304) or name != "Content-Type":
                    self.send_header(name, value)
            if status not in (204, 304):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if status not in (204, 304):
                self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815 - names of the base class

        def date_time_string(self, timestamp=None):
            return format_datetime(clock.now(), usegmt=True)

        def log_message(self, *_):
            pass

    return Handler
