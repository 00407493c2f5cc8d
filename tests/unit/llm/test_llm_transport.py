"""The way bytes go: time-outs, stops, cuts, and what is not sent along."""

import io
import threading

import pytest
from llm_servers import Reply, Script, Stop, client_for, openai_events, says

from agent import clock, deadline
from agent.errors import ConfigError, Fenced, ModelStalled, ModelUnreachable
from agent.llm.base import Interrupted
from agent.llm.transport import Transport
from agent.values import End, Outcome


@pytest.fixture
def talk(tmp_path):
    made = []

    def start(*replies, **more):
        server = Script(*replies)
        client, store = client_for("openai", server.url, tmp_path, **more)
        store.add_message("user", "u")
        made.append((client, server))
        return client, store, server

    yield start
    for client, server in made:
        client.close()
        server.close()


def transport_to(*, idle=5.0, whole=5.0, control=None):
    return Transport("test", {}, idle=idle, whole=whole, control=control)


def test_silence_is_a_stall(tmp_path):
    with Script(Reply(openai_events("x")[:1], hold=30.0)) as server:
        path = tmp_path / "body"
        path.write_bytes(b"{}")
        transport = transport_to(idle=0.15)
        with (
            pytest.raises(ModelStalled, match="idle_timeout"),
            path.open("rb") as body,
            transport.post(server.url, body) as stream,
        ):
            list(stream.lines())
        server.released.set()
        transport.close()


def test_a_call_is_a_step_that_is_overdue_soon_after_its_whole_time():
    transport = transport_to(whole=7.0)
    deadline.begin()
    try:
        with Script(says("openai", "x")) as server, transport.post(server.url, io.BytesIO(b"{}")) as stream:
            now = deadline.current()
            assert now.name == "test"
            assert now.until - now.since == pytest.approx(7.0 + deadline.MARGIN)
            list(stream.lines())
    finally:
        deadline.finish()
        transport.close()


def test_a_drip_that_never_ends_is_cut_at_the_whole_time(tmp_path):
    drip = [b": ping\n\n", 0.05] * 200
    with Script(Reply(drip)) as server:
        path = tmp_path / "body"
        path.write_bytes(b"{}")
        transport = transport_to(whole=0.3)
        with (
            pytest.raises(ModelStalled, match="timeout"),
            path.open("rb") as body,
            transport.post(server.url, body) as stream,
        ):
            list(stream.lines())
        transport.close()


def test_a_call_that_took_too_long_is_not_tried_again(talk):
    client, store, server = talk(says("openai", "x", before=30.0), timeout=0.3)
    with pytest.raises(ModelStalled, match="timeout"):
        client.get_response()
    server.released.set()
    assert len(server.asked) == 1
    assert store.count_messages() == 1


def test_a_stop_in_the_middle_of_a_stream_leaves_nothing(talk):
    outcome = Outcome(End.DRAINED)
    client, store, server = talk(Reply(openai_events("half an answer")[:2], hold=30.0), control=Stop(outcome, looks=0))
    with pytest.raises(Interrupted) as stopped:
        client.get_response()
    server.released.set()
    assert stopped.value.outcome is outcome
    assert store.count_messages() == 1


def test_a_stop_while_waiting_between_tries_ends_at_once(talk):
    outcome = Outcome(End.PAUSED)
    client, store, server = talk(Reply({"error": "busy"}, 503), control=Stop(outcome, looks=0))
    with clock.use(clock.FakeClock()) as fake, pytest.raises(Interrupted):
        client.get_response()
    assert fake.slept == []
    assert len(server.asked) == 1
    assert store.count_messages() == 1


def test_what_the_control_raises_is_raised_where_the_call_waits(talk):
    class Gone:
        def poll(self, *, answering=False):
            raise Fenced("a newer attempt owns the task")

    client, store, server = talk(says("openai", "x", before=30.0), control=Gone())
    with pytest.raises(Fenced):
        client.get_response()
    server.released.set()
    assert store.count_messages() == 1


def test_one_thread_watches_call_after_call_and_ends_with_the_client(talk):
    client, _, _ = talk(says("openai", "x"), says("openai", "y"))
    client.get_response()
    client.message_store.add_message("user", "And then?")
    client.get_response()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("llm-watch")] == ["llm-watch_0"]
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("llm-watch")]


def test_a_body_that_is_shorter_than_announced_is_a_cut(talk):
    short = Reply(
        b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}',
        headers={"Content-Length": "5000"},
        plain=True,
    )
    client, store, _server = talk(short, says("openai", "whole"))
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "whole"
    assert store.count_messages() == 2


def test_a_netrc_file_does_not_replace_the_key(talk, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    client, _, server = talk(says("openai", "x"), api_key="the-key-itself")
    client.get_response()
    assert server.asked[0].headers["authorization"] == "Bearer the-key-itself"


def test_without_a_key_no_authorization_is_sent(talk):
    client, _, server = talk(says("openai", "x"))
    client.get_response()
    assert "authorization" not in server.asked[0].headers


def test_the_request_is_sent_with_its_length_and_without_chunks(talk):
    client, _, server = talk(says("openai", "x"))
    client.get_response()
    headers = server.asked[0].headers
    assert int(headers["content-length"]) == len(server.asked[0].body)
    assert "transfer-encoding" not in headers
    assert headers["content-type"] == "application/json"


def test_a_server_that_speaks_no_tls_is_said_so(tmp_path):
    with Script(says("openai", "x")) as server:
        client, store = client_for("openai", server.url.replace("http:", "https:"), tmp_path)
        store.add_message("user", "u")
        with (
            clock.use(clock.FakeClock()),
            pytest.raises(ModelUnreachable, match="TLS failed: it does not speak TLS on this port; check"),
        ):
            client.get_response()
        client.close()


def test_an_error_body_that_never_ends_does_not_fill_the_memory(talk):
    client, _, server = talk(Reply([b"x" * 65536] * 40, 400))
    with pytest.raises(Exception, match="answered 400"):
        client.get_response()
    assert len(server.asked) == 1


def test_an_address_that_cannot_be_one_is_a_configuration_error(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(b"{}")
    transport = Transport("test", {}, idle=1, whole=1)
    with (
        pytest.raises(ConfigError, match="base_url"),
        path.open("rb") as body,
        transport.post("http://exa mple\x00/", body),
    ):
        pass
    transport.close()


def test_one_connection_serves_many_questions(talk):
    client, _, server = talk(says("openai", "x"))
    for _ in range(3):
        client.transport.fetch("POST", server.url + "/v1/thing", json={}, seconds=5)
    assert len(client.transport.sockets._open) == 1


def test_a_connection_that_died_between_two_turns_is_made_again(talk):
    client, store, server = talk(
        Reply(openai_events("one"), headers={"Content-Type": "text/event-stream"}), says("openai", "two")
    )
    client.get_response()
    client.transport.sockets.shut()
    store.add_message("user", "v")
    with clock.use(clock.FakeClock()):
        assert client.get_response()[0] == "two"
    assert server.asked


def test_a_proxy_for_the_world_is_not_asked_for_this_machine(talk, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    client, _, server = talk(says("openai", "x"))
    assert client.get_response()[0] == "x"
    assert len(server.asked) == 1


def test_a_proxy_is_used_for_other_hosts_and_can_be_stopped_too(tmp_path, monkeypatch):
    with Script(says("openai", "through the proxy")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        client, store = client_for("openai", "http://model.example/v1", tmp_path)
        store.add_message("user", "u")
        assert client.get_response()[0] == "through the proxy"
        assert proxy.asked[0].path == "http://model.example/v1/chat/completions"
        assert client.transport.sockets._open
        client.close()
