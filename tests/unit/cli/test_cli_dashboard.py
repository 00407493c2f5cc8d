"""`dashboard` as a command: its address, its end by a signal, and `show --html`."""

import json
import os
import signal
import threading
import urllib.request

import pytest
import quick_start
from cli_home import DONE, Home, start

from agent.cli import dashboard


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home")).both()


def test_the_command_says_where_the_page_is_and_ends_with_a_signal(home):
    run = quick_start.start(
        ["--config", str(home.config), "dashboard", "--port", "0", "--json"], cwd=home.folder, env=dict(os.environ)
    )
    text = ""
    while not text.strip().endswith("}"):
        line = run.stdout.readline()
        assert line, "the command has ended"
        text += line
    address = json.loads(text)["address"]
    with urllib.request.urlopen(f"{address}tasks", timeout=30) as answer:
        assert "Open one" in answer.read().decode()
    run.send_signal(signal.SIGTERM)
    with run.stdout:
        assert run.stdout.read() == ""
    assert run.wait(30) == 0


def test_a_page_that_hangs_does_not_hold_the_end_of_the_command(monkeypatch):
    hangs, codes = threading.Event(), []
    monkeypatch.setattr(dashboard, "JOIN_SECONDS", 0.05)
    monkeypatch.setattr(dashboard.os, "_exit", codes.append)
    thread = threading.Thread(target=hangs.wait, args=(30,))
    thread.start()
    dashboard._leave_pages_that_hang()
    hangs.set()
    thread.join()
    assert set(codes) == {0}


def test_an_address_for_others_needs_a_token(home):
    done = start("--config", home.config, "dashboard", "--host", "0.0.0.0", "--port", "0", cwd=home.folder)
    assert done.returncode == 2
    assert "dashboard.token" in done.stdout + (done.stderr or "")


def test_a_task_is_written_as_one_page(home, tmp_path):
    path = tmp_path / "task.html"
    done = start("--config", home.config, "--json", "show", DONE[:4], "--html", path, cwd=home.folder)
    assert done.returncode == 0
    assert json.loads(done.stdout)["bytes"] == path.stat().st_size
