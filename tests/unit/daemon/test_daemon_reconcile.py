"""What a start mends: the five ways in which rows and folders can be apart, and names that are no tasks."""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import outsiders
import pytest
from run_home import UUID

from agent import clock, durable_files
from agent.context import TaskContextManager
from agent.context.folder import write_end
from agent.daemon.finalize import send_pending_notifications
from agent.daemon.reconcile import reconcile
from agent.daemon.supervisor import Supervisor
from agent.errors import ContextError
from agent.values import End, Outcome, Status
from agent.wiring.folders import keep_from_others, make_folder


def folder(here, parent, number):
    path = here.settings.base_dir / parent / (UUID % number)
    path.mkdir(parents=True)
    return path


def aged(path):
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def started(here):
    """What a daemon's start does before it starts a task."""
    reconcile(here.wiring)
    Supervisor(here.wiring).dead_rows.requeue()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's folders are for that user alone")
def test_what_an_earlier_version_left_open_to_other_users_is_closed(place):
    here = place()
    base_dir = here.settings.base_dir
    for folder_of_old in ("repos/h/o/r.git", "running/" + UUID % 1, "completed/" + UUID % 2, "replays/r/repos/x.git"):
        path = base_dir / folder_of_old
        path.mkdir(parents=True, exist_ok=True)
        (path / "secret").write_text("x")
    for path in (base_dir, *base_dir.parents[:-2], *base_dir.rglob("*")):
        path.chmod(0o644 if path.is_file() else 0o755)
    assert [path for path in outsiders.readable(base_dir) if path.endswith("secret")] != []
    keep_from_others(here.settings)
    assert [path for path in outsiders.readable(base_dir) if path.endswith("secret")] == []
    assert (base_dir / "running").stat().st_mode & 0o777 == 0o755  # `doctor` warns


def test_a_closed_row_whose_folder_is_in_running_has_it_moved_and_the_person_is_told(place):
    here = place()
    path = here.issue(1, label="coding agent processing")
    claim = here.claim(1)
    folder(here, "running", 1)
    here.ledger.finish(claim.uuid, claim.attempt, "failed", error_message="it broke", error_code="bug")
    started(here)
    moved = here.settings.base_dir / "completed" / claim.uuid
    assert json.loads((moved / "end.json").read_text())["error_code"] == "bug"
    assert here.named("folder_moved") == [{"uuid": claim.uuid, "status": "failed"}]
    assert send_pending_notifications(here.wiring) == [claim.uuid]
    assert "coding agent failed" in path.read_text()
    started(here)
    assert len(here.named("folder_moved")) == 1


@pytest.mark.parametrize("status", ["running", "queued", "paused"])
def test_an_open_row_whose_folder_is_in_completed_gets_the_end_that_the_folder_records(place, status):
    """`queued` and `paused`: tasks.db was put back from a backup that is older than the folder."""
    here = place()
    uuid = here.row(1) if status == "queued" else here.claim(1).uuid
    if status == "paused":
        here.wiring.db.run("ledger_pause", outcome="asked", uuid=uuid, was="running", attempt=1)
    write_end(folder(here, "completed", 1), "completed", outcome="finished")
    started(here)
    row = here.ledger.get(uuid)
    assert (row.status, row.outcome) == (Status.COMPLETED, "finished")
    assert here.named("row_settled") == [{"uuid": uuid, "was": status, "status": "completed"}]
    assert here.named("task_requeued") == []


def test_an_end_that_no_file_records_is_a_failure_that_says_so(place):
    here = place()
    uuid = here.claim(1).uuid
    (folder(here, "completed", 1) / "end.json").write_text('{"status": "runn')
    started(here)
    row = here.ledger.get(uuid)
    assert (row.status, row.error_code) == (Status.FAILED, "unrecorded")


def test_a_task_records_its_end_before_its_row_does(place):
    here = place()
    claim = here.claim(1)
    context = TaskContextManager(claim.key, claim.uuid, here.settings, attempt=claim.attempt, database=here.wiring.db)
    context.complete(Outcome(End.FINISHED, summary="done"))
    end = json.loads((context.context_dir / "end.json").read_text())
    assert (end["status"], end["outcome"]) == ("completed", "finished")


def test_a_running_row_with_a_free_lock_goes_back_to_the_queue_also_after_a_reboot(place):
    here = place()
    uuid = here.claim(1).uuid
    folder(here, "running", 1)
    here.wiring.db.execute("UPDATE tasks SET lease_owner = 'another-boot:' || lease_owner")
    started(here)
    assert here.ledger.get(uuid).status is Status.QUEUED
    assert here.named("task_requeued")[0]["uuid"] == uuid


@pytest.mark.parametrize("status", ["running", "queued", "paused"])
def test_a_task_whose_folder_is_gone_gets_a_new_one_from_its_row(place, status):
    here = place()
    claim = here.claim(1)
    if status == "queued":
        here.ledger.release(claim.uuid, claim.attempt)
    if status == "paused":
        here.wiring.db.run("ledger_pause", outcome="asked", uuid=claim.uuid, was="running", attempt=1)
    started(here)
    row = here.ledger.get(claim.uuid)
    metadata = json.loads((here.settings.base_dir / "running" / claim.uuid / "metadata.json").read_text())
    assert metadata["task_key"]["task_id"] == "1"
    assert (metadata["user"], metadata["uuid"]) == ("alice", claim.uuid)
    assert row.status is (Status.PAUSED if status == "paused" else Status.QUEUED)
    assert here.named("folder_recreated") == [{"uuid": claim.uuid, "status": status}]


def test_a_row_that_was_never_started_needs_no_folder(place):
    here = place()
    here.row(1)
    started(here)
    assert here.named("folder_recreated") == []


def test_a_worker_whose_folder_was_taken_away_does_not_run_beside_the_next_attempt(place):
    here = place()
    claim = here.claim(1)
    code = f"from agent import proc; proc.title('makimono: {claim.uuid}'); print('up', flush=True); import time; time.sleep(600)"
    lost = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert lost.stdout.readline() == b"up\n"
        with open(f"/proc/{lost.pid}/stat") as stat:
            ticks = stat.read().rpartition(")")[2].split()[19]
        place_of = here.wiring.owner.rsplit(":", 2)[0]
        here.wiring.db.execute("UPDATE tasks SET lease_owner = :owner", owner=f"{place_of}:{lost.pid}:{ticks}")
        started(here)
        lost.wait(30)  # the supervisor collected it
        assert here.ledger.get(claim.uuid).status is Status.QUEUED
    finally:
        lost.kill()
        lost.wait()
        lost.stdout.close()


def test_a_folder_without_a_row_is_put_aside_and_reported(place):
    here = place()
    stray = folder(here, "running", 1)
    (stray / "messages.jsonl").write_text("precious")
    aged(stray)
    started(here)
    aside = here.settings.base_dir / "quarantine" / stray.name
    assert (aside / "messages.jsonl").read_text() == "precious"
    assert here.named("folder_quarantined") == [
        {"name": stray.name, "place": str(aside), "why": "no task has this uuid"}
    ]
    aged(folder(here, "running", 1))
    started(here)
    assert len(list(aside.parent.iterdir())) == 2


def test_a_folder_that_solve_makes_just_now_is_left_alone(place):
    here = place()
    young, held = folder(here, "running", 1), aged(folder(here, "running", 2))
    lock = durable_files.lock(held / "lock")
    aged(held)
    started(here)
    durable_files.unlock(lock)
    assert young.is_dir()
    assert held.is_dir()


@pytest.mark.parametrize("name", ["notes", "completed", "..evil", "0D000000-0000-4000-8000-000000000001", "a\nb", "é"])
def test_a_name_that_is_no_uuid_is_put_aside_and_never_opened(place, name):
    here = place()
    path = here.settings.base_dir / "running" / name
    path.mkdir(parents=True)
    os.mkfifo(path / "lock")
    aged(path)
    started(here)
    assert path.exists() == name.startswith(".")
    assert len(here.named("folder_quarantined")) == (not name.startswith("."))


@pytest.mark.parametrize("named", ["uuid of a closed task", "uuid of an open task", "uuid of none", "a word"])
def test_a_link_in_running_is_put_aside_and_what_it_leads_to_stays_as_it_is(place, named):
    here = place()
    precious = here.folder / "precious"
    precious.mkdir()
    (precious / "kept").write_text("x")
    claim = here.claim(1)
    if named == "uuid of a closed task":
        here.ledger.finish(claim.uuid, claim.attempt, "stopped")
    name = {"a word": "word", "uuid of none": UUID % 7}.get(named, claim.uuid)
    link = here.settings.base_dir / "running" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    if named == "uuid of an open task":
        with pytest.raises(ContextError, match="is a link"):
            make_folder(here.settings, claim.uuid)
    started(here)
    assert not link.is_symlink()
    assert sorted(os.listdir(precious)) == ["kept"]
    assert here.named("folder_quarantined")[0]["why"] == "it is a link"
    if named == "uuid of an open task":
        assert (link / "metadata.json").is_file()


def test_what_cannot_be_moved_is_reported_and_the_rest_goes_on(place):
    here = place()
    (here.settings.base_dir / "running").mkdir(parents=True)
    (here.settings.base_dir / "running" / "file").write_text("x")
    (here.settings.base_dir / "quarantine").mkdir()
    uuid = here.claim(1).uuid
    (here.settings.base_dir / "quarantine").chmod(0o500)
    try:
        started(here)
    finally:
        (here.settings.base_dir / "quarantine").chmod(0o700)
    assert len(here.named("folder_quarantined")) == 1
    assert here.ledger.get(uuid).status is Status.QUEUED


def test_the_clock_of_a_folder_in_the_future_does_not_hide_it_for_ever(place):
    here = place()
    stray = folder(here, "running", 1)
    with clock.use(clock.FakeClock(clock.now() + timedelta(hours=1))):
        started(here)
    assert not stray.exists()
