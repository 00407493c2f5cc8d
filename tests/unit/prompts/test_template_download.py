"""Templates from an address: a real server on loopback that is right, wrong, slow, or silent."""

import hashlib
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent import clock
from agent.config import settings_of
from agent.errors import ConfigError
from agent.prompts import download as module
from agent.prompts.download import LIMIT, download, read_download
from agent.prompts.loader import TemplateLoader
from agent.prompts.revision import TemplateRefused


def document(text="Be careful.", **more):
    return json.dumps({"templates": [{"name": "system", "template": text}], **more}).encode()


class Server:
    """A server as RFC 9110 describes it: an ETag, and 304 for the same one.  `way` changes what it does."""

    def __init__(self):
        self.body = document()
        self.way = "right"
        self.asked = []
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                server.asked.append(dict(self.headers))
                server.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/set.json"

    def answer(self, handler):
        etag = '"' + hashlib.sha256(self.body).hexdigest()[:8] + '"'
        if self.way == "hangs":
            self.over.wait(60)
            return
        if self.way == "drips its head":
            while not self.over.wait(0.2):
                handler.wfile.write(b"H")  # HTTP has no limit of time for a status line
            return
        if self.way == "redirects":
            handler.send_response(302)
            handler.send_header("Location", self.url + "?2")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if self.way == "right" and handler.headers.get("If-None-Match") == etag:
            handler.send_response(304)
            handler.end_headers()
            return
        handler.send_response(500 if self.way == "fails" else 200)
        handler.send_header("ETag", etag)
        if self.way == "chunked":
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for start in range(0, len(self.body), 10):
                part = self.body[start : start + 10]
                handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            handler.wfile.write(b"0\r\n\r\n")
            return
        if self.way == "compressed":
            handler.send_header("Content-Encoding", "gzip")
        if self.way == "endless":
            handler.send_header("Connection", "close")
            handler.end_headers()
            for _ in range(10_000):
                handler.wfile.write(b" " * 65_536)
            return
        handler.send_header("Content-Length", str(len(self.body) + (100 if self.way == "cut" else 0)))
        handler.end_headers()
        if self.way == "drips":
            for at in range(len(self.body)):
                if self.over.wait(0.05):
                    return
                handler.wfile.write(self.body[at : at + 1])
                handler.wfile.flush()
            return
        handler.wfile.write(self.body)
        if self.way == "cut":
            handler.close_connection = True

    def close(self):
        self.over.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def settings(tmp_path, server, **more):
    keys = {"url": server.url, "allow_unpinned": True, **more}
    return settings_of({"prompts": keys}, root=tmp_path)


class Told(list):
    def __call__(self, name, **fields):
        self.append((name, fields))


def test_a_set_is_downloaded_and_the_same_one_is_not_sent_again(tmp_path, server):
    told = Told()
    loader = TemplateLoader(settings(tmp_path, server), told)
    assert loader.refresh() is None
    assert server.asked == []  # nothing but `download` asks
    loader.download()
    assert loader.refresh().revisions["system"].template == "Be careful."
    first = loader.current
    loader.download()
    assert loader.refresh() is first
    assert "If-None-Match" in server.asked[1]
    server.body = document("Be quick.")
    loader.download()
    assert loader.load("system").template == "Be careful."
    assert loader.refresh().revisions["system"].template == "Be quick."
    assert [name for name, _ in told] == ["template.reloaded", "template.reloaded"]
    late = TemplateLoader(settings(tmp_path, server))
    server.close()
    assert late.refresh().revisions["system"].template == "Be quick."


def test_ttl_and_force_ask_the_server_and_auto_does_not(tmp_path, server):
    with clock.use(clock.FakeClock()) as time_:
        loader = TemplateLoader(settings(tmp_path, server, ttl_seconds=60))
        assert loader.reload("system", "force").template == "Be careful."
        server.body = document("Two.")
        assert loader.reload("system", "auto").template == "Be careful."
        time_.move(59)
        assert loader.reload("system", "ttl").template == "Be careful."
        time_.move(2)
        assert loader.reload("system", "ttl").template == "Two."
    assert len(server.asked) == 2


def test_a_server_that_was_never_there_is_the_reason_and_not_what_is_missing_then(tmp_path, server):
    server.way = "fails"
    loader = TemplateLoader(settings(tmp_path, server))
    loader.reload("system", "force")
    assert "answered 500" in loader.error
    server.way = "right"
    assert loader.reload("system", "force").template == "Be careful."
    assert loader.error == ""


def test_a_pinned_document_is_the_only_one_that_is_taken(tmp_path, server):
    pin = hashlib.sha256(server.body).hexdigest()
    loader = TemplateLoader(settings(tmp_path, server, sha256=pin, allow_unpinned=False))
    loader.download()
    assert loader.refresh() is not None
    server.body = document("Other.")
    loader.download()
    assert "prompts.sha256 allows" in loader.error
    assert loader.refresh().revisions["system"].template == "Be careful."
    other = settings(tmp_path, server, sha256="0" * 64, allow_unpinned=False)
    assert read_download(other) is None


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("fails", "answered 500"),
        ("redirects", "answered 302; 200 is expected, no redirect"),
        ("compressed", "compressed form"),
        ("endless", f"more than the {LIMIT} bytes"),
        ("cut", "cannot be read|of .* bytes"),
        ("drips", "has not answered whole within"),
        ("drips its head", "has not answered whole within"),
        ("hangs", "cannot be read: ReadTimeout"),
    ],
)
def test_a_server_that_is_wrong_or_slow_changes_nothing_and_is_told_once(tmp_path, server, monkeypatch, way, why):
    told = Told()
    loader = TemplateLoader(settings(tmp_path, server), told)
    loader.download()
    before = loader.refresh()
    monkeypatch.setattr(module, "TIMEOUTS", (1.0, 1.0))
    monkeypatch.setattr(module, "WHOLE_SECONDS", 2.0)
    server.body, server.way = document("Other."), way
    for _ in range(2):
        started = time.monotonic()
        loader.download()
        assert time.monotonic() - started < 20
    assert loader.refresh() is before
    assert [name for name, _ in told] == ["template.reloaded", "template.reload_failed"]
    with pytest.raises(TemplateRefused, match=why):
        download(settings(tmp_path, server))
    server.way = "right"
    monkeypatch.undo()
    loader.download()
    assert loader.error == ""
    assert loader.refresh().revisions["system"].template == "Other."


def test_a_chunked_answer_is_read(tmp_path, server):
    server.way = "chunked"
    assert download(settings(tmp_path, server))
    assert read_download(settings(tmp_path, server)).text == server.body.decode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[]", "one object with `templates`"),
        (b'{"templates": {}}', "templates must be a list"),
        (b'{"templates": [], "more": 1}', "one object with `templates`"),
        (b'{"templates": [], "templates": []}', "a key is given twice"),
        (b'{"templates": [{"name": "a"}, {"name": "a"}]}', "'a' is there twice"),
        (b'{"templates": [], "schemas": {"v": {"$ref": "http://h/x"}}}', "allowed are references inside"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"", "not valid JSON"),
    ],
)
def test_a_document_that_is_wrong_is_not_stored(tmp_path, server, body, why):
    server.body = body
    with pytest.raises(TemplateRefused, match=why):
        download(settings(tmp_path, server))
    assert read_download(settings(tmp_path, server)) is None


def test_a_template_of_the_document_that_is_wrong_keeps_the_set_in_use(tmp_path, server):
    told = Told()
    loader = TemplateLoader(settings(tmp_path, server), told)
    loader.download()
    before = loader.refresh()
    server.body = document("{{ nothing }}")
    loader.download()
    assert loader.refresh() is before
    assert "`nothing` is not given to 'system'" in loader.error
    assert [name for name, _ in told] == ["template.reloaded", "template.reload_failed"]


def test_a_task_that_begins_waits_for_no_server(tmp_path, server):
    server.way = "hangs"
    folder = tmp_path / "contexts" / "running" / "t"
    folder.mkdir(parents=True)
    started = time.monotonic()
    assert TemplateLoader(settings(tmp_path, server)).of_task(folder) is None
    assert time.monotonic() - started < 2
    assert server.asked == []


def test_one_thread_downloads_at_a_time(tmp_path, server):
    server.way = "hangs"
    loader = TemplateLoader(settings(tmp_path, server))
    first = threading.Thread(target=loader.download, daemon=True)
    first.start()
    until = time.monotonic() + 10
    while not server.asked and time.monotonic() < until:
        time.sleep(0.01)
    started = time.monotonic()
    loader.download()
    assert loader.refresh() is None
    assert time.monotonic() - started < 2
    assert len(server.asked) == 1
    server.over.set()
    first.join(20)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"url": "https://h/x"}, "`url` without `sha256`"),
        ({"url": "https://h/x", "allow_unpinned": True, "folder": "t"}, "both `folder` and `url`"),
        ({"url": "http://h/x", "allow_unpinned": True}, "http to h is not encrypted"),
        ({"url": "https://me:pw@h/x", "allow_unpinned": True}, "a user or a password"),
        ({"url": "ftp://h/x", "allow_unpinned": True}, "an address http"),
        ({"url": "https://h/x", "sha256": "abc"}, "is no SHA-256"),
    ],
)
def test_a_wrong_address_is_refused_at_the_start(tmp_path, keys, why):
    with pytest.raises(ConfigError, match=why):
        settings_of({"prompts": keys}, root=tmp_path)


@contextmanager
def netrc(tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    yield


def test_no_login_is_sent(tmp_path, server, monkeypatch):
    with netrc(tmp_path, monkeypatch):
        download(settings(tmp_path, server))
    assert "Authorization" not in server.asked[0]
