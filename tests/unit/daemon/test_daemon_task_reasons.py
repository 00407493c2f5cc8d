"""Why tasks wait: each reason is made by the state that the daemon obeys, and named by code and words."""

from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from agent import clock, durable_files
from agent.daemon import start_holds
from agent.daemon.health import HealthFile, path_of, read_health
from agent.daemon.program_version import lock_of
from agent.daemon.start_holds import StartHold
from agent.daemon.supervisor import HELD_SECONDS, Supervisor
from agent.daemon.task_reasons import AT_ONCE, TaskReasons
from agent.forge.rate_limiter import RateLimiter, host_limits
from agent.values import Status
from agent.worker.unpublished_work import MARK


@pytest.fixture
def time():
    with clock.use(clock.FakeClock(clock.now())) as now:
        yield now


@pytest.fixture
def alive():
    """Let a daemon seem alive in the base_dir of a place, with reasons why it starts nothing."""
    locks = []

    def make(here, *why):
        here.settings.base_dir.mkdir(exist_ok=True)
        locks.append(durable_files.lock(lock_of(here.settings)))
        path_of(here.settings).write_bytes(orjson.dumps({"pid": 7, "at": clock.stamp(), "why": why}))

    yield make
    for lock in locks:
        durable_files.unlock(lock)


def reason(here, uuid):
    return TaskReasons(here.settings, here.ledger, here.wiring.owner).find_reason(here.ledger.get(uuid))


def put_off(here, uuid, code, why):
    """A task that its worker has put back until later."""
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    here.ledger.release(uuid, claim.attempt, clock.now() + timedelta(minutes=5))
    here.wiring.db.execute(
        "UPDATE tasks SET error_code = :code, error_message = :why WHERE uuid = :uuid", code=code, why=why, uuid=uuid
    )


def test_a_queued_task_waits_for_a_daemon_then_for_a_worker_and_is_next_as_the_supervisor_says(place, time, alive):
    here = place()
    first, second = here.row(1), here.row(2)
    assert reason(here, first).code == "daemon"
    alive(here, "the daemon was told to stop")
    assert reason(here, first).text == "the daemon was told to stop"
    path_of(here.settings).write_bytes(orjson.dumps({"pid": 7, "at": clock.stamp(), "why": []}))
    assert reason(here, second).code == "next"
    supervisor = Supervisor(here.wiring)
    most = here.settings.scheduling.max_workers
    for number in range(3, 3 + most):
        here.ledger.claim(here.row(number), here.wiring.owner, 60)
    assert supervisor.running() == most
    found = reason(here, second)
    assert (found.code, found.text) == (
        "worker",
        f"no worker is free: {most} run, `scheduling.max_workers` is {most}",
    )


def test_a_delay_that_only_the_daemon_decided_is_known_to_other_processes(place, time, alive):
    here = place()
    alive(here)
    first, second = here.row(1), here.row(2)
    supervisor = Supervisor(here.wiring)
    supervisor.handle_unclaimed(first, 5, "its folder cannot be written")
    HealthFile(here.settings).write([], supervisor.delays.explained())
    found = reason(here, first)
    assert (found.code, found.until > clock.stamp(clock.now())) == ("delay", True)
    assert found.text.startswith("its worker could not start the task: its folder cannot be written; a worker is")
    assert reason(here, second).code == "next"
    time.move(2)
    assert reason(here, first).code == "next", "the time of the delay is over, although the file still has it"
    HealthFile(here.settings).write([], supervisor.delays.explained())
    assert read_health(here.settings).delays == {}


def test_a_task_that_is_left_to_another_host_has_one_reason_until_the_end_of_its_time(place, time, alive):
    here = place("taskqueue: {home_seconds: 20}\n")
    alive(here)
    uuid, seen = here.row(1), set()
    supervisor = Supervisor(here.wiring)
    begin = clock.monotonic()
    supervisor.home.seconds_to_wait = lambda _row: max(0.0, begin + 20 - clock.monotonic())
    for _ in range(4):
        assert supervisor.must_wait(uuid)
        time.move(HELD_SECONDS - 0.5)
        seen.add(reason_after(here, supervisor, uuid))
        time.move(0.5)
        assert uuid not in supervisor.delays.waiting(), "it is looked at again"
        if clock.monotonic() < begin + 20:
            seen.add(reason_after(here, supervisor, uuid))
    assert [code for code, _ in seen] == ["delay"]
    assert not supervisor.must_wait(uuid)
    assert supervisor.delays.explained() == {}
    supervisor.delays.delay_start(uuid, 5, "it is left", 20)
    assert not supervisor.must_wait(uuid)
    assert supervisor.delays.explained() == {}, "nothing holds it any more"


def reason_after(here, supervisor, uuid):
    HealthFile(here.settings).write([], supervisor.delays.explained())
    found = reason(here, uuid)
    return found.code, found.until


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("forge_limited", "forge_limit", "the forge's rate limit is used up"),
        ("forge_unreachable", "forge", "the forge does not answer"),
        ("model_unreachable", "model", "the model's server does not answer"),
        ("rate_limited", "model", "the model's server does not answer"),
        ("setup_failed", "delay", "its last attempt ended with `setup_failed`"),
    ],
)
def test_a_task_that_was_put_off_says_what_it_waits_for_and_until_when(place, time, error, code, words):
    here = place()
    uuid = here.row(1)
    put_off(here, uuid, error, "Nobody answers.")
    found = reason(here, uuid)
    until = here.ledger.get(uuid).not_before
    assert (found.code, found.until) == (code, until)
    assert found.text == f"{words} (Nobody answers.); it is tried again after {until[:16].replace('T', ' ')} UTC"


@pytest.mark.parametrize(
    ("outcome", "message", "code", "words"),
    [
        ("asked", "", "question", "it asked a question on the issue, and an answer there resumes it"),
        ("disk", "No space.", "disk", "No space.; it goes on when that is mended"),
        ("paused", None, "paused", "a person paused it"),
        (MARK, "", "publishing", "its work is finished; a resume publishes it"),
        ("ending completed finished", "", "publishing", "its work is finished; a resume publishes it"),
        ("odd", "", "other", "odd"),
    ],
)
def test_a_paused_task_says_who_or_what_resumes_it(place, outcome, message, code, words):
    here = place()
    row = replace(here.ledger.get(here.row(1)), status=Status.PAUSED, outcome=outcome, error_message=message)
    found = TaskReasons(here.settings, here.ledger, here.wiring.owner).find_reason(row)
    assert (found.code, found.text) == (code, words)


def test_a_hold_a_limit_and_a_full_disk_are_named_for_the_rows_they_hold(place, time, alive):
    here = place("limits: {at_once: {person: 1}}\n")
    alive(here)
    uuid = here.row(1)
    assert reason(here, uuid).code == "next"
    running = here.row(2)
    here.ledger.claim(running, here.wiring.owner, 60)
    found = reason(here, uuid)
    assert (found.code, found.text) == ("at_once", AT_ONCE)
    assert reason(here, running).code == "daemon", "no process holds its lock"
    hold = StartHold("host", start_holds.resources_of(here.settings, here.ledger.get(uuid))["host"], "git", ["a"] * 3)
    hold.until = clock.stamp(clock.now() + timedelta(seconds=30))
    (here.settings.base_dir / start_holds.NAME).write_bytes(orjson.dumps([hold.__dict__]))
    assert reason(here, uuid).code == "hold"
    time.move(31)
    assert reason(here, uuid).code == "at_once", "a probe is due"
    here.ledger.finish(running, 1, Status.FAILED)
    full = here.settings.model_copy(
        update={"scheduling": here.settings.scheduling.model_copy(update={"min_free": 1 << 60})}
    )
    found = TaskReasons(full, here.ledger, here.wiring.owner)
    assert found.find_reason(here.ledger.get(uuid)).code == "disk"
    assert any("`scheduling.min_free`" in note for note in found.notes())


def test_a_hold_is_looked_at_once_and_a_row_that_is_reserved_waits_for_no_limit(place, time, alive, monkeypatch):
    here = place("limits: {at_once: {repository: 1}}")
    alive(here)
    rows = [here.ledger.get(here.row(number)) for number in (1, 2)]
    hold = StartHold("host", start_holds.resources_of(here.settings, rows[0])["host"], "git", ["a"] * 3, probe="gone")
    hold.until = clock.stamp(clock.now() + timedelta(seconds=30))
    (here.settings.base_dir / start_holds.NAME).write_bytes(orjson.dumps([hold.__dict__]))
    looks = []
    is_closed = start_holds.is_closed
    monkeypatch.setattr(start_holds, "is_closed", lambda *given: looks.append(given) or is_closed(*given))
    reasons = TaskReasons(here.settings, here.ledger, here.wiring.owner)
    assert [reasons.find_reason(row).code for row in rows] == ["hold", "hold"]
    assert len(looks) == 1
    (here.settings.base_dir / start_holds.NAME).unlink()
    here.ledger.reserve(1, here.wiring.owner, seconds=60, at_once=here.settings.limits.at_once)
    assert [reason(here, row.uuid).code for row in rows] == ["next", "at_once"]


def test_a_running_task_says_that_its_model_does_not_answer_and_what_was_requested(place, time):
    here = place()
    uuid = here.row(1)
    here.ledger.claim(uuid, here.wiring.owner, 60)
    folder = here.settings.base_dir / "running" / uuid
    folder.mkdir(parents=True)
    lock = durable_files.lock(folder / "lock")
    try:
        assert reason(here, uuid) is None
        line = {"seq": 1, "purpose": "turn", "status": "failed", "error": "model_unreachable: refused"}
        (folder / "requests.jsonl").write_bytes(orjson.dumps(line) + b"\n")
        found = reason(here, uuid)
        assert found.code == "model"
        assert "model_unreachable: refused" in found.text
        with (folder / "requests.jsonl").open("ab") as file:
            file.write(orjson.dumps({"seq": 2, "purpose": "turn", "status": "ok"}) + b"\n")
        assert reason(here, uuid) is None
        here.ledger.request(uuid, "pause")
        assert reason(here, uuid).code == "requested"
    finally:
        durable_files.unlock(lock)


def test_ci_of_a_fresh_pull_request_is_named_for_a_day(place, time):
    here = place()
    uuid = here.row(1)
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    here.wiring.db.execute(
        "UPDATE tasks SET instance = 'forge', url = 'https://forge/pull/3', branch = 'b', head_commit = :head "
        "WHERE uuid = :uuid",
        head="a" * 40,
        uuid=uuid,
    )
    here.ledger.finish(uuid, claim.attempt, Status.COMPLETED, outcome="finished")
    here.wiring.db.execute("UPDATE tasks SET instance = '/srv/tracker' WHERE uuid = :uuid", uuid=uuid)
    assert reason(here, uuid) is None, "a folder has no CI"
    here.wiring.db.execute("UPDATE tasks SET instance = 'forge' WHERE uuid = :uuid", uuid=uuid)
    found = reason(here, uuid)
    assert found.code == "ci"
    assert found.until == clock.stamp(clock.now() + timedelta(days=1))
    here.ledger.note_pull(uuid, "merged")
    assert reason(here, uuid) is None
    here.wiring.db.execute("UPDATE tasks SET pull_state = NULL WHERE uuid = :uuid", uuid=uuid)
    time.move(24 * 3600 + 1)
    assert reason(here, uuid) is None


def test_rate_limits_and_limits_of_the_day_are_notes(place, time):
    here = place("limits: {runs: 1}\n")
    folder = here.settings.base_dir / "limits"
    limiter = RateLimiter(folder, "api.github.com")
    limiter.note_budget("core", remaining=0, limit=5000, reset_in=600)
    limiter.note_budget("search", remaining=7, limit=30, reset_in=60)
    RateLimiter(folder, "git.example.org").slow_down("*", 90, "asked to slow down")
    (folder / "odd.json").write_text("[]")
    known = {(one.host, one.bucket): (one.remaining, one.limit, one.seconds > 0) for one in host_limits(folder)}
    assert known == {
        ("api.github.com", "core"): (0, 5000, True),
        ("api.github.com", "search"): (7, 30, False),
        ("git.example.org", "*"): (None, None, True),
    }
    row = here.ledger.get(here.row(1))
    notes = TaskReasons(here.settings, here.ledger, here.wiring.owner).notes([row])
    assert [note.partition(" ")[0] for note in notes] == ["api.github.com", "git.example.org", "local/default"]
    assert "`limits.runs`" in notes[-1]
    time.move(601)
    assert host_limits(folder) == []


def test_a_limit_of_the_day_may_be_of_one_project(place):
    here = place("github: {projects: [o/other, {name: o/r, limits: {runs: 1}}]}\n")
    keys = [
        here.key(1) | {"task_source": "github", "instance": "api.github.com", "owner": "o", "repo": repo}
        for repo in ("r", "other")
    ]
    rows = [here.ledger.get(here.ledger.enqueue(one, title="An issue")) for one in keys]
    notes = TaskReasons(here.settings, here.ledger, here.wiring.owner).notes(rows)
    assert notes == ["o/r has used up `limits.runs` of today: its new issues are taken after midnight UTC"]


def test_looking_imports_nothing_that_speaks_with_forges():
    import subprocess
    import sys

    code = (
        "import sys, agent.daemon.task_reasons; print([one for one in ('requests', 'urllib3') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
