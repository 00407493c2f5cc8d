"""Which rows count as those of a dead worker, and what becomes of them."""

from run_home import UUID

from agent import durable_files
from agent.context import ToolStore
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.supervisor import Supervisor
from agent.values import Status
from agent.wiring.folders import make_folder


def test_a_row_whose_lock_is_held_lives_and_goes_back_when_it_is_not(place):
    here = place()
    claim = here.claim(1)
    folder = make_folder(here.settings, claim.uuid)
    supervisor = Supervisor(here.wiring)
    lock = durable_files.lock(folder / "lock")
    supervisor.dead_rows.requeue()
    assert here.ledger.get(claim.uuid).status is Status.RUNNING
    durable_files.unlock(lock)
    supervisor.dead_rows.requeue()
    assert here.ledger.get(claim.uuid).status is Status.QUEUED
    assert here.named("task_requeued")[0]["uuid"] == claim.uuid


def test_a_task_whose_workers_die_before_they_get_anywhere_is_given_up_and_told(place):
    here = place()
    path = here.issue(1, label="coding agent processing")
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    for _ in range(3):
        here.ledger.claim(uuid, here.wiring.owner, 60)
        make_folder(here.settings, uuid)
        supervisor.dead_rows.requeue()
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "poison")
    assert send_pending_notifications(here.wiring) == [uuid]
    assert "coding agent failed" in path.read_text()
    comments = (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text()
    assert comments.count("died 3 times in a row") == 1
    supervisor.dead_rows.requeue()
    assert send_pending_notifications(here.wiring) == []
    assert (here.folder / "tracker" / "issues" / "1.comments.jsonl").read_text() == comments
    assert uuid == UUID % 1


def test_a_death_after_tool_calls_of_an_unfinished_turn_is_no_death_without_progress(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    deaths = []
    for calls in (1, 1, 0, 2, 0, 0, 0):
        here.ledger.claim(uuid, here.wiring.owner, 60)
        tools = ToolStore(make_folder(here.settings, uuid))
        for _ in range(calls):
            tools.add_tool_call("run_command", {"command": "make"}, "ok", "success", 900_000)
        tools.file.close()
        supervisor.dead_rows.requeue()
        deaths.append(here.ledger.get(uuid).deaths)
    assert deaths == [0, 0, 1, 0, 1, 2, 3]
    row = here.ledger.get(uuid)
    assert (row.status, row.outcome, row.error_code) == (Status.QUEUED, "publishing", "poison"), "what was done is kept"
    here.ledger.claim(uuid, here.wiring.owner, 60)
    supervisor.dead_rows.requeue()  # the attempt that was to publish it died too
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code, row.tool_call_count) == (Status.FAILED, "poison", 4)


def test_a_list_of_tool_calls_that_cannot_be_read_shows_no_progress(place):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    here.ledger.claim(uuid, here.wiring.owner, 60)
    (make_folder(here.settings, uuid) / "tools.jsonl").mkdir()
    supervisor.dead_rows.requeue()
    assert here.ledger.get(uuid).deaths == 1
