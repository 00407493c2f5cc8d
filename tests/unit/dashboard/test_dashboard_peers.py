"""Conversations that lie on another host: where they are, and how the page fetches them."""

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli_home import DONE, Home
from page_home import served

from agent.config import load
from agent.dashboard import peers
from agent.errors import HostError
from agent.store.configured_ledger import LedgerKind
from agent.taskqueue import row_holder

TOKEN = "a-token-of-this-test"
BEARER = f"Bearer {TOKEN}"


@contextmanager
def answering(status=200, body=b"{}", headers=(), kept=None):
    """A server in the place of another host's page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if kept is not None:
                kept.append((self.path, dict(self.headers)))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def settings_of(home, address=None):
    config = home.folder / "peer.yaml"
    peer = f", peers: {{build-2: '{address}'}}" if address else ""
    config.write_text(home.config.read_text() + f"dashboard: {{token: {TOKEN}{peer}}}\n")
    return load(config, environ={})


def elsewhere(settings, monkeypatch, home):
    """The ledger counts as shared, and the host build-2 worked on the task last; its folder is not here."""
    import shutil

    with closing(LedgerKind.from_settings(settings).open()) as ledger:
        ledger.db.execute("UPDATE tasks SET hostname = 'build-2', last_seq = 99 WHERE uuid = :uuid", uuid=DONE)
    monkeypatch.setattr(row_holder, "is_alone", lambda _settings: False)
    shutil.rmtree(home.settings.base_dir / "completed" / DONE)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "h").both()


def test_the_page_says_where_the_conversation_lies(home, monkeypatch):
    settings = settings_of(home)
    elsewhere(settings, monkeypatch, home)
    with served(settings) as page:
        shown = page.json(f"/tasks/{DONE}", Authorization=BEARER)
    assert shown["elsewhere"].startswith("the conversation lies on build-2")
    assert shown["shown"] is None


def test_the_page_fetches_the_conversation_from_the_page_of_that_host(home, tmp_path, monkeypatch):
    other = Home(tmp_path / "other").both()
    with served(settings_of(other)) as there:
        settings = settings_of(home, f"http://{there.name}")
        elsewhere(settings, monkeypatch, home)
        with served(settings) as page:
            shown = page.json(f"/tasks/{DONE}?at=3", Authorization=BEARER)
            text = page.get(f"/tasks/{DONE}", Authorization=BEARER).text
            message = page.json(f"/tasks/{DONE}/messages/3", Authorization=BEARER)
    assert [one["seq"] for one in shown["shown"]["entries"]] == [3, 5]
    assert shown["peer"] == "build-2"
    assert "I look first." in text
    assert message["shown"]["entry"]["seq"] == 3


def test_what_another_host_answers_is_not_trusted(home, monkeypatch):
    hostile = {
        "shown": {"entries": [{"seq": "<script>alert(1)</script>", "role": 7, "calls": [{"name": "\x1b[2J<b>"}]}]}
    }
    odd = [hostile, {"shown": {"entries": 7}}, {"shown": []}, {"shown": {"entries": [None, [], "x"]}}, {"problems": {}}]
    for value in odd:
        with answering(body=json.dumps(value).encode()) as address:
            settings = settings_of(home, address)
            if value is hostile:
                elsewhere(settings, monkeypatch, home)
            with served(settings) as page:
                answer = page.get(f"/tasks/{DONE}", Authorization=BEARER)
        assert answer.status in (200, 502)
        assert "<script>alert" not in answer.text
        assert "\x1b" not in answer.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"status": 401}, "answers with 401"),
        ({"status": 302, "headers": [("Location", "http://127.0.0.1:9/")]}, "answers with 302"),
        ({"body": b"no json"}, "no JSON"),
        ({"body": b"[]"}, "no page"),
        ({"body": b'"' + b"x" * (1 << 20) + b'"'}, "more than"),
    ],
)
def test_an_answer_that_is_none_is_said(home, monkeypatch, more, said):
    monkeypatch.setattr(peers, "MOST_BYTES", 1 << 18)
    kept = []
    with answering(kept=kept, **more) as address, pytest.raises(HostError, match=said):
        peers.page_of(settings_of(home, address), address, DONE, "plan", {"before": "7", "evil": "x"})
    ((path, headers),) = kept
    assert path == f"/tasks/{DONE}/plan?before=7&asked_by_host=1"
    assert headers["Authorization"] == BEARER


def test_a_host_that_is_away_is_said(home):
    with pytest.raises(HostError, match="does not answer"):
        peers.page_of(settings_of(home, "http://127.0.0.1:9"), "http://127.0.0.1:9", DONE, "plan", {})


@pytest.mark.parametrize("drips", ["headers", "body"])
def test_a_peer_that_sends_byte_by_byte_costs_seconds(tmp_path, monkeypatch, drips):
    import socket

    monkeypatch.setattr(peers, "SECONDS", 0.3)
    settings = settings_of(Home(tmp_path), "http://127.0.0.1:9")
    ended = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def drip():
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + (b"" if drips == "headers" else b"\r\n"))
                while not ended.wait(0.02):
                    try:
                        connection.sendall(b"a")
                    except OSError:
                        return

        server = threading.Thread(target=drip, daemon=True)
        server.start()
        try:
            with pytest.raises(HostError, match="takes longer than"):
                peers.page_of(settings, f"http://127.0.0.1:{listening.getsockname()[1]}", DONE, "timeline", {})
        finally:
            ended.set()
            server.join(10)
