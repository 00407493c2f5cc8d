"""What the supervisor decides: how many, whom not yet, and the exit code."""

import multiprocessing
from multiprocessing import forkserver
from time import sleep

import pytest

from agent import clock
from agent.daemon.supervisor import Supervisor
from agent.daemon.worker_process import ExitCodes, WorkerProcess
from agent.values import Status
from agent.worker import worker


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as now:
        yield now


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, worker.EXIT_DRAINED], 0),
        ([0, 1], 1),
        ([3, 3], 3),
        ([3, 1], 1),
        ([-9, 3], 1),
        ([2], 1),
    ],
)
def test_the_exit_code_is_the_worst_and_3_only_for_the_surroundings(place, codes, expected):
    supervisor = Supervisor(place().wiring)
    for number, code in enumerate(codes):
        supervisor.exit_codes.record(str(number), code)
    assert supervisor.exit_codes.worst() == expected


def test_the_forkserver_reads_the_vocabularies_of_the_models_before_it_freezes_what_it_has(place):
    here = place()
    openai = here.settings.llm.openai.model_copy(update={"model": "gpt-4o"})
    summary = here.settings.context_storage.summary_model.model_copy(update={"model": "gpt-4"})
    here.wiring.settings = here.settings.model_copy(
        update={
            "llm": here.settings.llm.model_copy(update={"openai": openai}),
            "context_storage": here.settings.context_storage.model_copy(update={"summary_model": summary}),
        }
    )
    Supervisor(here.wiring)
    names = forkserver._forkserver._preload_modules
    read = ["agent.tokens.preloaded.o200k_base", "agent.tokens.preloaded.cl100k_base"]
    assert names[-4:] == [*read, "agent.daemon.preload_memory_package", "agent.daemon.preload"]
    here.wiring.settings = here.settings.model_copy(
        update={"memory": here.settings.memory.model_copy(update={"enabled": False})}
    )
    Supervisor(here.wiring)
    assert "agent.daemon.preload_memory_package" not in forkserver._forkserver._preload_modules


def test_exit_codes_are_kept_by_name_for_so_many_tasks_and_of_those_before_as_codes():
    """A daemon lives for months."""
    codes = ExitCodes(most=3)
    for number in range(1000):
        codes.record(str(number), 1 if number == 5 else 0)
    assert list(codes.last) == ["997", "998", "999"]
    assert codes.codes() == {0, 1}
    codes.record("997", 3)
    codes.record("997", 0)
    codes.record("1000", 0)
    assert list(codes.last) == ["999", "997", "1000"]
    assert codes.codes() == {0, 1}, "the newest end of a task counts"


def test_a_task_whose_worker_could_not_claim_waits_longer_each_time(place, time):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    assert supervisor.startable() == [uuid]
    supervisor.delays.known[uuid] = (1, clock.monotonic() + 2)
    assert supervisor.startable() == []
    time.move(2)
    assert supervisor.startable() == [uuid]


def test_hindered_tasks_do_not_hide_the_ones_behind_them(place, time):
    here = place("scheduling: {max_workers: 1}\n")
    first = here.row(1)
    time.move(1)
    second = here.row(2)
    supervisor = Supervisor(here.wiring)
    supervisor.delays.known[first] = (1, clock.monotonic() + 100)
    assert supervisor.startable() == [second]


def test_workers_of_an_earlier_daemon_count(place):
    here = place()
    here.claim(1)
    here.row(2)
    assert Supervisor(here.wiring).running() == 1


def test_nothing_is_started_while_draining(place):
    here = place()
    here.row(1)
    supervisor = Supervisor(here.wiring)
    supervisor.drain()
    supervisor.step()
    assert supervisor.children == {}


def test_a_worker_that_cannot_be_forked_is_tried_again(place, time):
    """Somebody killed the forkserver while it was asked."""

    class Dying:
        def Pipe(self, duplex):
            return multiprocessing.Pipe(duplex)

        def Process(self, **_):
            return self

        def start(self):
            raise EOFError

    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    supervisor.context = Dying()
    supervisor.start_due()
    assert supervisor.children == {}
    assert [(said["uuid"], said["error"]) for said in here.named("worker_died")] == [(uuid, "EOFError")]
    assert supervisor.startable() == []
    time.move(2)
    assert supervisor.startable() == [uuid]


@pytest.mark.parametrize("draining", [True, False])
def test_a_worker_that_a_drain_ends_before_it_has_begun_has_not_died(place, draining):
    here = place()
    uuid = here.row(1)
    supervisor = Supervisor(here.wiring)
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=sleep, args=(60,))
    process.start()
    send.close()
    supervisor.children[uuid] = WorkerProcess(process, receive)
    supervisor.draining = draining
    process.terminate()
    process.join()
    supervisor.reap()
    assert not supervisor.busy()
    assert len(here.named("worker_died")) == (0 if draining else 1)
    assert here.ledger.get(uuid).status is Status.QUEUED
