"""Three different tasks that fail alike hold the next ones of that place, until a try succeeds."""

import pytest
from run_home import UUID

from agent import clock
from agent.daemon import start_holds
from agent.daemon.start_holds import FIRST_SECONDS, StartHolds, lines, read
from agent.daemon.supervisor import Supervisor
from agent.taskqueue.row_holder import hostname
from agent.values import Status


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as now:
        yield now


def end(here, holds, number, code, *, calls=0, status=Status.FAILED):
    """A task that ran and ended, as its worker leaves the row."""
    uuid = here.row(number) if here.ledger.get(UUID % number) is None else UUID % number
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    here.wiring.db.execute("UPDATE tasks SET llm_call_count = :calls WHERE uuid = :uuid", calls=calls, uuid=uuid)
    if status is Status.QUEUED:
        here.ledger.release(uuid, claim.attempt, clock.now())
        here.wiring.db.execute("UPDATE tasks SET error_code = :code WHERE uuid = :uuid", code=code, uuid=uuid)
    else:
        here.ledger.finish(uuid, claim.attempt, status, error_code=code)
    holds.record_end(uuid)
    return here.ledger.get(uuid)


def made(here):
    return StartHolds(here.settings, here.ledger, here.events)


@pytest.mark.parametrize("code", ["setup_failed", "model_stalled", "git_unreachable", "quota_exhausted"])
def test_the_third_different_task_that_fails_alike_holds_the_next_and_is_said_once(place, time, code):
    here = place()
    holds = made(here)
    for number in (1, 2):
        end(here, holds, number, code)
    waiting = here.ledger.get(here.row(9))
    assert not holds.is_held(waiting)
    for number in (3, 4):
        end(here, holds, number, code)
    assert holds.is_held(waiting)
    (said,) = here.named("starts_held")
    assert (said["code"], len(said["tasks"])) == (code, 3)
    (line,) = lines(here.settings.base_dir)
    assert code in line


def test_a_host_on_which_three_different_tasks_get_nowhere_in_a_row_pauses_itself_whatever_they_fail_by(place, time):
    here = place()
    holds = made(here)
    for number, code in enumerate(("git_starved", "host", "sandbox_unavailable"), 1):
        end(here, holds, number, code, status=Status.QUEUED)
    waiting = here.ledger.get(here.row(9))
    assert holds.is_held(waiting)
    (said,) = here.named("starts_held")
    assert (said["place"], len(said["tasks"])) == (f"this host {hostname()}", 3)
    (line,) = lines(here.settings.base_dir)
    assert "starts nothing: 3 different tasks in a row failed here" in line
    time.move(FIRST_SECONDS + 1)
    assert not holds.is_held(waiting), "one is let go"
    assert holds.is_held(here.ledger.get(here.row(8)))
    end(here, holds, 9, "verify_failed", calls=2)
    assert not holds.is_held(here.ledger.get(UUID % 8)), "it got on: the host is well"


def test_one_that_gets_on_between_them_shows_that_the_host_is_well(place, time):
    here = place()
    holds = made(here)
    for number in (1, 2):
        end(here, holds, number, "git_starved")
    end(here, holds, 3, "verify_failed", calls=1)
    end(here, holds, 4, "git_starved", calls=4)  # it failed late: it is not the host that only fails
    for number in (5, 6):
        end(here, holds, number, "git_starved")
    assert not holds.is_held(here.ledger.get(here.row(9)))


def test_a_host_that_refuses_every_command_pauses_itself_although_the_model_answers_there(place, time):
    here = place()
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "no_sandbox", calls=5)
    assert holds.is_held(here.ledger.get(here.row(9)))
    time.move(FIRST_SECONDS + 1)
    assert not holds.is_held(here.ledger.get(UUID % 9)), "one is let go"
    here.ledger.claim(UUID % 9, here.wiring.owner, 60)
    here.wiring.db.execute("UPDATE tasks SET llm_call_count = 3 WHERE uuid = :uuid", uuid=UUID % 9)
    holds.check_probe()
    assert holds.is_held(here.ledger.get(here.row(8))), "answers of the model say nothing of it"


def test_workers_that_cannot_even_start_pause_the_host(place, time):
    here = place()
    supervisor = Supervisor(here.wiring)
    for number in (1, 2, 3):
        supervisor.handle_unclaimed(here.row(number), 1, "OSError: [Errno 24] Too many open files")
    assert supervisor.holds.is_held(here.ledger.get(here.row(9)))
    assert here.named("starts_held")[0]["code"] == "died"


@pytest.mark.parametrize("code", ["verify_failed", "limit_turns", "context_overflow", "poison"])
def test_what_lies_in_the_task_holds_nobody(place, time, code):
    here = place()
    holds = made(here)
    for number in range(1, 6):
        end(here, holds, number, code, calls=3)
    assert not holds.is_held(here.ledger.get(here.row(9)))
    assert lines(here.settings.base_dir) == []


def test_one_task_that_fails_again_and_again_holds_nobody(place, time):
    here = place()
    holds = made(here)
    for _ in range(5):
        end(here, holds, 1, "model_stalled", status=Status.QUEUED)
    assert not holds.is_held(here.ledger.get(here.row(9)))


def test_a_success_between_them_begins_the_count_anew(place, time):
    here = place()
    holds = made(here)
    end(here, holds, 1, "setup_failed")
    end(here, holds, 2, "setup_failed")
    end(here, holds, 3, "verify_failed", calls=2)  # its set-up worked, and the model answered
    end(here, holds, 4, "setup_failed")
    assert not holds.is_held(here.ledger.get(here.row(9)))


def test_after_a_time_one_task_is_tried_and_a_failure_holds_for_longer(place, time):
    here = place()
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "setup_failed")
    first, second = here.ledger.get(here.row(4)), here.ledger.get(here.row(5))
    time.move(FIRST_SECONDS + 1)
    assert not holds.is_held(first)
    assert holds.is_held(second)
    assert not holds.is_held(first), "its own start may be tried again"
    end(here, holds, 4, "setup_failed")
    time.move(FIRST_SECONDS + 1)
    assert holds.is_held(second)
    time.move(FIRST_SECONDS)
    assert not holds.is_held(second)
    claim = here.ledger.claim(second.uuid, here.wiring.owner, 60)
    third = here.ledger.get(here.row(6))
    holds.check_probe()
    assert holds.is_held(third)
    counted = "UPDATE tasks SET llm_call_count = 1 WHERE uuid = :uuid AND attempt = :attempt"
    here.wiring.db.execute(counted, uuid=second.uuid, attempt=claim.attempt)
    holds.check_probe()  # the model answered it: the place is free although it goes on
    assert not holds.is_held(third)
    assert len(here.named("starts_go_on")) == 1
    assert lines(here.settings.base_dir) == []


def test_the_next_daemon_finds_it_and_begins_with_one_try(place, time):
    here = place()
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "model_unreachable", status=Status.QUEUED)
    time.move(1)
    supervisor = Supervisor(here.wiring)
    started = []
    supervisor.start = started.append
    here.wiring.db.execute("UPDATE tasks SET not_before = NULL")
    supervisor.start_due()
    assert len(started) == 1
    assert supervisor.startable() == []  # the probe is reserved; the others wait, so that `run --once` comes to its end
    assert here.named("starts_held") == here.named("starts_held")[:1]


def test_while_the_models_server_is_held_nothing_is_reserved(place, time):
    """A thousand waiting rows would be reserved and given up again, every five seconds."""
    here = place()
    supervisor = Supervisor(here.wiring)
    for number in (1, 2, 3):
        end(here, supervisor.holds, number, "model_unreachable", status=Status.QUEUED)
    time.move(1)
    started = []
    supervisor.start = started.append
    here.row(4)
    supervisor.start_due()
    assert started == []
    assert here.wiring.db.execute("SELECT uuid FROM tasks WHERE taken_at > created_at AND attempt = 0") == []
    assert supervisor.delays.known == {}
    time.move(FIRST_SECONDS)
    supervisor.start_due()
    assert len(started) == 1, "the probe"


def test_another_repository_goes_on(place, time):
    here = place()
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "setup_failed")
    other = here.ledger.enqueue({**here.key(9), "repo": "other"}, uuid=UUID % 9)
    assert not holds.is_held(here.ledger.get(other))


@pytest.mark.parametrize("name", ["the repository of models", "this host and others"])
def test_a_place_is_of_its_kind_whatever_its_name(place, time, monkeypatch, name):
    """A dotted provider may have any name."""
    here = place()
    monkeypatch.setattr(start_holds, "_server_of", lambda _settings: name)
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "model_unreachable", status=Status.QUEUED)
    (hold,) = read(here.settings.base_dir)
    assert (hold.kind, hold.place, hold.is_of_one_repository) == ("server", name, False)
    assert hold.text.startswith(f"no new task of {name} is started")


@pytest.mark.parametrize("text", ['[{"what": 1}]', '[{"kind": "planet", "place": "p", "code": "c"}]', "[1]", "{}"])
def test_a_file_that_cannot_be_read_holds_nobody(place, text):
    here = place()
    here.settings.base_dir.mkdir(exist_ok=True)
    (here.settings.base_dir / "holds.json").write_text(text)
    assert made(here).known == {}


def test_a_hold_by_a_clock_that_was_put_back_since_lasts_no_longer_than_any(place, time):
    """A host that was started in 2036 by its clock, and is put right by the network after that."""
    here = place()
    time.jump(300_000_000)
    holds = made(here)
    for number in (1, 2, 3):
        end(here, holds, number, "quota_exhausted")
    waiting = here.ledger.get(here.row(9))
    assert holds.is_held(waiting)
    assert holds.is_shut()
    time.jump(-300_000_000)
    assert not holds.is_shut()
    assert not holds.is_held(waiting), "the probe"
    assert holds.is_held(here.ledger.get(here.row(8)))


def test_what_was_held_back_starts_as_soon_as_the_hold_ends(place, time):
    """`run --once` ended with exit code 0 while tasks were still queued: they were to be looked at five seconds later."""
    here = place()
    supervisor = Supervisor(here.wiring)
    for number in (1, 2, 3):
        end(here, supervisor.holds, number, "setup_failed")
    started = []
    supervisor.start = started.append
    waiting = [here.row(number) for number in (4, 5)]
    time.move(FIRST_SECONDS)
    supervisor.start_due()
    (probe,) = started
    assert supervisor.startable() == [], "the probe is reserved, the other is held back"
    here.ledger.claim(probe, here.wiring.owner, 60)
    here.ledger.finish(probe, 1, "completed")
    supervisor.holds.record_end(probe)
    assert set(supervisor.startable()) == set(waiting) - {probe}
