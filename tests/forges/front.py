"""One address for an API and for git, as a forge has it: requests for a repository are forwarded to the git server.

`hand_on` forwards a request, for any server of Python's.  `front` is a proxy before `emulate`, which has no git over
HTTP; it adds the two changes that GitHub has in GraphQL alone (emulate accepts them as a PATCH).
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OF_ONE_HOP = ("transfer-encoding", "content-length", "connection")
_DRAFT = {"markPullRequestReadyForReview": False, "convertPullRequestToDraft": True}


def asked_for(address, verb, path, body, headers):
    """(status, [(name, value)], body) of a request that is forwarded to `address`."""
    target = urlsplit(address)
    connection = HTTPConnection(target.hostname, target.port, timeout=60)
    kept = {name: value for name, value in headers.items() if name.lower() not in ("host", *_OF_ONE_HOP)}
    connection.request(verb, path, body, kept)
    answer = connection.getresponse()
    data = answer.read()
    found = [(name, value) for name, value in answer.getheaders() if name.lower() not in _OF_ONE_HOP]
    connection.close()
    return answer.status, found, data


def hand_on(handler, address, path, body):
    """Forward the request to `address` and send its answer."""
    _write(handler, *asked_for(address, handler.command, path, body, handler.headers))


def _write(handler, status, headers, data):
    handler.send_response_only(status)
    for name, value in headers:
        handler.send_header(name, value)
    if status not in (204, 304):
        handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if status not in (204, 304) and handler.command != "HEAD":
        handler.wfile.write(data)


class Front(ThreadingHTTPServer):
    """`api` answers all requests but those of git, which go to `git`.  `journal` holds (verb, path, status) of the
    requests to the API."""

    daemon_threads = True

    def __init__(self):
        self.api = self.git = None  # set before the first request
        self.journal = []
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer is one write
            disable_nagle_algorithm = True

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                front.answer(self, body)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = handle_any  # noqa: N815 - the base's names

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://localhost:{self.server_port}"

    def answer(self, handler, body):
        path = handler.path
        if ".git/" in path:
            hand_on(handler, self.git, path, body)
            return
        if path == "/graphql":
            answer = self._graphql(json.loads(body), handler.headers)
        else:
            answer = asked_for(self.api, handler.command, path, body, handler.headers)
        self.journal.append((handler.command, path, answer[0]))
        _write(handler, *answer)

    def _graphql(self, body, headers):
        """Set ready or draft with the PATCH that emulate knows; the pull request is looked up by its node id."""
        name = re.match(r"mutation Do\(.*?\) \{ (\w+)", body["query"])[1]
        node = body["variables"]["input"]["pullRequestId"]
        login = {"Authorization": headers["Authorization"]}
        repos = {match[0] for _, path, _ in self.journal if (match := re.match(r"/repos/[^/]+/[^/]+", path))}
        for repo in sorted(repos):
            _, _, data = asked_for(self.api, "GET", f"{repo}/pulls?state=all&per_page=100", b"", login)
            for pull in json.loads(data):
                if pull["node_id"] == node:
                    path, wish = f"{repo}/pulls/{pull['number']}", json.dumps({"draft": _DRAFT[name]}).encode()
                    status, _more, data = asked_for(self.api, "PATCH", path, wish, login)
                    assert status == 200, data
                    shown = {"data": {name: {"pullRequest": {"isDraft": json.loads(data)["draft"]}}}}
                    return 200, [("Content-Type", "application/json")], json.dumps(shown).encode()
        raise AssertionError(f"no pull request {node}")


@contextmanager
def front():
    """A running `Front`, inside the block."""
    server = Front()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
