"""A host, or a proxy before it, that answers pages for a while: nothing is lost, done twice, or failed for it."""

from __future__ import annotations

import signal

import pytest
from flow_home import Held, finish, finished, until, write
from forge_home import HOMES, OFTEN, TASK
from forges.faults import page

DOWN = "<!DOCTYPE html><html><head><title>503</title></head><body>Back soon. You sent {token}</body></html>"
PAGES = {"login": 200, "maintenance": 503}


@pytest.fixture(params=[(kind, name) for kind in ("github", "gitlab", "forgejo") for name in PAGES], ids="-".join)
def one(request, tmp_path):
    """(a home, a function that switches the pages on)."""
    kind, name = request.param
    made = []

    def start(steps, config=""):
        home = HOMES[kind](tmp_path, {TASK: [*steps, finish("Use int", "It is an int now.")]}, config=config)
        made.append(home)
        return home, lambda: page(home.server, PAGES[name], DOWN.format(token=home.token))

    yield start
    for home in made:
        home.close()


def well(home):
    """Switch the pages off."""
    home.server.faults.clear()


def is_done_once(home, key):
    assert home.labels(key) == ["coding agent done"]
    assert (len(home.own(key, "progress")), len(home.own(key, "final"))) == (1, 1)
    (pull,) = home.pulls()
    assert (pull.draft, pull.state) == (False, "open")
    assert home.show(f"{pull.head}:calc.py") == "fixed\n"
    row = home.flow.row(int(key.task_id))
    assert (row["status"], row["error_code"]) == ("completed", None)
    assert home.where_the_token_is() == []


def test_at_the_poll(one):
    home, pages = one([write("calc.py", "fixed\n")], OFTEN)
    pages()
    key = home.issue()
    daemon = home.flow.start("run")
    until(lambda: len(home.server.journal) > 6, "some requests")
    assert home.flow.rows() == {}
    well(home)
    until(lambda: home.labels(key) == ["coding agent done"], "the end")
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert "poll_failed" in text, text
    assert "text/html '<!DOCTYPE html>" in text, text
    assert home.token not in text
    assert "Traceback" not in text
    is_done_once(home, key)


def test_at_the_start_of_the_work(one):
    home, pages = one([write("calc.py", "fixed\n")])
    key = home.issue()
    home.flow.run("run", "--once", "--role", "producer", code=0)
    pages()
    _, text = home.flow.run("run", "--once", "--role", "worker")
    row = home.flow.row(1)
    assert (row["status"], row["error_code"]) == ("queued", "forge_unreachable")
    assert "text/html '<!DOCTYPE html>" in row["error_message"]
    assert home.token not in text + row["error_message"]
    assert home.flow.server.journal == []
    well(home)
    home.flow.half_a_minute_later()
    home.flow.once()
    is_done_once(home, key)


def test_while_the_model_works_and_when_the_work_is_published(one):
    held = Held(write("calc.py", "fixed\n"))
    home, pages = one([held])
    key = home.issue()
    daemon = home.flow.start("run", "--once")
    held.arrived()
    pages()
    held.go()
    text = finished(daemon)
    row = home.flow.row(1)
    assert row["status"] == "queued", "it waits to be published"
    assert row["error_code"] in ("git_unreachable", "forge_unreachable")
    assert home.token not in text + row["error_message"]
    asked = len(home.flow.server.journal)
    home.flow.half_a_minute_later()
    home.flow.run("run", "--once")  # it is still away
    assert home.flow.row(1)["status"] == "queued"
    well(home)
    home.flow.half_a_minute_later()
    home.flow.once()
    is_done_once(home, key)
    assert len(home.flow.server.journal) == asked, "the model is not asked again"


def test_a_page_for_each_single_request_in_turn(one):
    """Each kind of request meets a page once, before or after the host has carried it out."""
    home, pages = one([write("calc.py", "fixed\n")])
    key = home.issue()
    pages()
    for fault in home.server.faults:
        fault.times, fault.verb = 3, "change"
        fault.after = not fault.git
    for _ in range(6):
        home.flow.run("run", "--once")
        if home.labels(key) == ["coding agent done"]:
            break
        home.flow.half_a_minute_later()
    is_done_once(home, key)
