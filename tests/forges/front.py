"""One address for an API and for git, as a forge has it: requests for a repository are forwarded to the git server.

`hand_on` forwards a request, for any server of Python's.  `front` is a proxy before `emulate`, which has no git over
HTTP; it executes GitHub's GraphQL mutations of pull requests, which emulate has as other requests.
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
        """Execute the mutations of a request with the requests that emulate knows; a pull request and a person are
        looked up by their node ids."""
        login = {"Authorization": headers["Authorization"]}
        data = {}
        for name, variable in re.findall(r"(\w+)\(input: \$(\w+)\)", body["query"]):
            wanted = body["variables"][variable]
            path = self._path_of(wanted["pullRequestId"], login)
            if name == "requestReviews":
                people = {one["user"]["node_id"]: one["user"]["login"] for one in self._all(path, "issues", login)}
                names = {"reviewers": [people[one] for one in wanted["userIds"]]}
                self._change("POST", f"{path}/requested_reviewers", names, login)
                data[name] = {"clientMutationId": None}
                continue
            asked = {key: wanted[key] for key in ("title", "body") if key in wanted}
            pull = self._change("PATCH", path, {"draft": _DRAFT[name]} if name in _DRAFT else asked, login)
            data[name] = {"pullRequest": {"isDraft": pull["draft"], "title": pull["title"], "body": pull["body"]}}
        return 200, [("Content-Type", "application/json")], json.dumps({"data": data}).encode()

    def _path_of(self, node, login):
        repos = {match[0] for _, path, _ in self.journal if (match := re.match(r"/repos/[^/]+/[^/]+", path))}
        for repo in sorted(repos):
            for pull in self._all(repo, "pulls", login):
                if pull["node_id"] == node:
                    return f"{repo}/pulls/{pull['number']}"
        raise AssertionError(f"no pull request {node}")

    def _all(self, path, kind, login):
        repo = re.match(r"/repos/[^/]+/[^/]+", path)[0]
        return json.loads(asked_for(self.api, "GET", f"{repo}/{kind}?state=all&per_page=100", b"", login)[2])

    def _change(self, verb, path, wanted, login):
        status, _, data = asked_for(self.api, verb, path, json.dumps(wanted).encode(), login)
        assert status in (200, 201), data
        return json.loads(data)


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
