"""Entries of the allow-lists of hosts: what is understood, what is refused with what to write, what fits."""

from ipaddress import ip_address, ip_network

import pytest
import yaml

from agent.config import host_allowlist, private_addresses
from agent.config.loading import load
from agent.errors import ConfigError


def loaded(folder, **sections):
    (folder / "config.yaml").write_text(yaml.safe_dump(sections))
    return load(folder / "config.yaml", environ={})


@pytest.mark.parametrize(
    ("entry", "host", "ports", "at"),
    [
        ("pypi.org", "pypi.org", (443, 80), None),
        ("PyPI.org.", "pypi.org", (443, 80), None),
        ("*.example.org", "*.example.org", (443, 80), None),
        ("*", "*", (443, 80), None),
        ("git.example.org:8443", "git.example.org", (8443,), None),
        ("index@10.1.2.0/24", "index", (443, 80), "10.1.2.0/24"),
        ("index.corp:8080@10.1.2.3", "index.corp", (8080,), "10.1.2.3/32"),
        ("index.corp@fd12::/64", "index.corp", (443, 80), "fd12::/64"),
        ("10.1.2.3", "10.1.2.3", (443, 80), "10.1.2.3/32"),
        ("[FD12::0:1]:81", "fd12::1", (81,), "fd12::1/128"),
        ("bücher.example", "xn--bcher-kva.example", (443, 80), None),
    ],
)
def test_an_entry_says_host_ports_and_network(entry, host, ports, at):
    assert host_allowlist.parse(entry) == host_allowlist.AllowedHost(host, ports, ip_network(at) if at else None)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "https://pypi.org", "pypi.org/simple", "a b", "a:0", "a:70000", "a:x", "*.", "a.*", "-a.b", "a..b"),
        *("fd12::1", "a@", "a@b", "a@10.0.0.0/40", "[1.2.3.4", "a@[::1]", "x" * 64, "[fe80::1%eth0]", 7, True, None),
    ],
)
def test_what_is_no_entry_is_refused_with_what_is_allowed(tmp_path, entry):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, sandbox={"network": [entry]})
    assert "sandbox.network, entry 1: found" in str(caught.value)
    assert "names like pypi.org, *.example.org or *" in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        *("127.0.0.1", "[::1]", "a@127.0.0.0/8", "a@169.254.169.254", "169.254.1.1", "a@fe80::/64", "a@224.0.0.1"),
        *("localhost", "LocalHost.", "localhost:8080", "api.localhost", "*.localhost", "localhost@10.0.0.0/8"),
        *("ip6-loopback", "localhost.localdomain", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0"),
    ],
)
def test_an_entry_for_what_nothing_opens_is_refused_with_the_reason(tmp_path, entry):
    with pytest.raises(ConfigError, match="which no command may reach; take the entry out"):
        loaded(tmp_path, sandbox={"network": [entry]})


@pytest.mark.parametrize("entry", ["localhost.example.org", "mylocalhost", "box.localdomain", "1.example", "8.8"])
def test_a_name_that_only_looks_like_the_loopback_one_is_a_name(entry):
    assert host_allowlist.parse(entry).host == entry


@pytest.mark.parametrize(
    ("entry", "host", "fits"),
    [
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "badexample.org", False),
        ("*.example.org", "example.org.evil.net", False),
        ("example.org", "a.example.org", False),
        ("*", "anything.net", True),
    ],
)
def test_which_names_an_entry_is_about(entry, host, fits):
    assert host_allowlist.parse(entry).fits(host) == fits


@pytest.mark.parametrize(
    ("written", "read"), [(True, ("*",)), (False, ()), (["pypi.org"], ("pypi.org",)), ([], ()), ("true", ("*",))]
)
def test_the_set_ups_network_may_still_be_true_or_false(tmp_path, written, read):
    settings = loaded(tmp_path, workspace={"setup": {"command": "make", "network": written}})
    assert settings.workspace.setup.network == read
    (tmp_path / "config.yaml").write_text("workspace: {setup: {command: make}}")
    word = ",".join(written) if isinstance(written, list) else str(written).lower()
    if word:
        again = load(tmp_path / "config.yaml", environ={"AGENT__WORKSPACE__SETUP__NETWORK": word})
        assert again.workspace.setup.network == read


def test_the_set_up_reaches_its_own_hosts_and_those_of_every_command(tmp_path):
    settings = loaded(
        tmp_path,
        sandbox={"network": ["a.org", "b.org"]},
        workspace={"setup": {"command": "m", "network": ["b.org", "c.org"]}},
    )
    assert settings.setup_hosts(settings.workspace.setup) == ("b.org", "c.org", "a.org")


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "127.8.8.8", "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "224.0.0.1"),
        *(
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "2001:db8::1",
        ),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "203.0.113.5"),
    ],
)
def test_these_addresses_are_never_reached(address):
    assert private_addresses.never_reachable(private_addresses.effective_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "172.31.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "fc00::1", "198.18.0.1"),
        *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
    ],
)
def test_these_addresses_are_private(address):
    real = private_addresses.effective_address(address)
    assert private_addresses.private_kind(real)
    assert not private_addresses.never_reachable(real)


@pytest.mark.parametrize("address", ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "172.32.0.1"])
def test_these_are_public(address):
    real = private_addresses.effective_address(address)
    assert not private_addresses.private_kind(real)
    assert not private_addresses.never_reachable(real)


def test_nothing_that_python_holds_for_not_public_is_taken_for_public():
    """By a sample of each network that `ipaddress` knows, whatever its version."""
    samples = [ip_network(network) for network, _ in (*private_addresses.PRIVATE, *private_addresses.NEVER)]
    outside = [network[-1] + 1 for network in samples if int(network[-1]) + 1 < 2**network.max_prefixlen]
    for address in outside:
        if not (
            private_addresses.never_reachable(private_addresses.effective_address(address))
            or private_addresses.private_kind(private_addresses.effective_address(address))
        ):
            assert address.is_global, address
            assert not address.is_multicast
    assert ip_address("8.8.8.8").is_global
