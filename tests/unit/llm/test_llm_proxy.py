"""Proxies of the environment: used when they work, named when they do not; real sockets, a real SOCKS 5 server.

The model's server has a name that only the proxy can look up, as nothing that is this machine goes through one.
"""

import socket

import pytest
from llm_servers import Script, client_for, says
from socks_server import SocksServer

from agent import clock
from agent.errors import ConfigError, ModelUnreachable

FAR = "http://models.far.example"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with Script(says("openai", "done")) as made:
        yield made


def closed_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def asked(tmp_path, url):
    client, store = client_for("openai", url, tmp_path)
    store.add_message("user", "u")
    try:
        with clock.use(clock.FakeClock()):
            return client.get_response()[0]
    finally:
        client.close()
        store.close()


def far(server):
    return f"{FAR}:{server.server.server_address[1]}"


@pytest.mark.parametrize("scheme", ["socks5h", "socks", "SOCKS5H"])
@pytest.mark.parametrize("variable", ["ALL_PROXY", "all_proxy", "http_proxy"])
def test_a_request_goes_through_a_socks_proxy(tmp_path, monkeypatch, server, scheme, variable):
    with SocksServer() as proxy:
        monkeypatch.setenv(variable, f"{scheme}://127.0.0.1:{proxy.port}")
        assert asked(tmp_path, far(server)) == "done"
    assert proxy.asked
    assert {host for host, _ in proxy.asked} == {"models.far.example"}


def test_a_socks_proxy_with_a_login_and_names_looked_up_here(tmp_path, monkeypatch, server):
    with SocksServer(("me", "geheim77")) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"socks5h://me:geheim77@127.0.0.1:{proxy.port}")
        assert asked(tmp_path, far(server)) == "done"
    assert proxy.asked


def test_this_machine_is_never_asked_for_through_a_proxy(tmp_path, monkeypatch, server):
    monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{closed_port()}")
    assert asked(tmp_path, server.url) == "done"


@pytest.mark.parametrize("scheme", ["socks5h", "socks5", "http"])
def test_a_proxy_that_is_down_is_named_without_its_password(tmp_path, monkeypatch, scheme):
    port = closed_port()
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://me:geheim77@127.0.0.1:{port}")
    with pytest.raises(ModelUnreachable) as down:
        asked(tmp_path, "http://10.255.255.1:8080")
    words = str(down.value)
    assert f"{scheme}://127.0.0.1:{port}" in words
    assert "ALL_PROXY" in words
    assert "refused" in words
    assert "NO_PROXY" in words
    assert "geheim77" not in words
    assert "base_url" not in words


@pytest.mark.parametrize(("login", "refuse"), [(("me", "other"), 0), (None, 2)])
def test_a_proxy_that_does_not_let_us_through_is_named(tmp_path, monkeypatch, login, refuse):
    with SocksServer(login, refuse) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"socks5h://me:geheim77@127.0.0.1:{proxy.port}")
        with pytest.raises(ModelUnreachable, match="HTTP_PROXY") as refused:
            asked(tmp_path, FAR)
    assert "geheim77" not in str(refused.value)


@pytest.mark.parametrize("value", ["ftp://proxy:1", "socks6://proxy:1", "socks5://", "http://proxy:port", "//:80"])
def test_an_address_that_is_no_proxys_is_told_by_the_variable(tmp_path, monkeypatch, value):
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(ConfigError, match=r"environment ALL_PROXY: .*socks5h://"):
        asked(tmp_path, FAR)


def test_a_host_in_no_proxy_is_asked_directly(tmp_path, monkeypatch, server):
    monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("NO_PROXY", "models.far.example")
    with pytest.raises(ModelUnreachable) as unknown:
        asked(tmp_path, far(server))
    assert "ALL_PROXY" not in str(unknown.value)
