"""A worker's claim, and what it leaves when it cannot work."""

import multiprocessing
import signal

import pytest
from llm_servers import call, says
from otlp_receiver import SECRET, Receiver, attributes
from run_home import UUID

from agent import clock, durable_files
from agent.daemon.finalize import send_pending_notifications
from agent.errors import (
    ConfigError,
    ContextError,
    DiskError,
    Fenced,
    HostError,
    IssueUnreadable,
    LedgerError,
    MakimonoError,
    ReplicaAway,
)
from agent.forge.markers import marker, with_markers
from agent.issue.claims import PROGRESS, with_claim_markers
from agent.values import Public, Status
from agent.wiring.folders import make_folder
from agent.worker import worker
from agent.worker.attempt import give_up_claim
from agent.worker.error_disposition import ATTEMPTS, TaskState, dispose
from agent.worker.unopened_attempts import count_attempts


@pytest.fixture
def signals():
    """Put back what a worker takes over."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["..", "a/b", "0D000000-0000-4000-8000-000000000001", ""])
def test_only_a_uuid_in_its_one_form_becomes_a_folder(place, name):
    here = place()
    with pytest.raises(ContextError, match="cannot name a task's folder"):
        make_folder(here.settings, name)
    assert not (here.settings.base_dir / "running").exists()


def test_a_task_that_somebody_holds_is_left_alone(place):
    here = place()
    uuid = here.row(1)
    lock = durable_files.lock(make_folder(here.settings, uuid) / "lock")
    receive, send = multiprocessing.Pipe(duplex=False)
    assert worker.process_task(here.settings, uuid, send) == 0
    assert "is locked by another process" in receive.recv()
    assert here.ledger.get(uuid).status is Status.QUEUED
    durable_files.unlock(lock)
    receive.close()


def test_a_row_that_is_not_queued_is_left_alone(place):
    here = place()
    claim = here.claim(1)
    receive, send = multiprocessing.Pipe(duplex=False)
    assert worker.process_task(here.settings, claim.uuid, send) == 0
    assert f"task {claim.uuid} is running, held by" in receive.recv()
    assert here.ledger.get(claim.uuid).attempt == claim.attempt
    receive.close()


def test_a_source_that_is_not_configured_any_more_ends_the_task_with_that_word(place, signals):
    here = place()
    key = here.key(1) | {"instance": str(here.folder / "elsewhere")}
    uuid = here.ledger.enqueue(key, uuid=UUID % 1)
    with pytest.raises(ConfigError, match="not configured"):
        worker.process_task(here.settings, uuid)
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "config")
    assert "not configured" in row.error_message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (IssueUnreadable("gone"), Status.FAILED),
        (DiskError("full"), Status.QUEUED),
        (LedgerError("the connection was cut"), Status.QUEUED),
        (Fenced("a newer attempt"), Status.RUNNING),
    ],
)
def test_a_row_that_was_left_running_is_let_go_as_the_error_wants(place, error, status):
    here = place()
    claim = here.claim(1)
    give_up_claim(here.wiring, claim, error)
    row = here.ledger.get(claim.uuid)
    assert row.status is status
    if status is Status.QUEUED:
        assert clock.parse(row.not_before) > clock.now()


@pytest.mark.parametrize(("replaced", "status", "code"), [(False, Status.FAILED, "bug"), (True, Status.QUEUED, "host")])
def test_a_mistake_before_the_handler_has_the_code_that_the_handler_would_give_it(
    place, monkeypatch, replaced, status, code
):
    here = place()
    claim = here.claim(1)
    mistake = AttributeError("module 'agent.durable_files' has no attribute 'read_at'")
    monkeypatch.setattr("agent.worker.program_upgrade.replaced", lambda: replaced)
    give_up_claim(here.wiring, claim, mistake)
    row = here.ledger.get(claim.uuid)
    todo = dispose(mistake, TaskState(begun=False, replaced=replaced))
    assert (row.status, row.error_code) == (status, code)
    assert (row.error_code, row.error_message) == (todo.code, todo.why)


def test_a_row_that_the_handler_ended_is_not_touched(place):
    here = place()
    claim = here.claim(1)
    here.ledger.finish(claim.uuid, claim.attempt, "failed", error_code="verify_failed")
    give_up_claim(here.wiring, claim, IssueUnreadable("gone"))
    assert here.ledger.get(claim.uuid).error_code == "verify_failed"


def test_what_a_frozen_attempt_shows_after_the_end_is_corrected(work, signals):
    """It was stopped between its look at the fence and the write, until a newer attempt had ended the task."""
    here, _, task = work()
    uuid, key, forge = str(task.get_uuid()), task.get_task_key(), here.wiring.forges[0]
    here.ledger.release(uuid, 1)

    def label():
        return forge.read_issue(key).labels

    def newer_attempt(_request):
        here.ledger.release(uuid, 2)
        attempt = here.ledger.claim(uuid, "elsewhere:/b:1:1", 60).attempt
        here.wiring.db.execute("UPDATE tasks SET branch = 'makimono/1-x' WHERE uuid = :uuid", uuid=uuid)
        pull = forge.open_pull(key, title=Public("T"), body=Public("B"), head="makimono/1-x", base="main", draft=False)
        here.ledger.finish(uuid, attempt, "completed", outcome="finished")
        assert send_pending_notifications(here.wiring) == [uuid]
        assert label() == ("coding agent done",)
        forge.update_pull(key, pull, draft=True)  # and now what was under way
        progress = forge.find_comment(key, marker(uuid, PROGRESS))
        forge.edit_comment(key, progress, Public(with_claim_markers(Public("Working."), uuid, None, "0a0b0c0d")))
        forge.move_label(key, "processing")
        return says("openai", "Hello")

    here.script.replies[:] = [newer_attempt]
    with pytest.raises(Fenced):
        worker.process_task(here.settings, uuid)
    assert here.ledger.get(uuid).tell_at is not None
    assert send_pending_notifications(here.wiring) == [uuid]
    assert label() == ("coding agent done",)
    assert not forge.find_pull(key, "makimono/1-x").draft
    assert "Working" not in (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text()
    assert send_pending_notifications(here.wiring) == []


def test_what_somebody_works_on_is_not_told_again_by_others(place):
    here = place()
    claim = here.claim(1)
    assert not here.ledger.notify_again(claim.uuid)
    here.ledger.finish(claim.uuid, claim.attempt, "completed")
    (row,) = here.ledger.due_notifications()
    here.ledger.begin_notification(row.uuid, clock.now())
    assert here.ledger.notify_again(claim.uuid)
    assert [row.uuid for row in here.ledger.due_notifications()] == [claim.uuid]


@pytest.mark.parametrize("state", ["done", "failed", "stopped"])
def test_a_task_whose_end_the_forge_shows_is_closed_by_it_and_not_worked_on(work, signals, state):
    """Its row and its folder are of an older backup."""
    here, _, task = work()
    uuid, key, forge = str(task.get_uuid()), task.get_task_key(), here.wiring.forges[0]
    here.ledger.release(uuid, 1)
    forge.post_comment(key, Public(with_markers(Public("The end."), marker(uuid, "final"))))
    forge.move_label(key, state)
    before = (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text()
    worker.process_task(here.settings, uuid)
    row = here.ledger.get(uuid)
    assert row.status == {"done": "completed", "failed": "failed", "stopped": "stopped"}[state]
    assert row.tell_at is None
    assert here.script.asked == []
    assert forge.read_issue(key).labels == (f"coding agent {state}",)
    assert (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text() == before
    assert (here.settings.base_dir / "completed" / uuid).is_dir()


def test_the_trace_of_an_attempt_reaches_the_collector(work, signals):
    """With its end, also where the collector is slow to answer; no text of the model or the issue is in it."""
    with Receiver() as receiver:
        calls = [call("finish", {"title": "Done", "summary": SECRET})]
        here, _, task = work(
            says("openai", SECRET, [call("update_plan", {"items": [{"text": SECRET, "status": "done"}]})]),
            says("openai", SECRET, calls),
            extra=f"observe: {{otlp: '{receiver.address}'}}\n",
        )
        uuid = str(task.get_uuid())
        here.ledger.release(uuid, 1)
        assert worker.process_task(here.settings, uuid) == 0
    assert receiver.wrong == []
    by_name = {}
    for span in receiver.spans:
        assert span.trace_id.hex() == uuid.replace("-", "")
        by_name.setdefault(span.name, []).append(attributes(span))
    assert {name: len(spans) for name, spans in by_name.items()} == {
        "invoke_agent makimono": 1,
        "turn": 2,
        "chat m": 2,
        "execute_tool update_plan": 1,
        "execute_tool finish": 1,
    }
    [root] = by_name["invoke_agent makimono"]
    assert (root["makimono.task.attempt"], root["makimono.task.status"]) == (2, "completed")
    assert [one["gen_ai.usage.input_tokens"] for one in by_name["chat m"]] == [100, 100]


def tries_of(here, uuid, error, times):
    """(status, seconds until the next try) after each of `times` attempts that could not open the task."""
    folder, found = make_folder(here.settings, uuid), []
    for _ in range(times):
        here.ledger.offer(uuid)
        claim = here.ledger.claim(uuid, here.wiring.owner, 60)
        give_up_claim(here.wiring, claim, error, folder)
        row = here.ledger.get(uuid)
        wait = round((clock.parse(row.not_before) - clock.now()).total_seconds()) if row.not_before else None
        found.append((row.status, wait))
    return found


def test_a_task_that_cannot_be_opened_is_tried_later_each_time_and_then_fails(place):
    here = place()
    uuid = here.row(1)
    with clock.use(clock.FakeClock(clock.now())):
        found = tries_of(here, uuid, OSError("no protocol"), ATTEMPTS)
    waits = [60, 120, 240, 480, 960, 1800, 1800]
    assert found == [*((Status.QUEUED, wait) for wait in waits), (Status.FAILED, None)]
    row = here.ledger.get(uuid)
    assert (row.error_code, row.error_message) == (
        "host",
        "no protocol. The task could not be opened in 8 tries",
    )
    events = here.named("task_unopened")
    assert [one["tries"] for one in events] == list(range(1, 9))
    assert [one["seconds"] for one in events] == [*waits, None]
    assert {one["task"] for one in events} == {"local:local/default#1"}
    assert not (make_folder(here.settings, uuid) / "unopened").exists()


@pytest.mark.parametrize("error", [DiskError("full"), LedgerError("gone"), ReplicaAway("no answer"), HostError("ill")])
def test_what_the_host_lacks_ends_no_task_however_long_it_lasts(place, error):
    here = place()
    uuid = here.row(1)
    with clock.use(clock.FakeClock(clock.now())):
        found = tries_of(here, uuid, error, 3 * ATTEMPTS)
    assert {status for status, _ in found} == {Status.QUEUED}
    assert found[-1][1] == 1800


def test_an_attempt_that_opens_the_task_counts_anew(place, signals, monkeypatch):
    here = place()
    uuid = here.row(1)
    folder = make_folder(here.settings, uuid)

    def broken(*_):
        raise OSError("no protocol")

    with monkeypatch.context() as patch:
        patch.setattr("agent.worker.attempt.take_over", broken)
        for tries in (1, 2):
            here.ledger.offer(uuid)
            assert worker.process_task(here.settings, uuid) == worker.EXIT_WAITS
            assert count_attempts(folder) == tries
    here.ledger.offer(uuid)
    with pytest.raises(MakimonoError):  # the issue does not exist
        worker.process_task(here.settings, uuid)
    assert count_attempts(folder) == 0
