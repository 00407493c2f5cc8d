"""Which job is started when, and what becomes of its process."""

import multiprocessing
import time as real
from contextlib import closing
from types import SimpleNamespace

import pytest
from ended_task import end_task
from flow_home import git

from agent import clock, filetree
from agent.daemon import extraction_runner
from agent.daemon.extraction_runner import LOOK_SECONDS, LOST_DAYS, ExtractionRunner
from agent.extraction import process
from agent.memory.index_requests import FOLDER, IndexRequest
from agent.wiring.memory import open_memory


@pytest.fixture
def here(place):
    made = place()
    with clock.use(clock.FakeClock()) as made.time:
        yield made


def sleep(*_):
    real.sleep(60)


def report_and_end(_, uuid, report):
    report.send(("memory_extracted", {"uuid": uuid, "seconds": 0.1}))


@pytest.fixture
def runner(here):
    made = ExtractionRunner(here.wiring, multiprocessing.get_context("fork"))
    yield made
    made.stop()


def started(runner, monkeypatch):
    """The uuids for which a process would be started."""
    found = []
    monkeypatch.setattr(runner, "_start", found.append)
    return found


def test_a_job_is_looked_for_when_a_task_has_ended_and_now_and_then(here, runner, monkeypatch):
    found = started(runner, monkeypatch)
    here.settings.base_dir.mkdir()
    runner.step(look=False)
    uuid = end_task(here)
    runner.step(look=False)
    assert found == [], "it looked just now"
    runner.step(look=True)
    assert found == [uuid]
    here.time.move(LOOK_SECONDS)
    runner.step(look=False)
    assert found == [uuid, uuid]
    here.time.move(LOOK_SECONDS)
    runner.step(look=True, starts=False)
    assert found == [uuid, uuid], "a full disk, or a program that was replaced"


def test_without_memory_nothing_is_looked_for(here, runner, monkeypatch):
    found = started(runner, monkeypatch)
    end_task(here)
    memory = here.settings.memory.model_copy(update={"enabled": False})
    here.wiring.settings = here.settings.model_copy(update={"memory": memory})
    runner.step(look=True)
    assert (found, runner.is_busy()) == ([], False)


def test_in_a_fleet_a_task_whose_folder_is_elsewhere_is_left_and_given_up_after_a_week(here, runner):
    lost = end_task(here, 1)
    here.time.move(1)
    kept = end_task(here, 2)
    filetree.remove(here.settings.base_dir / "completed" / lost)
    assert runner.next_due() == lost, "alone, its job says that there is nothing"
    here.shared()
    assert runner.next_due() == kept
    here.time.move((LOST_DAYS + 1) * 86400)
    assert runner.next_due() == kept
    assert here.ledger.get(lost).remember_at is None


def wait_for(runner, true):
    for _ in range(500):
        runner.step(look=False)
        if true():
            return
        real.sleep(0.02)
    raise AssertionError("it did not happen")


def test_what_a_job_reports_is_announced_and_then_it_is_over(here, runner, monkeypatch):
    monkeypatch.setattr(process, "main", report_and_end)
    uuid = end_task(here)
    runner._start(uuid)
    assert runner.is_busy()
    assert len(runner.descriptors()) == 2
    here.ledger.begin_extraction(uuid, clock.now() + extraction_runner.timedelta(seconds=60))
    wait_for(runner, lambda: runner.pid is None)
    assert [one["uuid"] for one in here.named("memory_extracted")] == [uuid]
    assert (runner.descriptors(), runner.is_busy()) == ([], False)


def test_a_job_that_hangs_is_killed_and_that_is_announced(here, runner, monkeypatch):
    monkeypatch.setattr(process, "main", sleep)
    uuid = end_task(here)
    monkeypatch.setattr(runner, "next_due", lambda: None)
    runner._start(uuid)
    runner.step(look=False)
    assert runner.pid is not None
    runner._overdue_at = 0.0
    wait_for(runner, lambda: runner.pid is None)
    assert here.named("memory_worker_died") == [{"uuid": uuid, "signal": 9}]


def repository(folder):
    """A bare mirror with two commits."""
    work = folder / "work"
    git("init", "-q", "-b", "main", str(work), cwd=folder)
    for name in ("till.py", "menu.py"):
        (work / name).write_text("x = 1\n")
        git("add", ".", cwd=work)
        git("commit", "-q", "-m", f"Open {name}", cwd=work)
    git("clone", "-q", "--bare", str(work), str(folder / "mirrors" / "shop.git"), cwd=folder)


def test_the_history_that_a_task_asks_for_is_indexed_before_the_jobs(here, runner):
    base = here.settings.base_dir
    base.mkdir(exist_ok=True)
    repository(base)
    uuid = end_task(here)
    request = IndexRequest("shop", "mirrors/shop.git", "main")
    request.put(base)
    (base / FOLDER / "0.json").write_text("{no request")
    runner.step(look=True)
    assert (runner.uuid, runner.request) == ("", request)
    assert request.is_open(base)
    here.ledger.begin_extraction(uuid, clock.now() + extraction_runner.timedelta(seconds=60))
    wait_for(runner, lambda: runner.pid is None)
    assert list((base / FOLDER).iterdir()) == []
    [said] = here.named("history_indexed")
    assert (said["actor"], said["commits"]) == ("shop", 2)
    with closing(open_memory(here.settings, "a test")) as store:
        [first, *_] = store.likely_files("the till", "shop")
        assert first.path == "till.py"
        assert len(store.indexed_tips("shop")) == 1
    assert not runner.is_busy()


@pytest.mark.parametrize("ill", ["no mirror", "broken memory", "no process", "killed"])
def test_a_history_that_cannot_be_indexed_leaves_no_request(here, runner, monkeypatch, ill):
    base = here.settings.base_dir
    base.mkdir(exist_ok=True)
    if ill != "no mirror":
        repository(base)
    if ill == "broken memory":
        (base / "memory.db").write_bytes(b"no database at all" * 500)
    if ill == "no process":
        monkeypatch.setattr(runner, "context", SimpleNamespace(Pipe=runner.context.Pipe, Process=no_process))
    if ill == "killed":
        monkeypatch.setattr(process, "index", sleep)
    request = IndexRequest("shop", "mirrors/shop.git", "main")
    request.put(base)
    runner.step(look=True)
    runner._overdue_at = 0.0
    if ill in ("no mirror", "broken memory"):
        runner._overdue_at = clock.monotonic() + 60
    wait_for(runner, lambda: runner.pid is None and not request.is_open(base))
    assert [one["uuid"] for one in here.named("memory_unavailable")] == [""] * (ill in ("broken memory", "no process"))


def no_process(*_, **__):
    raise OSError(11, "no process is left")


def test_a_drain_ends_a_job_that_does_not_listen(here, runner, monkeypatch):
    monkeypatch.setattr(process, "main", sleep)
    runner._start(end_task(here))
    runner.stop()
    assert runner.pid is None
    runner.stop()


def test_a_process_that_cannot_be_started_is_announced(here, runner, monkeypatch):
    monkeypatch.setattr(runner, "context", SimpleNamespace(Pipe=runner.context.Pipe, Process=no_process))
    uuid = end_task(here)
    runner._start(uuid)
    assert here.named("memory_unavailable")[0]["uuid"] == uuid
    assert runner.pid is None
