"""An extraction job where hosts share a ledger and a memory: one of them does it, and every host lists it."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import services
from ended_task import call, command, end_task
from run_home import Place
from shared_memory import contents

from agent.errors import HostError, UsageError
from agent.extraction import job
from agent.memory import jobs
from agent.store import postgres_memory_log
from agent.wiring.memory import open_memory

STEPS = [command("pytest -q", 1, "E  assert 3 == 4"), call("edit_file", path="calc.py"), command("pytest -q")]


@pytest.fixture
def hosts(tmp_path):
    """Two hosts that both have the folder of an ended task, as after a takeover."""
    with services.schema(tmp_path) as address:
        made = [Place(tmp_path / name, f"taskqueue: {{ledger: '{address}'}}\n") for name in ("a", "b")]
        made[0].uuid = end_task(made[0], calls=STEPS)
        source, target = (one.settings.base_dir for one in made)
        shutil.copytree(source / "completed", target / "completed")
        yield made
        for one in made:
            one.close()


def test_one_host_does_the_job_and_both_know_it(hosts):
    first, second = hosts
    gate = threading.Barrier(2)

    def work(here):
        gate.wait()
        return job.run(here.wiring, first.uuid)

    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(work, hosts)) == [False, True]
        said = [len(here.named("memory_extracted")) for here in hosts]
        first.wiring.db.execute("UPDATE tasks SET remember_at = created_at")
    assert sum(said) == 1, "the job is done once; the later tries find it done"
    with closing(open_memory(first.settings, "a test")) as a, closing(open_memory(second.settings, "a test")) as b:
        a.follow()
        b.follow()
        assert contents(a) == contents(b)
        assert a.figures()["records"] == {"episodes": {"active": 1}, "summaries": {"active": 1}}
        listed = [store.list_memory_extraction_jobs() for store in (a, b)]
        assert listed[0] == listed[1]
        assert [(one["id"], one["status"], one["attempts"]) for one in listed[0]] == [(first.uuid, "done", 1)]


def test_a_job_that_failed_on_one_host_is_tried_again_from_another(hosts):
    first, second = hosts
    with closing(open_memory(first.settings, "a test")) as a, closing(open_memory(second.settings, "a test")) as b:
        a.jobs.begin(first.uuid, "o", first.uuid, "all", "host a", "2026-01-01T00:00:00.000000Z")
        with pytest.raises(UsageError):
            job.restart(second.wiring, b, first.uuid)
        a.jobs.end(first.uuid, jobs.FAILED, "no model")
        second.wiring.db.execute("UPDATE tasks SET remember_at = NULL")
        job.restart(second.wiring, b, first.uuid)
        assert [one["status"] for one in a.list_memory_extraction_jobs()] == ["queued"]
        assert job.run(first.wiring, first.uuid)
        assert [one["status"] for one in b.list_memory_extraction_jobs()] == ["done"]


def test_a_job_waits_while_the_log_is_away_and_loses_nothing(hosts, monkeypatch):
    first, second = hosts

    def away(_):
        raise HostError("the server does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(postgres_memory_log, "open_memory_log", away)
        assert not job.run(first.wiring, first.uuid)
    [told] = first.named("memory_unavailable")
    assert "the server does not answer" in told["error"]
    assert first.wiring.ledger.get(first.uuid).remember_at > first.wiring.ledger.get(first.uuid).created_at
    first.wiring.db.execute("UPDATE tasks SET remember_at = created_at")
    assert job.run(first.wiring, first.uuid)
    assert [one["attempts"] for one in _jobs(second)] == [1], "that try did not count"


def _jobs(here):
    with closing(open_memory(here.settings, "a test")) as store:
        return store.list_memory_extraction_jobs()
