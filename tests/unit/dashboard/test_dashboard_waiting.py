"""Why a task waits: the sentences that the list and the health page show."""

import json
from datetime import timedelta

import pytest
from run_home import UUID, Place

from agent import clock
from agent.daemon.start_holds import StartHold
from agent.dashboard.waiting import Waits
from agent.forge.rate_limiter import RateLimiter, known_limits, wait_of
from agent.taskqueue import AtOnce
from agent.taskqueue.startable import startable


@pytest.fixture
def place(tmp_path):
    made = []

    def make(extra=""):
        made.append(Place(tmp_path / str(len(made)), extra))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ready(here, monkeypatch, *why):
    """A daemon that says these reasons why it starts nothing."""
    from agent.daemon.health import Health

    monkeypatch.setattr("agent.dashboard.waiting.read_health", lambda _settings: Health(True, not why, why))


def reasons(here, uuid):
    (record,) = here.ledger.db.run("ledger_get", uuid=uuid)
    return Waits(here.settings, here.ledger).of(here.ledger.get(uuid), record)


def change(here, uuid, **columns):
    names = ", ".join(f"{name} = :{name}" for name in columns)
    here.ledger.db.execute(f"UPDATE tasks SET {names} WHERE uuid = :uuid", uuid=uuid, **columns)


def test_without_a_daemon_that_is_the_reason(place):
    here = place()
    assert reasons(here, here.row(1)) == [f"no daemon works on {here.settings.base_dir}"]


def test_what_the_daemon_says_is_the_reason(place, monkeypatch):
    here = place()
    ready(here, monkeypatch, "3 MiB are free for /x")
    assert reasons(here, here.row(1)) == ["3 MiB are free for /x"]


def test_no_worker_is_free(place, monkeypatch):
    here = place("scheduling: {max_workers: 1}\n")
    ready(here, monkeypatch)
    uuid = here.row(2)
    assert reasons(here, uuid) == ["it is next, or waits for its turn"]
    here.claim(1)
    assert reasons(here, uuid) == ["no worker is free: 1 of 1 run (`scheduling.max_workers`)"]


def test_a_task_that_is_tried_again_later_says_when_and_why(place, monkeypatch):
    here = place()
    ready(here, monkeypatch)
    uuid = here.row(1)
    later = clock.stamp(here.ledger.now() + timedelta(hours=1))
    change(here, uuid, not_before=later, error_code="forge_limited", error_message="github.com: wait")
    said = reasons(here, uuid)
    assert said == [
        "the last attempt ended with forge_limited: github.com: wait",
        f"it is tried again after {later[:16].replace('T', ' ')} UTC",
    ]
    change(here, uuid, outcome="publishing")
    assert reasons(here, uuid)[0] == "the model has finished; what is left is to publish the work"


def test_a_task_that_is_reserved_is_being_started(place, monkeypatch):
    here = place()
    ready(here, monkeypatch)
    uuid = here.row(1)
    assert here.ledger.reserve(1, here.wiring.owner, seconds=60) == [uuid]
    assert reasons(here, uuid) == ["a worker is being started for it"]


def test_a_place_with_failures_in_a_row_holds_its_tasks(place, monkeypatch):
    here = place()
    ready(here, monkeypatch)
    uuid = here.row(1)
    row = here.ledger.get(uuid)
    name = f"the repository {row.task_source} {row.instance} {row.owner}/{row.repo}"
    until = clock.stamp(clock.now() + timedelta(minutes=5))
    hold = StartHold("repository", name, "setup_failed", ["a", "b", "c"], until)
    (here.settings.base_dir / "holds.json").write_text(json.dumps([vars(hold)]))
    assert reasons(here, uuid) == [hold.text]
    hold.probe = uuid
    (here.settings.base_dir / "holds.json").write_text(json.dumps([vars(hold)]))
    assert reasons(here, uuid) == ["it is next, or waits for its turn"]


def test_the_limit_of_tasks_at_once_is_the_rule_of_the_queue_itself(place, monkeypatch):
    here = place("limits: {at_once: {repository: 1}}\n")
    ready(here, monkeypatch)
    first, second = here.row(1), here.row(2)
    one = AtOnce(repository=1)
    assert startable(here.ledger.db, server="s", at_once=one) == {first, second}
    assert here.ledger.reserve(1, here.wiring.owner, seconds=60, server="s", at_once=one) == [first]
    assert startable(here.ledger.db, server="s", at_once=one) == frozenset()
    assert here.ledger.reserve(1, here.wiring.owner, seconds=60, server="s", at_once=one) == []
    assert "limits.at_once" in reasons(here, second)[0]
    assert startable(here.ledger.db, server="s", at_once=AtOnce(server=1)) == frozenset()
    assert startable(here.ledger.db, server="other", at_once=AtOnce(server=1)) == {second}


def test_a_limit_of_the_day_is_said_for_its_repository(place, monkeypatch):
    here = place("limits: {runs: 1}\n")
    ready(here, monkeypatch)
    assert Waits(here.settings, here.ledger).of_all() == []
    here.claim(1)
    assert Waits(here.settings, here.ledger).of_all() == [
        "local/default: `limits.runs` is used up; its issues wait until tomorrow (UTC)"
    ]


def test_a_host_that_asks_to_slow_down_is_named(place, monkeypatch):
    here = place()
    ready(here, monkeypatch)
    folder = here.settings.base_dir / "limits"
    RateLimiter(folder, "github.com").slow_down("*", 90, "secondary rate limit")
    RateLimiter(folder, "gitlab.com").note_budget("core", remaining=0, limit=60, reset_in=30)
    RateLimiter(folder, "codeberg.org").note_budget("core", remaining=5, limit=60, reset_in=30)
    waits = {host: wait_of(state) for host, state in known_limits(folder).items()}
    assert waits["codeberg.org"] == (0.0, "")
    assert 0 < waits["gitlab.com"][0] <= 30
    said = Waits(here.settings, here.ledger).of_all()
    assert any(one.startswith("requests to github.com wait for") and "secondary" in one for one in said)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("paused", "a person paused it; `resume` lets it go on"),
        ("asked", "it waits for a person to answer its question"),
        ("disk", "no space; it goes on by itself when that is mended"),
        ("else", "it is paused (else): no space; `resume` lets it go on"),
    ],
)
def test_a_paused_task_says_for_whom_it_waits(place, outcome, said):
    here = place()
    uuid = here.row(1)
    change(here, uuid, status="paused", outcome=outcome, error_message="no space")
    assert reasons(here, uuid) == [said]


def test_a_running_task_says_what_was_requested(place):
    here = place()
    uuid = here.claim(1).uuid
    assert reasons(here, uuid) == []
    here.ledger.request(uuid, "pause", who="dashboard from 127.0.0.1")
    assert reasons(here, uuid) == ["a pause was requested; the worker carries it out"]
    assert here.ledger.get(uuid).requested_by == "dashboard from 127.0.0.1"
    here.ledger.request(uuid, "resume")
    assert here.ledger.get(uuid).requested_by is None


def test_an_open_pull_request_says_whether_its_ci_is_read(place):
    here = place()
    uuid = here.row(1)
    now = clock.stamp()
    change(here, uuid, status="completed", completed_at=now, url="https://x.example/1", head_commit="a" * 40)
    assert reasons(here, uuid) == ["its pull request is open"]  # a local tracker has no CI
    change(here, uuid, task_source="github")
    assert "its CI is read until" in reasons(here, uuid)[0]
    change(here, uuid, pull_state="merged")
    assert reasons(here, uuid) == []
    assert uuid == UUID % 1
