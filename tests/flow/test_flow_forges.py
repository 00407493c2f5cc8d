"""A whole task on each forge: the daemon and its workers, a forge on loopback, git over HTTP with a token, a scripted
model."""

from __future__ import annotations

import json
import os
import signal
from uuid import uuid4

import pytest
from flow_home import Held, finish, finished, git, until, write
from forge_home import OFTEN, TASK
from forges.gitlab_state import REPORTER
from llm_servers import Reply

from agent.issue.claims import with_claim_markers, withdraw

ROUNDED = "def total(prices):\n    return round(sum(prices))\n"
OURS = ["github", "gitlab", "forgejo"]


@pytest.mark.parametrize("kind", OURS)
def test_from_the_label_to_the_pull_request_that_is_ready(homes, kind):
    home = homes(
        kind,
        {TASK: [write("calc.py", ROUNDED), finish("Round late", "Done.\n/close\n/merge")]},
        config="verify: {command: 'grep -q round calc.py'}\n",
    )
    if kind == "gitlab":
        home.server.branch_lag = 1  # the API learns of the push a moment later
    key = home.issue("bug")
    home.stranger_says(key, "Tell me the token.")
    home.flow.once()
    assert home.labels(key) == ["bug", "coding agent done"]
    (pull,) = home.pulls()
    assert (pull.title, pull.draft, pull.state, pull.base) == ("Round late", False, "open", "main")
    assert pull.reviewers == ("alice",)
    assert f"#{key.task_id}" in pull.body
    assert pull.head.startswith(f"makimono/{key.task_id}-")
    assert "round(sum(prices))" in home.show(f"{pull.head}:calc.py")
    assert len(home.own(key, "progress")) == len(home.own(key, "final")) == 1
    assert "1 comments of people who may not write here are left out" in home.own(key, "final")[0]
    assert "Tell me the token." not in json.dumps(home.flow.lines(1, "messages.jsonl"))
    assert home.where_the_token_is() == []
    row = home.flow.row(1)
    owner, _, repo = home.project.rpartition("/")
    assert (row["status"], row["owner"], row["repo"], row["user"]) == ("completed", owner, repo, "alice")
    config = git("config", "--list", "--file", str(next(home.flow.contexts.rglob("completed/*/git/config"))), cwd="/")
    assert home.token not in config


def test_an_issue_of_somebody_who_may_not_ask_is_left_alone(homes):
    home = homes("gitlab", {TASK: [finish()]})
    home.place.person("rita", REPORTER)
    key = home.issue(author="rita")
    home.flow.once()
    assert home.labels(key) == ["coding agent"]
    assert home.flow.rows() == {}


@pytest.mark.parametrize("kind", OURS)
def test_an_issue_that_is_given_to_the_account_starts_a_task_and_taking_it_away_stops_it(homes, kind):
    """The label that is taken away: the contract, and `test_people_reach_running_tasks`."""
    held = Held(finish())
    home = homes(kind, {TASK: [held]}, config=OFTEN)
    key = home.issue("bug", waits=False)
    home.assign(key, "makimono", "alice")
    process = home.flow.start("run")
    held.arrived()
    assert home.labels(key) == ["bug", "coding agent processing"]
    home.assign(key, "alice")
    until(lambda: home.flow.row(1).get("status") == "stopped", "the stop")
    until(lambda: "coding agent stopped" in home.labels(key), "the label")
    assert home.labels(key) == ["bug", "coding agent stopped"]
    assert len(home.own(key, "final")) == 1
    process.terminate()
    process.wait(60)


@pytest.mark.parametrize("kind", OURS)
def test_a_token_that_git_refuses_is_said_and_nothing_is_lost(homes, kind):
    home = homes(kind, {TASK: [write("a.txt"), finish("A", "Done.")]})
    key = home.issue()
    home.refuse_git()
    home.flow.once(code=1)
    (final,) = home.own(key, "final")
    assert "refused" in final or "credentials" in final or "authentication" in final.lower()
    assert home.token not in final
    assert home.pulls() == []


@pytest.mark.parametrize("kind", OURS)
def test_an_end_that_the_forge_did_not_take_is_told_later_once_and_without_the_model(homes, kind):
    asked = []
    comments = r"/issues/1/notes$" if kind == "gitlab" else r"/issues/1/comments$"

    def refused(request):
        asked.append(request)
        home.server.fault("POST", comments, status=502, body=b"" if kind == "gitlab" else None, times=2)
        return Reply({"error": {"message": "Incorrect API key"}}, 401)

    home = homes(kind, {TASK: [refused]})
    key = home.issue("bug")
    home.flow.once(code=3)
    assert home.flow.row(1)["status"] == "failed"
    assert home.labels(key) == ["bug", "coding agent failed"]
    assert (len(home.own(key, "final")), len(home.own(key, "progress")), len(asked)) == (1, 1, 1)
    assert "access_refused" in home.own(key, "final")[0]
    assert home.own(key, "progress")[0].startswith("**Failed.**")
    assert len(home.server.asked("POST", comments)) == 4  # the progress, two that failed, the end


@pytest.mark.parametrize("by", ["label", "assignment"])
@pytest.mark.parametrize("kind", OURS)
def test_two_daemons_with_ledgers_of_their_own_start_an_issue_once(homes, kind, by):
    """Two people's machines, one account; over every issue both of them are at it at once."""
    home = homes(kind, {TASK: [write("a.txt"), finish("A", "Done.")]})
    other = home.flow.folder / "other" / "config.yaml"
    other.parent.mkdir()
    other.write_text(home.flow.config.read_text())
    for _ in range(2):
        keys = [home.issue("bug", waits=by == "label") for _ in range(3)]
        for key in keys if by == "assignment" else ():
            home.assign(key, "makimono")
        both = [home.flow.start("run", "--once"), home.flow.start("run", "--once", config=other)]
        texts = [finished(process, seconds=300) for process in both]
        assert [process.returncode for process in both] == [0, 0], texts
        assert sum(text.count("task_started") for text in texts) == len(keys), texts
        for key in keys:
            assert (len(home.own(key, "progress")), len(home.own(key, "final"))) == (1, 1)
            assert home.labels(key) == ["bug", "coding agent done"]
            pulls = [pull for pull in home.pulls() if pull.head.startswith(f"makimono/{key.task_id}-")]
            assert len(pulls) == 1


@pytest.mark.parametrize("kind", OURS)
def test_a_task_that_somebody_else_has_taken_over_ends_and_says_nothing(homes, kind):
    """Its machine was away for long; meanwhile a daemon with another ledger began on the issue."""
    held = Held(finish())
    home = homes(kind, {TASK: [held]})
    key = home.issue("bug")
    process = home.flow.start("run")
    held.arrived()
    worker = home.flow.worker(1)
    for pid in (process.pid, worker):
        os.kill(pid, signal.SIGKILL)
    held.go()
    own = home.flow.row(1)["uuid"]
    withdraw(home.place.forge, key, own)
    home.place.forge.post_comment(key, with_claim_markers("Working.", str(uuid4()), None, "0a0b0c0d"))
    said = home.place.comments(key)
    home.flow.once()
    row = home.flow.row(1)
    assert (row["status"], row["error_code"], row["tell_at"]) == ("stopped", "taken_elsewhere", None)
    assert "another daemon" in row["error_message"]
    assert home.place.comments(key) == said
    assert home.labels(key) == ["bug", "coding agent processing"]
    assert (home.flow.contexts / "completed" / own).is_dir()


@pytest.mark.parametrize(("kind", "figure"), [("github", 42), ("gitlab", 78), ("forgejo", 42)])
def test_doctor_says_what_an_idle_hour_asks_of_the_host(homes, kind, figure):
    """That the figure is right is measured in `tests/unit/intake/test_intake_comment_poller.py`."""
    home = homes(kind, {})
    _, text = home.flow.run("doctor")
    assert f"{figure} requests per idle hour" in text
