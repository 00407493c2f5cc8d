"""Which errors a task waits out, for how long, and what its row says meanwhile."""

import shutil
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from run_home import UUID

from agent import clock
from agent.context import TaskContextManager
from agent.daemon.supervisor import Supervisor
from agent.errors import ForgeAccessRefused, ForgeUnreachable
from agent.taskqueue.row_holder import hostname
from agent.values import End, Outcome, Status
from agent.worker import requeue, unpublished_work
from agent.worker.error_disposition import ATTEMPTS, PUBLISHING_HOURS, dispose
from agent.worker.task_run import TaskRun

DONE = Outcome(End.FINISHED, summary="It is done.", title="Mend it", code="")


@pytest.fixture
def claimed(place):
    """(place, context) of a task whose row has been claimed `attempt` times."""
    made = []

    def claim(attempt=1, begun=False):
        here = place()
        here.issue(1)
        one = here.claim(1)
        for _ in range(1, attempt):
            here.ledger.release(one.uuid, one.attempt)
            one = here.ledger.claim(one.uuid, here.wiring.owner, 60)
        context = TaskContextManager(here.key(1), one.uuid, here.settings, attempt=one.attempt, database=here.wiring.db)
        made.append(context)
        if begun:
            context.get_message_store().add_message("system", "Work.")
        return here, context

    yield claim
    for context in made:
        context.close()


def todo(context, error, outcome=None):
    return dispose(error, requeue.state_of(context, outcome))


def give_back(here, context, error, outcome=None):
    """What the handler does when the table says so."""
    said = todo(context, error, outcome)
    assert said.what == "requeue"
    return requeue.requeue_task(TaskRun(here.wiring, context), said, outcome)


def given_back_again(here, context):
    """Back to the queue, and claimed: the context of the next attempt."""
    give_back(here, context, ForgeUnreachable("away"))
    context.close()
    here.ledger.offer(context.uuid)
    claim = here.ledger.claim(context.uuid, here.wiring.owner, 60)
    return TaskContextManager(here.key(1), claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db)


def test_while_the_model_works_it_is_waited_for_a_number_of_times_in_a_row(claimed):
    here, context = claimed(begun=True)
    for _ in range(1, ATTEMPTS):
        assert todo(context, ForgeUnreachable("away")).what == "requeue"
        context = given_back_again(here, context)
    assert todo(context, ForgeUnreachable("away")).what == "fail"
    assert todo(context, ForgeUnreachable("away"), DONE).what == "requeue"  # and for days when only publishing is left
    context.get_message_store().add_message("user", "Go on.")
    context.get_message_store().add_message("assistant", "I do.", usage={"prompt_tokens": 1, "completion_tokens": 1})
    assert todo(context, ForgeUnreachable("away")).what == "requeue", "it got on meanwhile"
    context.close()


def test_attempts_that_a_drain_or_an_answer_ended_are_no_tries(claimed):
    here, context = claimed(attempt=ATTEMPTS + 2, begun=True)
    context.resumed = True
    before = clock.now()
    assert todo(context, ForgeUnreachable("away")).what == "requeue"
    give_back(here, context, ForgeUnreachable("away"))
    assert (clock.parse(here.ledger.get(UUID % 1).not_before) - before).total_seconds() < 90


def test_a_task_whose_folder_is_always_new_is_not_tried_for_ever(claimed):
    _, context = claimed(attempt=ATTEMPTS)
    assert todo(context, ForgeUnreachable("away")).what == "fail"


def test_the_row_says_why_it_waits_until_when_and_that_only_publishing_is_left(claimed):
    here, context = claimed(begun=True)
    for _ in range(2):
        context = given_back_again(here, context)
    before = clock.now()
    give_back(here, context, ForgeAccessRefused("401 Bad credentials"), DONE)
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome) == (Status.QUEUED, "publishing")
    assert (row.error_code, row.error_message) == ("forge_access", "401 Bad credentials")
    assert 240 <= (clock.parse(row.not_before) - before).total_seconds() < 300
    kept = unpublished_work.pending_publication(context.get_effect_store())
    assert kept.outcome == DONE
    claim = here.ledger.claim(UUID % 1, here.wiring.owner, 60) if here.ledger.offer(UUID % 1) else None
    assert claim.attempt == 4
    row = here.ledger.get(UUID % 1)
    assert (row.outcome, row.error_code, row.error_message) == ("publishing", None, None)
    context.close()


def test_while_the_model_works_the_row_says_why_and_keeps_no_outcome(claimed):
    here, context = claimed()
    give_back(here, context, ForgeUnreachable("no connection"))
    row = here.ledger.get(UUID % 1)
    assert (row.status, row.outcome, row.error_code) == (Status.QUEUED, None, "forge_unreachable")
    assert unpublished_work.pending_publication(context.get_effect_store()) is None


@pytest.fixture
def given_back(claimed):
    """(place, row) of a task that waits to be published, given back on another host that was heard of `hours` ago."""

    def make(hours=1.0, host="another"):
        here, context = claimed()
        give_back(here, context, ForgeAccessRefused("401"), DONE)
        row = here.ledger.get(UUID % 1)
        seen = clock.stamp(clock.now() - timedelta(hours=hours))
        statement = "UPDATE tasks SET not_before = NULL, hostname = :host, heartbeat_at = :seen"
        here.wiring.db.execute(statement, host=host, seen=seen)
        assert row.hostname == hostname()
        here.shared()
        return here, here.ledger.get(UUID % 1), context.context_dir

    return make


def elsewhere(here, row):
    return unpublished_work.lies_elsewhere(here.settings, row, clock.now())


def test_who_has_the_folder_publishes_whatever_its_host_is_called(given_back):
    here, row, folder = given_back()
    assert not elsewhere(here, row)
    (folder / "effects.jsonl").write_text('{"seq": 1, "name": "progress", "state": "receipt", "receipt": {}}\n')
    assert elsewhere(here, row)  # a folder of an earlier attempt, without what the model came to
    shutil.rmtree(folder)
    assert elsewhere(here, row)


def test_what_lies_elsewhere_is_left_until_its_host_was_not_heard_of_for_days(given_back):
    here, row, folder = given_back(hours=PUBLISHING_HOURS - 1)
    shutil.rmtree(folder)
    assert elsewhere(here, row)
    seen = clock.stamp(clock.now() - timedelta(hours=PUBLISHING_HOURS))
    assert not elsewhere(here, replace(row, heartbeat_at=seen))


def test_a_folder_that_is_lost_on_its_own_host_is_waited_for_by_nobody(given_back):
    here, row, folder = given_back(host=hostname())
    shutil.rmtree(folder)
    assert not elsewhere(here, row)


def test_a_task_that_is_left_to_its_host_is_said_once_and_hides_nobody(given_back):
    here, row, folder = given_back()
    shutil.rmtree(folder)
    other = here.row(2)
    started = []
    supervisor = Supervisor(here.wiring)
    supervisor.start = started.append
    supervisor.start_due()
    supervisor.start_due()
    assert set(started) == {other}
    assert here.named("task_left") == [{"uuid": row.uuid, "host": "another"}]
    assert row.uuid not in supervisor.startable()  # so `run --once` comes to its end


def test_with_a_broker_such_a_task_is_taken_from_the_ledger_by_the_host_that_has_it(given_back):
    here, row, _ = given_back()
    here.row(2)
    supervisor = Supervisor(
        here.wiring, courier=SimpleNamespace(connected=True, thread=None, room=3, take_arrived=lambda _: [])
    )
    started = []
    supervisor.start = started.append
    supervisor.start_due()
    assert started == [row.uuid]
    assert [one.uuid for one in here.ledger.publish(10)] == [UUID % 2]


def test_work_that_is_begun_anew_is_said_on_every_attempt(claimed):
    _, context = claimed()
    assert requeue.restart(context) == ()
    context.set_columns(outcome="publishing")
    assert "was done anew" in requeue.restart(context)[0]
    assert context.column("outcome") == "anew"
    assert requeue.restart(context) != ()
