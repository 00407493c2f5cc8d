"""A `tasks` table that is gone: it is made again, with the rows that the folders tell."""

import dataclasses
import json
import os
from datetime import timedelta

import pytest
from run_home import UUID

from agent import clock, durable_files, filetree
from agent.commands.repair_rows import repair
from agent.context import EffectStore, RequestStore, TaskContextManager
from agent.daemon.reconcile import reconcile
from agent.daemon.supervisor import Supervisor
from agent.intake.restore_rows import record_of
from agent.store import db
from agent.values import End, Outcome, Status, TaskKey, Usage
from agent.wiring.folders import make_folder
from agent.worker.final_state import FinalState
from agent.worker.unpublished_work import MARK

COLUMNS = ("status", "created_at", "completed_at", "user", "title", "model", "error_code", "error_message", "last_seq")
ROW_ALONE = ("attempt", "priority", "parent_uuid", "started_by", "comment_cursor", "branch", "url", "head_commit")
COUNTED = ("llm_call_count", "tool_call_count", "prompt_tokens", "completion_tokens", "outcome")


@pytest.fixture
def worked(place):
    """Four tasks: one done, one failed, one that a worker left, one that waits to be published."""
    here = place()

    def begin(number, claim):
        return TaskContextManager(
            TaskKey.from_mapping(here.key(number)),
            claim.uuid,
            here.settings,
            user="alice",
            title=f"Issue {number}",
            attempt=claim.attempt,
            lease_owner=here.wiring.owner,
            database=here.wiring.db,
        )

    for number in range(1, 5):
        uuid = here.ledger.enqueue(
            here.key(number),
            uuid=UUID % number,
            user="alice",
            title=f"Issue {number}",
            priority=number,
            parent_uuid=UUID % 9,
            started_by=f"comment {number}",
        )
        for _ in range(number):  # the fourth attempt of the fourth task
            claim = here.ledger.claim(uuid, here.wiring.owner, 60)
            if claim.attempt < number:
                here.ledger.release(uuid, claim.attempt)
        task = begin(number, claim)
        task.set_columns(
            comment_cursor=f"as far as {number}",
            branch=f"makimono/{number}",
            url=f"file:///pulls/{number}",
            head_commit=f"{number}" * 40,
        )
        store = task.get_message_store()
        store.add_message("system", "You are an agent.")
        store.add_message("user", "Mend it.")
        call = {"id": "c1", "name": "read_file", "arguments": {"path": "a"}}
        store.add_message("assistant", "", tool_calls=[call], usage=Usage(70, 7, 3))
        task.get_tool_store().add_tool_call("read_file", {"path": "a"}, "text", "success", 3)
        store.add_message("tool", "text", tool_call_id="c1")
        task.heartbeat()
        if number == 1:
            task.complete(Outcome(End.FINISHED, title="Issue 1", summary="done"))
        elif number == 2:
            task.fail("it broke", "bug")
        elif number == 4:
            task.get_effect_store().done(
                MARK, {**Outcome(End.FINISHED).to_dict(), "since": "2026-01-31T09:15:00.000000Z"}
            )
        task.close()
    return here


def drop(here):
    here.wiring.db.execute("DROP TABLE tasks")


def remove(here):
    here.wiring.close()
    for path in here.settings.base_dir.glob("tasks.db*"):
        path.unlink()
    here.wiring = type(here.wiring)(here.settings, events=here.events)


@pytest.mark.parametrize("harm", [drop, remove])
@pytest.mark.parametrize("mended_by", ["start", "sweep"])
def test_rows_are_made_again_from_the_folders(worked, harm, mended_by):
    here = worked
    before = {number: here.ledger.get(UUID % number) for number in range(1, 5)}
    harm(here)
    if mended_by == "start":
        reconcile(here.wiring)
    else:
        Supervisor(here.wiring).dead_rows.requeue()
    for number, row in before.items():
        again = here.ledger.get(UUID % number)
        for column in COLUMNS[1:] if number > 2 else (*COLUMNS, *COUNTED):
            if column not in ("created_at", "completed_at"):
                assert getattr(again, column) == getattr(row, column), (number, column)
        for column in ROW_ALONE:
            assert getattr(again, column) == getattr(row, column), (number, column)
        assert again.tell_at is None
        assert again.created_at <= row.heartbeat_at
    assert here.ledger.get(UUID % 3).status is Status.QUEUED
    assert here.ledger.get(UUID % 3).outcome is None
    assert here.ledger.get(UUID % 4).outcome == MARK
    assert len(here.named("row_restored")) == 4
    assert not here.named("folder_quarantined")
    claim = here.ledger.claim(UUID % 3, here.wiring.owner, 60)
    assert claim.attempt == 4, "whoever held it before the loss is fenced"
    with TaskContextManager(
        here.key(3), claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db
    ) as task:
        assert task.resumed
        assert task.get_message_store().last_seq == 4


def taken_up_elsewhere(here, number=3):
    """Another host of the ledger found the issue of a task that was lost, and queued it under its old uuid."""
    with clock.use(clock.FakeClock(clock.now() + timedelta(minutes=2))):
        here.ledger.enqueue(here.key(number), uuid=UUID % number)


def test_a_host_notices_that_rows_were_lost_also_where_another_one_has_made_some_again(worked):
    here = worked
    supervisor = Supervisor(here.wiring)
    supervisor.dead_rows.requeue()
    assert not here.named("row_restored")
    drop(here)
    taken_up_elsewhere(here)
    supervisor.dead_rows.requeue()
    assert supervisor.ground.lost.is_set()
    assert {one["uuid"] for one in here.named("row_restored")} == {UUID % 1, UUID % 2, UUID % 4}
    supervisor.ground.lost.clear()
    supervisor.dead_rows.requeue()
    assert not supervisor.ground.lost.is_set(), "once"


@pytest.mark.parametrize("status", ["running", "paused"])
def test_a_row_that_nobody_waits_for_is_missed_too(place, status):
    here = place()
    claim = here.claim(1)
    make_folder(here.settings, claim.uuid)
    if status == "paused":
        here.wiring.db.run("ledger_pause", outcome="asked", uuid=claim.uuid, was="running", attempt=1)
    supervisor = Supervisor(here.wiring)
    lock = durable_files.lock(here.settings.base_dir / "running" / claim.uuid / "lock")
    supervisor.dead_rows.requeue()
    assert here.ledger.get(claim.uuid).status == status
    drop(here)
    here.row(2)
    supervisor.dead_rows.requeue()
    durable_files.unlock(lock)
    assert supervisor.ground.lost.is_set()


def test_an_empty_ledger_is_noticed_by_a_host_that_had_none_of_the_tasks(place):
    """Else the issues of a host that is lost as well are compared with the ledger hours later."""
    here = place()
    here.claim(1)
    here.ledger.db.execute("UPDATE tasks SET hostname = 'another-host', lease_owner = 'another:/contexts:1:1'")
    supervisor = Supervisor(here.shared().wiring)
    supervisor.dead_rows.requeue()
    drop(here)
    supervisor.dead_rows.requeue()
    assert supervisor.ground.lost.is_set()


def test_a_task_that_ended_and_was_cleaned_up_between_two_sweeps_is_not_lost(place):
    here = place()
    claim = here.claim(1)
    folder = make_folder(here.settings, claim.uuid)
    lock = durable_files.lock(folder / "lock")
    supervisor = Supervisor(here.wiring)
    supervisor.dead_rows.requeue()
    here.ledger.finish(claim.uuid, 1, "completed")
    here.ledger.delete(claim.uuid)
    filetree.remove(folder)
    durable_files.unlock(lock)
    here.row(2)
    supervisor.dead_rows.requeue()
    assert not supervisor.ground.lost.is_set()


def test_a_start_makes_rows_again_also_where_another_host_has_found_one_of_the_issues_first(worked):
    here = worked
    drop(here)
    taken_up_elsewhere(here)
    reconcile(here.wiring)
    assert {one["uuid"] for one in here.named("row_restored")} == {UUID % 1, UUID % 2, UUID % 4}
    assert not here.named("folder_quarantined")


def test_whether_a_folder_is_known_is_asked_of_its_metadata_alone(worked, monkeypatch):
    """Else each start reads the whole conversation of a task that has long ended."""
    here = worked
    read = []
    monkeypatch.setattr("agent.intake.restore_rows.record_of", read.append)
    reconcile(here.wiring)
    assert read == []
    assert not here.named("row_restored")


@pytest.mark.parametrize("said", ["yesterday", "0001-01-01T00:00:00+05:00", 7, None])
def test_a_folder_that_says_no_time_is_that_of_its_row_and_keeps_no_daemon_from_its_start(worked, said):
    here = worked
    for number in range(1, 5):
        for path in here.settings.base_dir.glob(f"*/{UUID % number}/metadata.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"created_at": said}))
    reconcile(here.wiring)
    assert not here.named("row_restored")
    drop(here)
    reconcile(here.wiring)
    assert len(here.named("row_restored")) == 4
    assert all(clock.parse(here.ledger.get(UUID % number).created_at) for number in range(1, 5))


def test_what_requests_have_cost_is_counted_in_the_row_that_is_made_again(worked):
    """Without it no host leaves the task to the one that has its conversation, and limits begin anew."""
    here = worked
    folder = here.settings.base_dir / "running" / (UUID % 3)
    kept = record_of(folder)
    requests = RequestStore(folder)
    for _ in range(3):
        begun = requests.begin(purpose="turn", provider="openai", model="m", tokens=50, cost=0.25)
        requests.end(begun, status="answered", usage=Usage(50, 5, 2), cost=0.25)
    requests.close()
    drop(here)
    reconcile(here.wiring)
    row = here.ledger.get(UUID % 3)
    assert row.llm_call_count == kept["llm_call_count"] + 3
    assert row.total_tokens == kept["total_tokens"] + 3 * 55
    (cost,) = here.wiring.db.execute("SELECT cost FROM tasks WHERE uuid = :uuid", uuid=row.uuid)
    assert cost["cost"] == 0.75
    inherited = {"llm_calls": 2, "prompt": 100, "completion": 10, "cached": 4, "compactions": 0, "cost": 0.5}
    (folder / "inherited.json").write_text(json.dumps(inherited))
    again = record_of(folder)
    assert (again["llm_call_count"], again["cost"]) == (row.llm_call_count - 2, 0.25), "another task had paid for it"


def test_a_stored_end_is_in_the_row_that_is_made_again_with_its_reason(worked):
    """Another host may take the row, which has not the folder."""
    folder = worked.settings.base_dir / "running" / (UUID % 3)
    ending = FinalState(Status.FAILED, "limit_cost", "Too dear.", Outcome(End.LIMIT, "Too dear.", code="limit_cost"))
    effects = EffectStore(folder)
    effects.done("end", dataclasses.asdict(ending) | {"outcome": ending.outcome.to_dict()})
    effects.file.close()
    assert FinalState.from_row(record_of(folder)) == ending


def test_every_command_makes_the_table_again_and_what_others_put_into_it_says_nothing(worked):
    here = worked
    drop(here)
    database = db.open_tasks(here.settings.base_dir)
    assert database.execute("SELECT * FROM tasks") == []
    database.close()
    here.row(9)  # the poller, or another host of the same ledger
    reconcile(here.wiring)
    assert len(here.named("row_restored")) == 4
    assert not here.named("folder_quarantined")


def test_a_ledger_that_knows_one_of_the_folders_is_taken_for_whole_but_by_a_person_who_repairs(worked):
    here = worked
    here.wiring.db.execute("DELETE FROM tasks WHERE uuid <> :uuid", uuid=UUID % 1)
    folder = here.settings.base_dir / "running" / (UUID % 3)
    os.utime(folder, (1, 1))
    reconcile(here.wiring)
    assert not here.named("row_restored")
    assert [one["name"] for one in here.named("folder_quarantined")] == [UUID % 3]
    made = repair(here.wiring)
    assert sorted(fields["uuid"] for fields in here.named("row_restored")) == [UUID % 2, UUID % 3, UUID % 4]
    assert (made.rows, here.ledger.get(UUID % 3).status) == (3, Status.QUEUED)
    assert folder.is_dir(), "what was put aside is where it was"
    assert repair(here.wiring).rows == 0


def test_a_folder_that_does_not_say_whose_it_is_has_no_row(worked):
    here = worked
    for number, harm in ((1, lambda path: path.write_text("{")), (2, lambda path: path.unlink())):
        harm(here.settings.base_dir / "completed" / (UUID % number) / "metadata.json")
    drop(here)
    reconcile(here.wiring)
    assert {fields["uuid"] for fields in here.named("row_restored")} == {UUID % 3, UUID % 4}


@pytest.mark.parametrize("reason", ["asked", "paused"])
@pytest.mark.parametrize("went_on", [False, True])
def test_who_waits_for_a_person_waits_on(worked, reason, went_on):
    """Until a worker takes it up again: then it goes on as any other."""
    here, uuid = worked, UUID % 3
    attempt = here.ledger.get(uuid).attempt

    def opened(attempt):
        return TaskContextManager(here.key(3), uuid, here.settings, attempt=attempt, database=here.wiring.db)

    with opened(attempt) as task:
        if reason == "paused":
            here.ledger.request(uuid, "pause")
        task.paused("asked")
    if went_on:
        here.ledger.request(uuid, "resume")
        opened(here.ledger.claim(uuid, here.wiring.owner, 60).attempt).close()
    drop(here)
    reconcile(here.wiring)
    row = here.ledger.get(uuid)
    wanted = (Status.QUEUED, None) if went_on else (Status.PAUSED, reason)
    assert (row.status, row.outcome) == wanted
    assert row.comment_cursor == "as far as 3"
