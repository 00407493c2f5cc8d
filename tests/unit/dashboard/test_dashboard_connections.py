"""Clients that send nothing, half a request or half a form: they are ended, and keep nobody out."""

import http.client
import socket
import threading
from contextlib import ExitStack, closing, suppress

import pytest
from cli_home import DONE, Home
from flow_home import until
from page_home import served

from agent.dashboard import app, connections, rendering, server

REQUEST = b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LARGE = 32 << 20
FORM = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 30\r\n\r\ntoken="


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "h").both()


def sending(stack, page, data):
    """A client that sends `data` and nothing more."""
    made = stack.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=30))
    made.sendall(data)
    return made


def test_clients_that_send_nothing_half_a_request_or_half_a_form_keep_nobody_out(home, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 12)
    with served(home.settings) as page, ExitStack() as stack:
        known = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)))
        for _ in range(2):
            known.request("GET", "/tasks")
            with known.getresponse() as answer:
                assert (answer.status, bool(answer.read())) == (200, True)
            places = [one.transport.get_extra_info("socket") for one in page.server._server.server_state.connections]
            sizes = {one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for one in places}
            assert max(sizes) <= 2 * server.SEND_BUFFER, "what the kernel holds counts as read"
            for data in (b"", REQUEST, FORM) * 8:
                sending(stack, page, data)
            assert page.get("/tasks").status == 200


def test_a_client_that_lets_the_server_wait_is_ended(home, monkeypatch, caplog):
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    with served(home.settings) as page, ExitStack() as stack:
        again = REQUEST + b"\r\n" + REQUEST  # half a request after a whole one
        for client in [sending(stack, page, data) for data in (b"", REQUEST, FORM, again)]:
            with client.makefile("rb") as answer:
                answer.read()  # to the end, which comes
    assert "Traceback" not in caplog.text


def test_a_client_that_does_not_read_is_ended_after_the_limit_or_when_all_leave_too_much_unread(home, monkeypatch):
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(rendering, "static", lambda _name: b"x" * LARGE)
    for seconds, most in ((0.2, 1 << 30), (60, 8 << 20)):
        monkeypatch.setattr(connections, "WAIT_SECONDS", seconds)
        monkeypatch.setattr(connections, "MOST_UNREAD", most)
        with served(home.settings) as page, ExitStack() as stack:
            client = sending(stack, page, b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(1, socket.MSG_PEEK)
            open_ones = page.server._server.server_state.connections
            until(lambda ones=open_ones: not ones, "the end by the server", 20)
            with client.makefile("rb") as answer, suppress(ConnectionError):
                assert len(answer.read()) < LARGE


def test_many_clients_of_a_large_page_do_not_hold_the_other_pages(home, monkeypatch):
    goes_on = threading.Event()
    monkeypatch.setattr(app, "PAGE_SECONDS", 2.0)
    monkeypatch.setattr("agent.dashboard.pages.task_parts.change", lambda *_: goes_on.wait(30))
    change = f"GET /tasks/{DONE}/change HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(home.settings) as page, ExitStack() as stack:
        for _ in range(8):
            sending(stack, page, change.encode())
        assert [page.get(path).status for path in ("/tasks", f"/tasks/{DONE}", "/health")] == [200] * 3
        goes_on.set()
