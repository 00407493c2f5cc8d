"""A GitHub App whose installation token ends while the model works, in whole runs: git over HTTP takes the newest token
and no other."""

from __future__ import annotations

import pytest
from flow_home import Held, finish, until, write
from forge_home import TASK, GitHubAppHome


@pytest.fixture
def home(tmp_path):
    made = GitHubAppHome(tmp_path, {})
    made.held = Held(finish("Write a", "Done."))
    made.flow.plays[TASK] = [write("a.txt", "one\n"), made.held]
    yield made
    made.close()


def in_mid_run(home, change):
    """`change` while the model thinks; the key, and what comes of the row."""
    key = home.issue("bug")
    daemon = home.flow.start("run")
    home.held.arrived()
    change()
    home.held.go()
    until(lambda: (row := home.flow.row(1)).get("completed_at") or row.get("outcome") == "publishing", "the end")
    daemon.terminate()
    assert daemon.wait(60) == 0
    return key, home.flow.row(1)


def published(home, key):
    assert home.labels(key) == ["bug", "coding agent done"]
    (pull,) = home.pulls()
    assert not pull.draft
    assert home.show(f"{pull.head}:a.txt") == "one\n"
    assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1
    assert home.flow.row(1)["llm_call_count"] == 2
    for number in range(1, home.server.made_tokens + 1):
        home.token = f"ghs_{number:036d}"
        assert home.where_the_token_is() == []


@pytest.mark.parametrize("where", ["everywhere", "at the push"])
def test_an_apps_token_that_ends_in_the_middle_is_made_anew_once_and_the_work_is_published(home, where):
    before = []

    def end():
        before.append(home.server.made_tokens)
        home.expire() if where == "everywhere" else home.refuse_git()

    key, row = in_mid_run(home, end)
    assert (row["status"], row["attempt"]) == ("completed", 1)
    published(home, key)
    worker_and_poller = 2 if where == "everywhere" else 1
    assert home.server.made_tokens - before[0] <= worker_and_poller


@pytest.mark.parametrize(("status", "code"), [(502, "forge_unreachable"), (401, "forge_access")])
def test_an_app_that_gets_no_other_token_keeps_the_work_and_publishes_it_later_without_the_model(home, status, code):
    def end():
        home.server.fault("POST", "/access_tokens$", status=status, message="Bad credentials", times=-1)
        home.expire()

    key, row = in_mid_run(home, end)
    assert (row["status"], row["outcome"], row["error_code"]) == ("queued", "publishing", code)
    assert home.pulls() == []
    asked = len(home.flow.server.journal)
    home.server.faults.clear()
    home.flow.once()
    assert len(home.flow.server.journal) == asked
    published(home, key)
