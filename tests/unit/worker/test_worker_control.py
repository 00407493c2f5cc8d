"""How the outside reaches a running task, and how often it is looked for."""

import threading

import pytest

from agent import clock
from agent.errors import Fenced, ForgeError, LedgerError
from agent.values import End, Outcome
from agent.worker.control import FORGE_SECONDS, ROW_SECONDS, TaskControl

DONE = Outcome(End.FINISHED)
OVER = Outcome(End.LIMIT, code="limit_wall_seconds")


class Outside:
    """What the row and the forge say; how often they were asked."""

    def __init__(self, row=None, forge=None):
        self.row, self.forge = row, forge
        self.rows = self.forges = 0

    def requested(self):
        self.rows += 1
        if isinstance(self.row, Exception):
            raise self.row
        return self.row

    def wanted(self):
        self.forges += 1
        if isinstance(self.forge, Exception):
            raise self.forge
        return self.forge


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as now:
        yield now


def control(outside):
    return TaskControl(outside.requested, outside.wanted)


@pytest.mark.parametrize(
    ("row", "forge", "end"),
    [("stop", None, End.STOPPED), ("pause", None, End.PAUSED), (None, "stop", End.STOPPED), (None, None, None)],
)
def test_the_row_and_the_forge_are_obeyed(time, row, forge, end):
    outcome = control(Outside(row, forge)).poll()
    assert (outcome and outcome.end) == end


def test_a_task_that_another_attempt_owns_ends_as_a_drain_does(time):
    assert control(Outside(Fenced("a newer attempt"))).poll().end is End.DRAINED


def test_a_drain_is_seen_at_once_and_a_stop_comes_first(time):
    told = control(Outside())
    assert told.poll() is None
    told.drain()
    assert told.poll().end is End.DRAINED
    other = control(Outside("stop"))
    other.drain()
    assert other.poll().end is End.STOPPED


def test_a_drain_waits_for_the_answer_that_is_under_way_and_a_stop_does_not(time):
    told = TaskControl(Outside().requested, Outside().wanted, patience=60.0)
    told.drain()
    time.move(59.0)
    told.drain()  # a service manager signals the whole group: that is no second drain
    assert told.poll(answering=True) is None
    time.move(1.0)
    assert told.poll(answering=True).end is End.DRAINED
    other = TaskControl(Outside("stop").requested, Outside().wanted, patience=60.0)
    other.drain()
    assert other.poll(answering=True).end is End.STOPPED
    between = TaskControl(Outside().requested, Outside().wanted, patience=60.0)
    between.drain()
    assert between.poll().end is End.DRAINED


def test_a_wait_of_git_hears_a_drain_at_once_and_while_the_work_is_published_when_the_patience_is_over(time):
    told = TaskControl(Outside().requested, Outside().wanted, patience=60.0)
    told.finish_work(DONE)
    told.drain()
    time.move(59.0)
    assert not told.has_request()
    time.move(1.0)
    assert told.has_request()
    told.finish_work(DONE)  # it is carried out
    assert not told.has_request()
    again = TaskControl(Outside().requested, Outside().wanted, patience=60.0)
    again.finish_work(DONE)
    again.resume()
    again.drain()
    assert again.has_request()
    stopped = TaskControl(Outside("stop").requested, Outside().wanted, patience=60.0)
    stopped.finish_work(DONE)
    assert stopped.has_request()


def test_looking_is_throttled(time):
    outside = Outside()
    told = control(outside)
    for _ in range(5):
        told.poll()
    assert (outside.rows, outside.forges) == (1, 1)
    time.move(ROW_SECONDS)
    told.poll()
    assert (outside.rows, outside.forges) == (2, 1)
    time.move(FORGE_SECONDS)
    told.poll()
    assert (outside.rows, outside.forges) == (3, 2)


@pytest.mark.parametrize(("interval", "seconds"), [(0.5, 0.5), (60.0, FORGE_SECONDS)])
def test_the_forge_is_looked_at_as_often_as_it_is_polled_but_never_more_rarely_than_by_itself(time, interval, seconds):
    outside = Outside()
    told = TaskControl(outside.requested, outside.wanted, often=interval)
    told.poll()
    time.move(seconds - 0.1)
    told.poll()
    assert outside.forges == 1
    time.move(0.1)
    told.poll()
    assert outside.forges == 2


def test_a_database_or_a_forge_that_is_away_stops_nothing(time):
    outside = Outside(LedgerError("busy"), ForgeError("away"))
    told = control(outside)
    assert told.poll() is None
    outside.row = "stop"
    time.move(ROW_SECONDS)
    assert told.poll().end is End.STOPPED


def test_the_first_answer_stays(time):
    outside = Outside("pause")
    told = control(outside)
    first = told.poll()
    outside.row = "stop"
    time.move(60)
    assert told.poll() is first
    assert outside.rows == 1


def test_many_threads_may_look_at_once():
    outside = Outside("stop")
    told = control(outside)
    threads = [threading.Thread(target=told.poll) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told.poll().end is End.STOPPED
    assert outside.rows == 1


def test_what_waits_at_the_forge_is_read_at_once_where_that_is_asked(time):
    outside = Outside()
    one = control(outside)
    assert one.poll() is None
    outside.forge = "stop"
    one.read_at_once()
    assert one.poll() is None, "the row alone"
    one.read_at_once(forge=True)
    assert one.poll().end is End.STOPPED
    assert (outside.rows, outside.forges) == (3, 2)


def test_a_limit_that_is_reached_as_the_model_finishes_does_not_end_the_publication(time):
    over = [OVER]
    limited = TaskControl(Outside().requested, Outside().wanted, lambda: over[0])
    assert limited.poll() == OVER
    over[0] = None
    limited.finish_work(DONE)
    assert limited.poll() is None
    assert not limited.has_request()
    limited.drain()
    assert limited.has_request(), "a drain is still noticed"
    ended = TaskControl(Outside().requested, Outside().wanted, lambda: OVER)
    ended.poll()
    ended.finish_work(OVER)
    assert not ended.has_request(), "it is carried out"


def test_a_person_stops_the_publication_of_work_that_a_limit_ended(time):
    outside = Outside()
    told = TaskControl(outside.requested, outside.wanted, lambda: OVER)
    told.finish_work(told.poll())
    assert not told.has_request(), "the limit is carried out already"
    outside.row = "stop"
    time.move(FORGE_SECONDS)
    assert told.has_request()
    assert told.outcome.end is End.STOPPED
    told.finish_work(told.outcome)
    time.move(FORGE_SECONDS)
    assert not told.has_request(), "the stop is carried out already"


def test_a_ledger_that_does_not_answer_the_inbox_behind_the_forge_ends_nothing(time):
    """The inbox reads the row too: the outage ended a request to the model."""
    outside = Outside(forge=LedgerError("the database is away"))
    told = control(outside)
    assert told.poll() is None
    outside.forge = "pause"
    time.move(FORGE_SECONDS)
    assert told.poll().end is End.PAUSED


def test_another_attempt_that_the_inbox_finds_ends_the_task(time):
    assert control(Outside(forge=Fenced("a newer attempt"))).poll() == Outcome(End.DRAINED, code="fenced")
