"""Which host is reached, at which address, by whose proxy."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import certificates
import pytest
from outside import World
from socks_server import SocksServer

from agent.config.host_allowlist import parse_all
from agent.errors import HostRefused, HostUnreached
from agent.sandbox.network.dial import Dialer, is_own
from agent.sandbox.network.relay import relay

PUBLIC = "93.184.215.14"


@contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, server.getsockname()[1]


@pytest.fixture
def world():
    return World()


def refused(world, allowed, host, port=443):
    with pytest.raises(HostRefused) as caught:
        world.dialer(parse_all(allowed)).open(host, port, "https")
    assert world.asked == []
    return str(caught.value)


def test_a_name_is_looked_up_once_and_its_judged_address_is_connected_to(world):
    with listening() as (_, port):
        world.put("a.example.org", 443, port)
        world.dialer(parse_all(["a.example.org"])).open("a.example.org", 443, "https").close()
    assert world.looked_up == ["a.example.org"]
    assert world.asked == [(PUBLIC, 443)], "the address, and not the name, which could be looked up anew"


def test_a_name_that_is_not_in_the_list_is_not_even_looked_up(world):
    assert refused(world, ["a.example.org"], "b.example.org") == "b.example.org is not in sandbox.network"
    assert "port 22 of a.example.org" in refused(world, ["a.example.org"], "a.example.org", 22)
    assert "only 80 and 443" in refused(world, ["a.example.org"], "a.example.org", 22)
    assert world.looked_up == []


def test_an_address_of_the_public_network_behind_a_translation_is_connected_to(world):
    with listening() as (_, port):
        world.put("a.example.org", 443, port, address="64:ff9b::101:101")
        world.dialer(parse_all(["*"])).open("a.example.org", 443, "https").close()


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("10.0.0.5", "private"),
        ("169.254.169.254", "link-local"),
        ("::ffff:10.0.0.5", "private"),
        ("64:ff9b::7f00:1", "loopback"),
        ("fe80::1%eth0", "link-local"),
        ("0.0.0.0", "this host"),
        ("100.64.0.9", "provider"),
    ],
)
def test_a_name_that_leads_to_an_inner_address_is_refused(world, address, word):
    world.names["a.example.org"] = [address]
    assert word in refused(world, ["a.example.org"], "a.example.org")
    assert word in refused(world, ["*"], "a.example.org")


def test_of_several_addresses_only_those_that_may_be_are_connected_to(world):
    with listening() as (_, port):
        world.put("a.example.org", 443, port)
        world.names["a.example.org"] = ["127.0.0.1", "10.0.0.1", "93.184.215.1", PUBLIC]
        world.dialer(parse_all(["*"])).open("a.example.org", 443, "https").close()
    assert world.asked == [("93.184.215.1", 443), (PUBLIC, 443)]


def test_a_private_index_is_reached_where_the_entry_names_its_network_and_nowhere_else(world):
    with listening() as (_, port):
        world.put("index.corp", 443, port, address="10.1.2.3")
        dialer = world.dialer(parse_all(["index.corp@10.1.2.0/24", "*"]))
        dialer.open("index.corp", 443, "https").close()
        world.asked.clear()
    world.names["index.corp"] = ["10.1.3.3"]
    assert "an entry of sandbox.network names it" in refused(world, ["index.corp@10.1.2.0/24"], "index.corp")
    world.names["index.corp"] = [PUBLIC]
    assert "which is not in 10.1.2.0/24" in refused(world, ["index.corp@10.1.2.0/24"], "index.corp")
    world.names["index.corp"] = ["127.0.0.1"]
    assert "loopback" in refused(world, ["index.corp@0.0.0.0/0"], "index.corp")


def test_an_address_of_this_machine_is_known_by_the_source_that_the_kernel_would_choose():
    assert is_own(ip_address("127.0.0.1"))
    assert not is_own(ip_address(PUBLIC))


SEVERAL = """
import sys
from ipaddress import ip_address
from agent.config.host_allowlist import parse_all
from agent.sandbox.network.dial import Dialer, is_own
for address in sys.argv[1:]:
    entries = [parse_all([entry]) for entry in ("a.corp@10.1.2.0/24", "a.corp@10.1.2.3", "*")]
    refused = [Dialer(one).refusal(ip_address(address), one) for one in entries]
    print(is_own(ip_address(address)), *["own" in why and "own network" not in why for why in refused])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a network addresses")
def test_every_address_of_this_machine_is_its_own_and_opened_by_its_very_name_alone():
    """In a network of this test alone.  To 10.1.2.3 the kernel connects from 10.1.2.2, the first of that network."""
    made = ["ip link set lo up", *(f"ip addr add {one} dev lo" for one in ("10.1.2.2/24", "10.1.2.3/24", "9.1.1.1/24"))]
    made += ["ip addr add 9.1.1.2/24 dev lo"]
    asked = ["10.1.2.2", "10.1.2.3", "10.1.3.4", "9.1.1.1", "9.1.1.2", "9.1.2.3", "::1"]
    script = " && ".join([*made, f'exec "$0" -c "$1" {" ".join(asked)}'])
    command = ["unshare", "-n", "sh", "-c", script, sys.executable, SEVERAL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    if done.returncode and not done.stdout:
        pytest.skip(f"no network of its own: {done.stderr}")
    assert done.stdout.splitlines() == [
        "True True True True",
        "True True False True",
        "False False False False",
        *["True True True True"] * 2,
        "False False False False",
        "True False False False",
    ]


def test_a_name_that_nobody_knows_and_a_host_that_does_not_answer_are_no_refusals(world):
    with pytest.raises(HostUnreached, match=r"a\.example\.org is not known: Name or service not known"):
        world.dialer(parse_all(["*"])).open("a.example.org", 443, "https")
    world.names["a.example.org"] = [PUBLIC]
    with pytest.raises(HostUnreached, match=r"a\.example\.org:443 was not reached: Connection refused"):
        world.dialer(parse_all(["*"])).open("a.example.org", 443, "https")


class Tunnels:
    """A proxy for CONNECT alone, on the loopback, that answers with `status`; `heads` is what it was asked."""

    def __init__(self, status="200 OK"):
        self.status = status
        self.heads = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            with client:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(1000)
                self.heads.append(head.decode())
                client.sendall(f"HTTP/1.1 {self.status}\r\nVia: x\r\n\r\nhello".encode())
                with suppress(OSError):
                    client.recv(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join()


def outward(environ, world, allowed=("*",)):
    return Dialer(parse_all(allowed), proxies=environ, look_up=world.look_up)


def test_the_proxy_that_this_host_needs_is_asked_by_name_with_its_login(world):
    with Tunnels() as proxy:
        environ = {"HTTPS_PROXY": f"http://me:s%40crt@127.0.0.1:{proxy.port}"}
        with outward(environ, world).open("a.example.org", 443, "https") as made:
            assert made.recv(5) == b"hello", "no byte of the other side is swallowed"
    (head,) = proxy.heads
    assert head.startswith("CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n")
    assert "Proxy-Authorization: Basic bWU6c0BjcnQ=" in head


def test_a_name_that_this_host_knows_for_an_inner_one_is_not_asked_of_the_proxy(world):
    world.names["a.example.org"] = ["10.0.0.1"]
    with Tunnels() as proxy:
        with pytest.raises(HostRefused, match="private"):
            outward({"ALL_PROXY": f"http://127.0.0.1:{proxy.port}"}, world).open("a.example.org", 443, "https")
        with pytest.raises(HostRefused, match="loopback"):
            outward({"ALL_PROXY": f"http://127.0.0.1:{proxy.port}"}, world).open("127.0.0.1", 443, "https")
        assert proxy.heads == []


def test_a_proxy_that_refuses_is_said_without_its_password(world):
    with Tunnels("407 Proxy Authentication Required") as proxy:
        environ = {"HTTPS_PROXY": f"http://me:s3cr3t@127.0.0.1:{proxy.port}"}
        with pytest.raises(HostUnreached) as caught:
            outward(environ, world).open("a.example.org", 443, "https")
    assert "by way of the proxy of this host (HTTPS_PROXY)" in str(caught.value)
    assert "407" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_no_proxy_is_heard(world):
    with listening() as (_, port):
        world.put("a.example.org", 443, port)
        environ = {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": ".example.org"}
        world.dialer(parse_all(["*"]), proxies=environ).open("a.example.org", 443, "https").close()
    assert world.asked == [(PUBLIC, 443)]


@pytest.mark.parametrize(("scheme", "asked"), [("socks5h", "a.example.org"), ("socks5", PUBLIC)])
def test_socks_gets_the_name_or_the_judged_address(world, scheme, asked):
    world.names["a.example.org"] = [PUBLIC]
    with SocksServer(refuse=5) as server:
        with pytest.raises(HostUnreached):
            outward({"ALL_PROXY": f"{scheme}://127.0.0.1:{server.port}"}, world).open("a.example.org", 443, "https")
        assert server.asked == [(asked, 443)]


def test_a_proxy_that_is_spoken_to_with_tls_carries_both_ways_whole(world, tmp_path, monkeypatch):
    tls, authority = certificates.of_an_authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    large = bytes(range(256)) * 8192
    got = []

    def serve(server):
        with tls.wrap_socket(server.accept()[0], server_side=True) as client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            found = b""
            while len(found) < len(large):
                found += client.recv(1 << 20)
            got.append(found)
            client.sendall(large)
            with suppress(OSError):
                client.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as inside:
        thread = threading.Thread(target=serve, args=(proxy,), daemon=True)
        thread.start()
        environ = {"HTTPS_PROXY": f"https://localhost:{proxy.getsockname()[1]}"}
        outer = outward(environ, world).open("a.example.org", 443, "https")
        near = socket.create_connection(inside.getsockname())
        far, _ = inside.accept()
        passing = threading.Thread(
            target=relay,
            args=(far, outer),
            kwargs={"first": b"", "body": None, "idle": 20, "sent": lambda _n: None, "received": lambda _n: None},
            daemon=True,
        )
        passing.start()
        with near, far, outer:
            near.settimeout(20)
            near.sendall(large)
            found = b""
            while len(found) < len(large):
                found += near.recv(1 << 20)
            near.close()
            passing.join(20)
    assert got == [large]
    assert found == large
    assert not passing.is_alive()
