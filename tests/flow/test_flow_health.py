"""A real daemon's health, by the command and over HTTP."""

import json
import os
import signal
from urllib.error import HTTPError
from urllib.request import urlopen

from flow_home import until
from ports import free_port


def ask(port, path):
    """(status, object) of one answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_daemon_says_that_it_is_ready_or_why_not_and_one_that_hangs_cannot(home):
    here = home({}, config="scheduling: {min_free: 900000G, interval: 0.5, drain_seconds: 1}\n")
    assert here.run("health") == (3, f"not live\n  no daemon works on {here.contexts}; `main.py run` starts one\n")
    port = free_port()
    daemon = here.start("run", "--metrics", str(port))
    said = here.contexts / "daemon-health.json"
    until(lambda: said.exists() and b"min_free" in said.read_bytes(), "its first word")
    status, found = ask(port, "/ready")
    assert (status, found["live"], found["ready"]) == (503, True, False)
    assert "`scheduling.min_free` is 900000G" in found["why"][0]
    assert ask(port, "/live")[0] == 200
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"makimono_workers" in answer.read()
    os.kill(daemon.pid, signal.SIGSTOP)
    os.utime(said, (1, 1))
    code, text = here.run("health", "--live", "--json")
    assert (code, json.loads(text)["live"]) == (3, False)
    daemon.kill()
    daemon.wait()
