"""The endpoint of webhooks over a real socket: which requests count, and what the others cost."""

import base64
import hashlib
import hmac
import http.client
import json
import re
import socket
import time
import uuid

import pytest
from forges.gitlab_place import GitLabPlace

from agent import clock
from agent.config import load
from agent.daemon.pokes import Pokes
from agent.daemon.pollers import PolledSource
from agent.daemon.webhooks import MOST_BYTES, REMEMBERED, Webhooks
from agent.errors import ConfigError, HostError
from agent.forge.markers import marker, with_markers
from agent.observe.http_server import HttpServer
from agent.values import Public

SECRET = "a-secret-of-this-test-0"
KEY = b"0123456789abcdef0123456789abcdef"
TOKEN = "whsec_" + base64.b64encode(KEY).decode()
GITHUB = json.dumps({"action": "labeled", "repository": {"full_name": "acme/web"}}).encode()
GITLAB = json.dumps({"object_kind": "issue", "project": {"path_with_namespace": "acme/sub/web"}}).encode()


class Endpoint:
    """The server; `hooks` are the requests that counted, `events` the events."""

    def __init__(self, secret=SECRET, seconds=10.0, most=16):
        self.hooks, self.events = [], []
        app = Webhooks(secret, self.poke, lambda name, **fields: self.events.append((name, fields)))
        self.server = HttpServer("poke.listen", app, most=most, seconds=seconds)
        self.port = self.server.start("127.0.0.1", 0)

    def poke(self, hook):
        if hook.sender == "makimono":  # as `Pollers.poke` leaves out a source with this account
            return []
        self.hooks.append((hook.kind, hook.project))
        return ["github https://api.github.com"]

    def ask(self, body, headers, *, verb="POST", path="/poke"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(verb, path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def endpoint():
    made = []

    def make(*args, **more):
        made.append(Endpoint(*args, **more))
        return made[-1]

    yield make
    for one in made:
        one.server.close()


def digest(body, secret=SECRET):
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def github(body, secret=SECRET, **more):
    """Headers of https://docs.github.com/en/webhooks/webhook-events-and-payloads, "Delivery headers"."""
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": f"sha256={digest(body, secret)}",
    } | more


def gitlab_signed(body, key=KEY, at=None):
    """Headers of a GitLab webhook with a signing token (gitlab-org/gitlab!230944)."""
    name, stamp = str(uuid.uuid4()), str(int(at if at is not None else time.time()))
    tag = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "X-Gitlab-Event": "Issue Hook",
        "webhook-id": name,
        "Idempotency-Key": name,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(tag).decode()}",
    }


def test_each_host_signs_in_its_own_way(endpoint):
    here = endpoint()
    assert here.ask(GITHUB, github(GITHUB)) == 202
    assert here.ask(GITLAB, {"X-Gitlab-Token": SECRET, "X-Gitlab-Event-UUID": "1"}) == 202
    forgejo = GITHUB + b" "
    both = {"X-Forgejo-Signature": digest(forgejo), "X-Hub-Signature-256": f"sha256={digest(forgejo)}"}
    assert here.ask(forgejo, both) == 202
    gitea = GITHUB + b"  "
    assert here.ask(gitea, {"X-Gitea-Signature": digest(gitea)}) == 202
    signed = endpoint(TOKEN)
    assert signed.ask(GITLAB, gitlab_signed(GITLAB)) == 202
    assert [*here.hooks, *signed.hooks] == [
        ("github", "acme/web"),
        ("gitlab", "acme/sub/web"),
        ("forgejo", "acme/web"),
        ("forgejo", "acme/web"),
        ("gitlab", "acme/sub/web"),
    ]
    assert [name for name, _ in here.events] == ["poked"] * 4


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (GITHUB, {}, 401),
        (GITHUB, github(GITHUB, "another-secret-altogether"), 403),
        (GITHUB + b"x", github(GITHUB), 403),
        (GITHUB, github(GITHUB, **{"X-Hub-Signature-256": digest(GITHUB)}), 403),  # without `sha256=`
        (GITHUB, github(GITHUB, **{"X-Hub-Signature-256": "sha256=\xff\xfe"}), 403),
        (
            GITHUB,
            github(GITHUB, **{"X-Forgejo-Signature": "0" * 64}),
            403,
        ),  # one wrong signature is not saved by another
        (GITHUB, {"X-Hub-Signature": "sha1=" + hmac.new(SECRET.encode(), GITHUB, hashlib.sha1).hexdigest()}, 401),
        (GITLAB, {"X-Gitlab-Token": SECRET[:-1]}, 403),
        (GITLAB, {"X-Gitlab-Token": SECRET, "webhook-signature": "v1,AAAA"}, 403),
    ],
)
def test_a_wrong_signature_causes_no_poll(endpoint, body, headers, status):
    here = endpoint()
    assert here.ask(body, headers) == status
    assert here.ask(body, headers) == status
    assert here.hooks == []
    assert [name for name, _ in here.events] == ["poke_refused"]  # once a minute for each reason
    assert SECRET not in str(here.events)


def test_an_old_signing_time_is_refused(endpoint):
    here = endpoint(TOKEN)
    for at in (time.time() - 301, time.time() + 301, 0):
        assert here.ask(GITLAB, gitlab_signed(GITLAB, at=at)) == 403
    assert here.ask(GITLAB, gitlab_signed(GITLAB) | {"webhook-timestamp": "1e9"}) == 403
    assert here.hooks == []


def test_a_repeated_delivery_causes_no_second_poll_also_under_another_id(endpoint):
    here = endpoint()
    headers = github(GITHUB)
    assert [here.ask(GITHUB, headers) for _ in range(3)] == [202, 200, 200]
    assert here.ask(GITHUB, github(GITHUB)) == 200  # the id is not signed, the body is
    other = GITHUB + b" "
    same_id = github(other) | {"X-GitHub-Delivery": headers["X-GitHub-Delivery"]}
    assert here.ask(other, same_id) == 200
    assert len(here.hooks) == 1


def test_a_bounded_number_of_deliveries_is_remembered():
    app = Webhooks(SECRET, lambda _hook: [], lambda *_, **__: None)
    for number in range(REMEMBERED):
        app._is_known(b"%d" % number, {"HTTP_X_GITHUB_DELIVERY": str(number)}, "github")
    assert len(app._seen) == REMEMBERED


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[]", b'{"repository": 7}', b'{"repository": {"full_name": {}}}', b"[" * 100_000]
)
def test_a_body_that_names_no_project_polls_all_sources_of_the_host(endpoint, body):
    here = endpoint()
    assert here.ask(body, github(body)) == 202
    assert here.hooks == [("github", "")]


def test_only_post_to_the_one_path_is_answered(endpoint):
    here = endpoint()
    assert here.ask(GITHUB, github(GITHUB), path="/") == 404
    assert here.ask(b"", {}, verb="GET") == 405
    assert here.hooks == []


def test_too_large_a_body_is_refused_before_it_is_read(endpoint):
    here = endpoint()
    with socket.create_connection(("127.0.0.1", here.port), timeout=30) as one:
        one.sendall(
            f"POST /poke HTTP/1.1\r\nHost: x\r\nX-Gitlab-Token: {SECRET}\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n".encode()
        )
        assert b" 413 " in one.recv(100)
    with socket.create_connection(("127.0.0.1", here.port), timeout=30) as one:
        one.sendall(f"POST /poke HTTP/1.1\r\nX-Gitlab-Token: {SECRET}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert b" 411 " in one.recv(100)
    large = GITHUB + b" " * (2 << 20)
    assert here.ask(large, github(large)) == 202
    assert here.hooks == [("github", "")]


def test_a_client_that_trickles_is_cut_and_many_of_them_do_not_take_all_threads(endpoint):
    here = endpoint(seconds=0.2, most=4)
    head = f"POST /poke HTTP/1.1\r\nX-Gitlab-Token: {SECRET}\r\nContent-Length: 10\r\n\r\n12".encode()
    slow = [socket.create_connection(("127.0.0.1", here.port), timeout=30) for _ in range(20)]
    for number, one in enumerate(slow):
        try:
            one.sendall(head if number % 2 else b"POST /po")
        except OSError:
            pass  # more than four at a time are closed at once
    for one in slow:
        with one:
            try:
                while one.recv(1000):
                    pass
            except OSError:
                pass  # it was reset
    deadline = time.monotonic() + 60
    while True:  # the last of them may be open for a moment
        try:
            assert here.ask(GITHUB, github(GITHUB)) == 202
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
    assert here.hooks == [("github", "acme/web")]


def test_a_port_in_use_is_an_error_with_the_key(endpoint):
    here = endpoint()
    with pytest.raises(HostError, match=rf"poke.listen: cannot listen on 127.0.0.1:{here.port}: "):
        HttpServer("poke.listen", lambda *_: []).start("127.0.0.1", here.port)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{listen: '0.0.0.0:8080', secret: 0123456789abcdef}", "127.0.0.1:PORT or [::1]:PORT: this machine only"),
        ("{listen: '192.168.1.2:8080', secret: 0123456789abcdef}", "poke.listen"),
        ("{listen: 'localhost:8080', secret: 0123456789abcdef}", "127.0.0.1:PORT"),
        ("{listen: '127.0.0.1:0', secret: 0123456789abcdef}", "127.0.0.1:PORT"),
        ("{listen: '127.0.0.1:8080'}", "listen needs a secret of 16 characters or more"),
        ("{listen: '127.0.0.1:8080', secret: short}", "listen needs a secret of 16 characters or more"),
    ],
)
def test_an_address_that_others_reach_or_a_weak_secret_is_refused(tmp_path, section, said):
    path = tmp_path / "config.yaml"
    path.write_text(f"poke: {section}\n")
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(path)


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "127.8.9.1:1", "[::1]:65535"])
def test_an_address_of_this_machine_is_taken_and_the_secret_is_masked(tmp_path, listen):
    path = tmp_path / "config.yaml"
    path.write_text(f"poke: {{listen: '{listen}', secret: {SECRET}}}\n")
    settings = load(path)
    assert SECRET in settings.secrets()
    assert SECRET not in str(settings.show())


OURS = with_markers(Public("Working."), marker(str(uuid.uuid4()), "progress"))


@pytest.mark.parametrize(
    ("event", "body", "polls"),
    [
        ("issue_comment", {"action": "edited", "sender": {"login": "alice"}, "comment": {"body": OURS}}, False),
        ("issue_comment", {"sender": {"login": "alice"}, "comment": {"body": f"{OURS}\n\nAnd that?"}}, True),
        ("issues", {"action": "labeled", "sender": {"login": "makimono"}}, False),
        ("issues", {"action": "labeled", "sender": {"login": "alice"}}, True),
        ("issues", {"action": "labeled", "sender": "makimono", "comment": [1]}, True),
        ("pull_request", {"action": "synchronize", "sender": {"login": "makimono"}}, False),
        ("check_run", {"action": "completed", "sender": {"login": "makimono"}}, True),
        ("", {"object_kind": "note", "user": {"username": "alice"}, "object_attributes": {"note": OURS}}, False),
        ("", {"object_kind": "issue", "user": {"username": "makimono"}}, False),
        ("", {"object_kind": "pipeline", "user": {"username": "makimono"}}, True),
    ],
)
def test_what_the_program_has_done_itself_causes_no_poll_and_ci_of_its_push_does(endpoint, event, body, polls):
    here = endpoint()
    raw = json.dumps(body).encode()
    given = github(raw, **{"X-GitHub-Event": event}) if event else {"X-Gitlab-Token": SECRET}
    assert here.ask(raw, given) == (202 if polls else 200)
    assert len(here.hooks) == len([one for one in here.events if one[0] == "poked"]) == polls


def test_a_source_that_did_not_say_who_it_is_is_asked_again(tmp_path):
    with clock.use(clock.FakeClock()):
        place = GitLabPlace(tmp_path, bot_name="makimono")
        source = PolledSource("gitlab", place.forge.instance, Pokes(60))
        place.server.fault("GET", "/user$", status=502, times=-1, body={})
        source.learn_own(place.forge)
        assert source.own is None
        place.server.faults.clear()
        source.learn_own(place.forge)
        assert source.own == ("makimono",)
        place.close()
