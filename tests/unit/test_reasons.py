"""What a person reads of a foreign error."""

import socket

import pytest
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NameResolutionError, NewConnectionError

from agent.error_text import LONGEST, named, reason
from agent.errors import ModelUnreachable
from agent.llm.transport import Transport


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (
            OSError("Error 111 connecting to localhost:6379. Connection refused."),
            "connecting to localhost:6379. Connection refused.",
        ),
        (OSError("two\nlines"), "two lines"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("outer", KeyError("inner")), "'inner'"),
        (NewConnectionError(HTTPConnection("a.example"), "[Errno 111] Connection refused"), "Connection refused"),
        (
            NameResolutionError("a.example", HTTPConnection("a.example"), socket.gaierror(-2, "not known")),
            "Failed to resolve 'a.example'",
        ),
    ],
)
def test_what_a_program_prints_around_it_is_left_out(error, words):
    assert reason(error) == words


def test_a_server_that_is_down_is_told_by_its_address_and_without_a_number():
    transport = Transport(f"openai at 127.0.0.1:{(port := closed_port())}", {}, idle=5, whole=5)
    with pytest.raises(ModelUnreachable) as caught:
        transport.fetch("GET", f"http://127.0.0.1:{port}/v1/models")
    assert f"127.0.0.1:{port} cannot be reached: Connection refused. Is the server running" in str(caught.value)
    assert "Errno" not in str(caught.value)


class Mute(Exception):
    """The error of a plug-in that cannot even say what happened."""

    def __str__(self):
        raise AttributeError("no attribute 'message'")


def test_an_error_without_a_readable_text_is_named_by_its_class():
    assert named(Mute()) == "Mute: (its text cannot be read: AttributeError)"
    assert reason(Mute()) == "(its text cannot be read: AttributeError)"
    assert named(ValueError("two\nlines")) == "ValueError: two\nlines"
    assert len(named(ValueError("x" * 10_000_000))) == LONGEST
