"""The small HTTP server of metrics and webhooks: its end."""

import http.client
import socket
import threading

import pytest

from agent.observe.http_server import HttpServer


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_server_that_is_closed_takes_no_connection_and_the_request_that_it_answers_is_answered(address):
    begun, go_on = threading.Event(), threading.Event()

    def app(_environ, start_response):
        start_response("200 OK", [("Content-Length", "4")])
        begun.set()
        go_on.wait(30)
        return [b"done"]

    server = HttpServer("test", app)
    port = server.start(address, 0)
    client = http.client.HTTPConnection(address, port, timeout=30)
    try:
        client.request("GET", "/")
        assert begun.wait(30)
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, port), timeout=30)
        go_on.set()
        assert client.getresponse().read() == b"done"
    finally:
        go_on.set()
        client.close()
