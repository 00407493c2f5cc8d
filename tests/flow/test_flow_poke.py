"""A request to poll at once: a webhook of the host, and the command.  The intervals are so long that nothing else causes
a poll."""

import hashlib
import hmac
import http.client
import json
import re
import signal
import subprocess
import sys
import uuid
from urllib.request import urlopen

import pytest
from flow_home import finish, finished, said, until
from forge_home import TASK
from ports import free_port

SECRET = "the-secret-of-these-webhooks"
RARELY = "scheduling: {interval: 3600, idle_interval: 3600}\n"


def deliver(port, kind, project, secret=SECRET, delivery=None, note="", who="alice"):
    """Send the webhook that the host sends when a person set a label; returns the status of the answer."""
    name = delivery or str(uuid.uuid4())
    if kind == "gitlab":
        body = json.dumps(
            {
                "object_kind": "issue",
                "user": {"username": who},
                "project": {"path_with_namespace": project},
                "note": note,
            }
        )
        headers = {"X-Gitlab-Event": "Issue Hook", "X-Gitlab-Token": secret, "Idempotency-Key": name}
    else:
        body = json.dumps({"action": "labeled", "repository": {"full_name": project}, "note": note})
        tag = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
        headers = {"X-GitHub-Event": "issues", "X-GitHub-Delivery": name, "X-Hub-Signature-256": f"sha256={tag}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/poke", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def looks(metrics):
    """Number of polls that a daemon has finished, by its metrics."""
    with urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=30) as answer:
        found = re.findall(r'^makimono_polls_total{result="finished".*} (\S+)$', answer.read().decode(), re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_webhook_starts_a_task_while_the_daemon_is_idle(homes, kind):
    port, metrics = free_port(), free_port()
    home = homes(kind, {TASK: [finish("Nothing", "Nothing to do.")]})
    config = home.flow.config
    config.write_text(f"{config.read_text()}{RARELY}poke: {{listen: '127.0.0.1:{port}', secret: {SECRET}}}\n")
    daemon = home.flow.start("run", "--json", "--metrics", str(metrics))
    said(daemon, "daemon_started")
    until(lambda: looks(metrics), "the first poll")
    doctor = json.loads(home.flow.run("doctor", "--json")[1])
    (found,) = [one for one in doctor["checks"] if one["name"] == "webhooks"]
    assert (found["state"], found["found"]) == ("ok", f"webhooks are answered at http://127.0.0.1:{port}/poke")
    key = home.issue()
    before = looks(metrics)
    assert deliver(port, kind, home.project, secret="not-the-secret-of-these") == 403
    assert (looks(metrics), home.own(key, "progress")) == (before, [])
    delivery = str(uuid.uuid4())
    assert deliver(port, kind, home.project, delivery=delivery) == 202
    until(lambda: home.own(key, "progress"), "the progress comment")
    until(lambda: home.own(key, "final"), "the end")
    before = looks(metrics)
    assert deliver(port, kind, home.project, delivery=delivery) == 200
    if kind == "gitlab":  # where the account is marked as a machine
        assert deliver(port, kind, home.project, who="makimono") == 200
    for number in range(100):
        assert deliver(port, kind, home.project, note=str(number)) == 202
    until(lambda: looks(metrics) > before, "a poll after the flood")
    assert looks(metrics) - before < 20
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)


def test_the_command_makes_the_daemon_poll_and_says_when_there_is_none(homes):
    home = homes("github", {TASK: [finish("Nothing", "Nothing to do.")]}, config=RARELY)
    contexts = home.flow.contexts
    code, text = home.flow.run("poke")
    assert (code, text) == (3, f"error: no daemon works on {contexts}; `main.py run` starts one\n")
    metrics = free_port()
    daemon = home.flow.start("run", "--json", "--metrics", str(metrics))
    said(daemon, "daemon_started")
    until(lambda: looks(metrics), "the first poll")
    key = home.issue()
    assert home.flow.run("poke") == (0, f"the daemon (process {daemon.pid}) polls now\n")
    until(lambda: home.own(key, "final"), "the end")
    # the number of the process in the file is that of another one: it gets no signal
    facts = contexts / "daemon.json"
    right = json.loads(facts.read_text())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        facts.write_text(json.dumps(right | {"pid": other.pid}))
        assert re.search("still starting", home.flow.run("poke", code=3)[1])
        assert other.poll() is None
        other.communicate(b"\n")
        assert other.returncode == 0
    daemon.send_signal(signal.SIGTERM)
    finished(daemon)
