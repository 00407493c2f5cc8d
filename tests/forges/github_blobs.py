"""The store to which GitHub redirects for the log of a job: another host, addresses that end, no tokens.

An address has its own signature and works for one minute (docs.github.com/en/rest/actions/workflow-jobs, "Download job
logs for a workflow run").  A request that has an `Authorization` too is refused, as by the store behind GitHub
(learn.microsoft.com/en-us/rest/api/storageservices/common-rest-api-error-codes, InvalidAuthenticationInfo: 400).
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from agent import clock

SECONDS = 60


class Blobs:
    """Starts at the first address; `close` ends it.  `refused` are the requests that had a token."""

    def __init__(self):
        self.http = None
        self.texts = {}  # path → (text, the time of the monotonic clock at which it ends)
        self.refused = []
        self.numbers = count(1)

    def address(self, text):
        """A new address of a text."""
        if self.http is None:
            self._start()
        path = f"/logs/{next(self.numbers)}.txt?sig=x"
        self.texts[path] = text, clock.monotonic() + SECONDS
        return f"http://localhost:{self.http.server_port}{path}"

    def close(self):
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.thread.join()

    def _start(self):
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()


def _handler(blobs):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            text, until = blobs.texts.get(self.path, ("", 0.0))
            status = 200 if until > clock.monotonic() else 403
            if self.headers.get("Authorization"):
                blobs.refused.append(self.path)
                status = 400
            data = text.encode() if status == 200 else b"<Error/>"
            self.send_response_only(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8" if status == 200 else "application/xml")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler
