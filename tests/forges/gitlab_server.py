"""A GitLab server of our own on loopback, as strict as the real one where it matters, with faults on demand.

It has projects in groups, issues, merge requests, notes, discussions, label events, members, branches, paging by page
and by keyset, ETag and 304, quick actions, rate limits.  The shapes are GitLab's; `gitlab_document.py` and two
independent clients check them.  An unknown parameter is a 400 here (GitLab ignores it), so that a misspelt one is
noticed.  People act through the methods of `GitLab`, the program through HTTP.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from forges.faults import Fault, answer_git, take
from forges.front import hand_on
from forges.gitlab_errors import Refused
from forges.gitlab_routes import ROUTES, Routed
from forges.gitlab_state import State


class GitLab(State):
    """The server.  `prefix` is the sub-path; `close()` ends it."""

    def __init__(self, prefix="", *, tls=None, per_page=None):
        self.prefix = prefix
        self.git = None  # address of the git server for `group/project.git`, behind this server's own address
        self.per_page = per_page  # most items per page, to get many pages with few items
        self.lock = threading.RLock()
        self.forget()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer is one write
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def _any(self):
                server.answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _any  # noqa: N815 - the names of the base class

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # the client has closed the connection

        self.http = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.host = f"{'localhost' if tls else '127.0.0.1'}:{self.http.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}{prefix}"

    def forget(self):
        """Reset the state, without people and projects."""
        with self.lock:
            self.users, self.tokens, self.projects, self.moved = {}, {}, {}, {}
            self.groups = set()
            self.scopes, self.expires_at = ["api"], None
            self.faults, self.journal = [], []
            self.rate = None  # [remaining, limit, seconds to the reset]
            self.ticks = 0
            self.began, self.zone = None, UTC  # `began`: a fixed start time instead of the clock's
            self.ids = 1000
            self.branch_lag = 0  # look-ups of a new branch that still fail
            self.clock_ahead = timedelta(0)

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def fault(self, verb, path, **more):
        with self.lock:
            self.faults.append(Fault(verb, path, **more))

    def asked(self, verb=None, path=None):
        """The requests so far that match, as (verb, path)."""
        with self.lock:
            return [
                (one["verb"], one["path"])
                for one in self.journal
                if verb in (None, one["verb"]) and (path is None or re.search(path, one["path"]))
            ]

    # --- one request ----------------------------------------------------------------------------------------

    def answer(self, handler):
        length = int(handler.headers.get("content-length") or 0)
        raw = handler.rfile.read(length)
        parts = urlsplit(handler.path)
        if self.git is not None and ".git/" in parts.path:
            with self.lock:
                fault = take(self.faults, handler.command, parts.path, len(raw), git=True)
            if fault is not None:
                answer_git(handler, fault)
            else:
                hand_on(handler, self.git, handler.path.removeprefix(self.prefix), raw)  # one address for both
            return
        with self.lock:
            record = {
                "verb": handler.command,
                "path": parts.path,
                "query": dict(parse_qsl(parts.query, keep_blank_values=True)),
                "raw_query": parts.query,
                "headers": {name.lower(): value for name, value in handler.headers.items()},
                "body": raw,
            }
            self.journal.append(record)
            fault = take(self.faults, handler.command, parts.path, len(raw))
            if fault is None or fault.after:
                status, headers, body = self._result(record)
                if fault is not None:
                    status, headers, body = fault.status, dict(fault.headers), fault.body
            else:
                status, headers, body = fault.status, dict(fault.headers), fault.body
            if self.rate is not None:
                self.rate[0] = max(0, self.rate[0] - 1)
                reset = int(self._server_time().timestamp()) + self.rate[2]
                headers |= {
                    "RateLimit-Name": "throttle_authenticated_api",
                    "RateLimit-Limit": str(self.rate[1]),
                    "RateLimit-Remaining": str(self.rate[0]),
                    "RateLimit-Observed": str(self.rate[1] - self.rate[0]),
                    "RateLimit-Reset": str(reset),
                }
        if fault is not None and fault.call is not None:
            fault.call()
        if fault is not None and fault.cut:
            handler.close_connection = True
            return
        self._write(handler, record, status, headers, body)

    def _server_time(self):
        return datetime.now(UTC) + self.clock_ahead

    def _write(self, handler, record, status, headers, body):
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if record["verb"] == "GET" and status == 200:
            etag = f'W/"{hashlib.md5(data).hexdigest()}"'
            headers["ETag"] = etag
            if record["headers"].get("if-none-match") == etag:
                status, data = 304, b""
        handler.send_response_only(status)
        handler.send_header("Date", format_datetime(self._server_time(), usegmt=True))
        if status not in (204, 304):
            handler.send_header("Content-Type", headers.pop("Content-Type", "application/json"))
            handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    def _result(self, record):
        try:
            prefix = f"{self.prefix}/api/v4"
            if not record["path"].startswith(f"{prefix}/"):
                if record["path"].startswith(f"{self.prefix}/api/v3"):
                    raise Refused(410, {"error": "API V3 is no longer supported. Use API V4 instead."})
                raise Refused(404, b"<html>Not here</html>", {"Content-Type": "text/html"})
            who = self._account(record["headers"])
            path = record["path"].removeprefix(prefix)
            body = json.loads(record["body"]) if record["body"] else {}
            for verb, pattern, method in ROUTES:
                match = re.fullmatch(pattern, path)
                if verb == record["verb"] and match:
                    groups = [unquote(group) for group in match.groups()]
                    for project in self.projects.values():
                        self.refresh(project)
                    call = Routed(self, who, record, dict(record["query"]), body)
                    return getattr(call, method)(*groups)
            raise Refused(404, {"error": "404 Not Found"})
        except Refused as refused:
            return refused.status, dict(refused.headers), refused.body

    def _account(self, headers):
        token = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            raise Refused(401, {"message": "401 Unauthorized"})
        return self.users[self.tokens[token]]
