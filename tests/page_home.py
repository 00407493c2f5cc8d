"""The page of a home, served on loopback by the real server in a thread, and a browser that only reads."""

import http.client
import json
import threading
from contextlib import contextmanager

from agent.dashboard.server import PageServer


class Answer:
    """The answer to one request: `status`, `headers` (lower case, the last of each name), `cookies`, `text`."""

    def __init__(self, status, headers, text):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.cookies = [value for name, value in headers if name.lower() == "set-cookie"]
        self.text = text

    @property
    def json(self):
        return json.loads(self.text)


class Page:
    """One server; `get` and `post` are requests as a browser sends them, with the headers of `more` on top."""

    def __init__(self, server):
        self.server = server
        self.host, _, port = server.address.removeprefix("http://").strip("/").rpartition(":")
        self.port = int(port)

    @property
    def name(self):
        return f"{self.host}:{self.port}"

    def ask(self, method, path, body=None, **more):
        headers = {"Host": self.name, "Accept": "text/html"} | {
            name.replace("_", "-"): value for name, value in more.items()
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if value is not None:
                    connection.putheader(name, value)
            data = (body or "").encode()
            if method == "POST":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data or None)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read().decode())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def json(self, path, **more):
        answer = self.ask("GET", path, Accept="application/json", **more)
        assert answer.status == 200, (answer.status, answer.text)
        return answer.json

    def post(self, path, body="", **more):
        return self.ask(
            "POST",
            path,
            body,
            **{"Origin": f"http://{self.name}", "Content_Type": "application/x-www-form-urlencoded"} | more,
        )


@contextmanager
def served(settings, host="127.0.0.1", **more):
    """Serve the page of `settings` at a free port until the block ends."""
    server = PageServer(settings, host, 0, **more)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Page(server)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
