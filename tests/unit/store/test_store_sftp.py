"""A replica on an SFTP server: OpenSSH's own, on loopback, with keys."""

import socket
import threading
from urllib.parse import urlsplit

import pytest
import sftp_server

from agent.commands.doctor_shared_services import replica
from agent.errors import ConfigError, ReplicaAway
from agent.store import sftp
from agent.store.remote_storage import RemoteFolder

pytest.importorskip("paramiko")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sftp_server.sshd(tmp_path_factory.mktemp("sshd")) as made:
        yield made


@pytest.fixture
def place(server, tmp_path):
    made = RemoteFolder(server.address(tmp_path / "deep" / "replica"))
    yield made
    made.close()


def test_files_are_written_read_listed_and_removed(place, tmp_path):
    assert place.names("a") == []
    assert place.get("a/b/c") is None
    place.put("a/b/c", b"one")
    place.put("a/b/c", b"another\0")
    place.put("a/d", b"x" * 3_000_000)
    assert place.get("a/b/c") == b"another\0"
    assert place.get("a/d") == b"x" * 3_000_000
    assert place.names("a") == ["a/b/c", "a/d"]
    place.remove(["a/d", "a/never"])
    assert place.names("a") == ["a/b/c"]
    assert place.remove_all("a") == 1
    assert place.remove_all("a") == 0
    assert list((tmp_path / "deep" / "replica").iterdir()) == []


def test_a_connection_that_was_cut_is_reported_once_and_opened_again(server, place):
    place.put("x", b"1")
    server.cut()
    with pytest.raises(ReplicaAway, match=r"sftp://.* does not answer as it should"):
        place.put("x", b"2")
    place.put("x", b"3")
    assert place.get("x") == b"3"


def test_a_server_that_is_not_there_is_away_and_no_fault_of_the_configuration(server, place):
    place.put("x", b"1")
    server.stop()
    for _ in range(2):
        with pytest.raises(ReplicaAway):
            place.put("x", b"2")
    server.start()
    place.put("x", b"2")
    assert place.get("x") == b"2"


def test_a_server_with_an_unknown_key_is_not_used(server, tmp_path):
    address = server.address(tmp_path, known_hosts=tmp_path / "none")
    with pytest.raises(ReplicaAway, match=r"ssh-ed25519 key SHA256:\S+ of \[127\.0\.0\.1\].* is in none of .*/none"):
        RemoteFolder(address).put("x", b"1")
    assert not (tmp_path / "x").exists()


def test_a_server_with_another_key_than_the_known_one_is_not_used(server, tmp_path):
    server.know(server.key)  # a key of the same kind
    try:
        with pytest.raises(ReplicaAway, match="is not the known one"):
            RemoteFolder(server.address(tmp_path)).put("x", b"1")
    finally:
        server.know(server.host_key)
    assert not (tmp_path / "x").exists()


def test_a_login_that_is_refused_is_named_without_the_secret(server, tmp_path):
    address = server.address(tmp_path).replace("@", ":pass-word@", 1).replace("key_filename", "passphrase")
    with pytest.raises(ReplicaAway, match=r"(?i)authentication") as found:
        RemoteFolder(address).put("x", b"1")
    assert "pass-word" not in str(found.value)


def test_a_folder_without_rights_is_away(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReplicaAway):
        RemoteFolder(server.address(tmp_path / "file" / "below")).put("x", b"1")


def test_a_server_that_never_answers_ends_the_wait(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        accepted = []
        taker = threading.Thread(target=lambda: accepted.append(silent.accept()), daemon=True)
        taker.start()
        address = f"sftp://me@127.0.0.1:{port}/x?banner_timeout=0.5&look_for_keys=false&allow_agent=false"
        with pytest.raises(ReplicaAway):
            RemoteFolder(address).put("x", b"1")
        taker.join()
        accepted[0][0].close()


def test_every_answer_has_a_time_limit(server, tmp_path):
    address = server.address(tmp_path)
    made = sftp.connect(sftp.check_options(address, urlsplit(address)))
    try:
        assert made.ftp.get_channel().gettimeout() == sftp.ANSWER_SECONDS
    finally:
        sftp.close(made)


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("sftp://me@host/x?hostkey=no", "has the option 'hostkey'; allowed are known_hosts"),
        ("sftp://me@host/x?timeout=soon", "timeout must be a number of seconds"),
        ("sftp://me@host/x?allow_agent=perhaps", "allow_agent must be true or false"),
        ("sftp:///x", "has no host"),
    ],
)
def test_a_wrong_option_is_named(address, fault):
    with pytest.raises(ConfigError, match=fault.replace("?", r"\?")):
        RemoteFolder(address)


def test_user_and_password_are_decoded():
    address = "sftp://me%40corp:p%3Aw@host:2222/x"
    found = sftp.check_options(address, urlsplit(address))
    assert (found["host"], found["port"], found["username"], found["password"]) == ("host", 2222, "me@corp", "p:w")


def test_doctor_tries_it(server, tmp_path):
    assert replica(server.address(tmp_path / "replica"))[0]
    ok, text, _ = replica(server.address(tmp_path, known_hosts=tmp_path / "none"))
    assert not ok
    assert "ssh-keyscan" in text
