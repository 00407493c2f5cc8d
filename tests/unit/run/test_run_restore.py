"""A `tasks` table that is gone: it is made again, with the rows that the folders tell."""

import os

import pytest
from run_home import UUID

from agent.context import TaskContextManager
from agent.run.later import MARK
from agent.run.reconcile import reconcile
from agent.run.repair import repair
from agent.run.supervisor import Supervisor
from agent.store import db
from agent.values import End, Outcome, Status, TaskKey, Usage

COLUMNS = ("status", "created_at", "completed_at", "user", "title", "model", "error_code", "error_message", "last_seq")
COUNTED = ("llm_call_count", "tool_call_count", "prompt_tokens", "completion_tokens", "outcome")


@pytest.fixture
def worked(place):
    """Four tasks: one done, one failed, one that a worker left, one that waits to be published."""
    here = place()

    def begin(number):
        claim = here.claim(number)
        return TaskContextManager(
            TaskKey.of(here.key(number)),
            claim.uuid,
            here.settings,
            user="alice",
            title=f"Issue {number}",
            attempt=claim.attempt,
            lease_owner=here.wiring.owner,
            database=here.wiring.db,
        )

    for number in range(1, 5):
        task = begin(number)
        store = task.get_message_store()
        store.add_message("system", "You are an agent.")
        store.add_message("user", "Mend it.")
        call = {"id": "c1", "name": "read_file", "arguments": {"path": "a"}}
        store.add_message("assistant", "", tool_calls=[call], usage=Usage(70, 7, 3))
        task.get_tool_store().add_tool_call("read_file", {"path": "a"}, "text", "success", 3)
        store.add_message("tool", "text", tool_call_id="c1")
        task.beat()
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
        Supervisor(here.wiring).sweep()
    for number, row in before.items():
        again = here.ledger.get(UUID % number)
        for column in COLUMNS[1:] if number > 2 else (*COLUMNS, *COUNTED):
            if column not in ("created_at", "completed_at"):
                assert getattr(again, column) == getattr(row, column), (number, column)
        assert again.tell_at is None
        assert again.created_at <= row.heartbeat_at
    assert here.ledger.get(UUID % 3).status is Status.QUEUED
    assert here.ledger.get(UUID % 3).outcome is None
    assert here.ledger.get(UUID % 4).outcome == MARK
    assert len(here.named("row_restored")) == 4
    assert not here.named("folder_quarantined")
    claim = here.ledger.claim(UUID % 3, here.wiring.owner, 60)
    with TaskContextManager(
        here.key(3), claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db
    ) as task:
        assert task.resumed
        assert task.get_message_store().last_seq == 4


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
