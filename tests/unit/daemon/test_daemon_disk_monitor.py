"""A disk without room: no task is started, and what could not write goes on by itself."""

import os

import pytest
from deep_tree import make_deep
from open_descriptors import open_below

from agent import clock, filetree
from agent.daemon import disk_monitor
from agent.daemon.disk_monitor import DiskMonitor
from agent.daemon.supervisor import Supervisor
from agent.values import End, Status
from agent.wiring import disk_space
from agent.wiring.disk_space import shortage
from agent.worker.folder_quota import FolderQuota

PLENTY = 1 << 60


@pytest.fixture
def time():
    with clock.use(clock.FakeClock()) as now:
        yield now


def waiting(here, number=1):
    """A task that could not write."""
    claim = here.claim(number)
    here.wiring.db.run(
        "ledger_pause", outcome=disk_space.OUTCOME, uuid=claim.uuid, was="running", attempt=claim.attempt
    )
    return claim.uuid


def look(one, time, seconds):
    for _ in range(int(seconds // disk_monitor.SECONDS)):
        time.move(disk_monitor.SECONDS)
        one.check()


def test_too_little_space_is_noticed_once_and_starts_nothing(place, time):
    here = place(f"scheduling: {{min_free: {PLENTY}}}\n")
    here.row(1)
    supervisor = Supervisor(here.wiring)
    for _ in range(3):
        time.move(disk_monitor.SECONDS)
        supervisor.step()
    assert supervisor.children == {}
    (said,) = here.named("disk_low")
    assert "`scheduling.min_free` is 1048576T" in said["why"]


def test_the_end_of_a_shortage_is_announced_and_resumes_at_once_what_waited_for_it(place, time):
    here = place()
    uuid = waiting(here)
    probe = here.settings.base_dir / ".room"
    probe.mkdir()  # what is written to know whether it can be
    (probe / "x").mkdir()
    one = DiskMonitor(here.wiring)
    look(one, time, 60)
    assert here.ledger.get(uuid).status is Status.PAUSED
    assert len(here.named("disk_low")) == 1
    (probe / "x").rmdir()
    probe.rmdir()
    look(one, time, disk_monitor.SECONDS)
    assert here.ledger.get(uuid).status is Status.QUEUED
    assert here.named("task_resumed") == [{"uuid": uuid, "why": "the disk can be written again"}]
    assert here.named("disk_free")[0]["free"] > 0


def test_a_task_that_cannot_write_somewhere_else_is_tried_after_longer_and_longer_waits(place, time):
    here = place()
    uuid = waiting(here)
    one = DiskMonitor(here.wiring)
    look(one, time, disk_monitor.FIRST_SECONDS - disk_monitor.SECONDS)
    assert here.named("task_resumed") == []
    for number in range(1, 9):
        look(one, time, 2 * disk_monitor.LONGEST_SECONDS if number > 6 else disk_monitor.FIRST_SECONDS * 2.0**number)
        assert len(here.named("task_resumed")) == number
        claim = here.ledger.claim(uuid, here.wiring.owner, 60)
        here.wiring.db.run("ledger_pause", outcome="disk", uuid=uuid, was="running", attempt=claim.attempt)


def test_a_run_that_would_end_tries_once_more_what_could_not_write(place, time):
    """Nobody would resume it later: who starts the program now and then has no daemon."""
    here = place()
    uuid = waiting(here)
    one = DiskMonitor(here.wiring)
    one.check()
    assert here.ledger.get(uuid).status is Status.PAUSED
    for _ in range(disk_monitor.LAST_TRIES):
        assert one.check_at_end()
        claim = here.ledger.claim(uuid, here.wiring.owner, 60)
        here.wiring.db.run("ledger_pause", outcome="disk", uuid=uuid, was="running", attempt=claim.attempt)
    assert not one.check_at_end(), "one that can never write does not keep the run going"
    assert here.ledger.get(uuid).status is Status.PAUSED
    assert len(here.named("task_resumed")) == disk_monitor.LAST_TRIES


def test_a_run_does_not_end_by_a_shortage_that_is_over(place, time):
    """What is queued was not started since the last look, of seconds ago, found no room."""
    here = place()
    probe = here.settings.base_dir / ".room"
    (probe / "x").mkdir(parents=True)
    waiting(here, 2)
    one = DiskMonitor(here.wiring)
    one.check()
    assert one.why
    assert not one.check_at_end(), "it lasts"
    assert here.named("task_resumed") == []
    (probe / "x").rmdir()
    probe.rmdir()
    one.last = dict.fromkeys((row.uuid for row in here.ledger.list()), disk_monitor.LAST_TRIES)
    assert one.check_at_end()
    assert one.why == ""
    assert not one.check_at_end()
    assert len(here.named("disk_low")) == len(here.named("disk_free")) == 1


def test_a_task_that_a_person_paused_stays_so(place, time):
    here = place()
    claim = here.claim(1)
    here.wiring.db.run("ledger_pause", outcome="paused", uuid=claim.uuid, was="running", attempt=claim.attempt)
    look(DiskMonitor(here.wiring), time, 3600)
    assert here.ledger.get(claim.uuid).status is Status.PAUSED


def test_a_task_that_a_person_paused_while_it_waited_for_room_stays_so(place, time):
    here = place()
    uuid = waiting(here)
    one = DiskMonitor(here.wiring)
    look(one, time, disk_monitor.SECONDS)
    here.ledger.request(uuid, "pause")
    look(one, time, 3600)
    assert here.ledger.get(uuid).status is Status.PAUSED
    here.ledger.request(uuid, "resume")
    assert here.ledger.get(uuid).status is Status.QUEUED
    assert here.named("task_resumed") == []


def test_a_task_that_waits_on_another_host_is_left_to_that_host(place, time):
    here = place()
    uuid = waiting(here)
    here.wiring.db.execute("UPDATE tasks SET hostname = 'another'")
    one = DiskMonitor(here.shared().wiring)
    look(one, time, disk_monitor.LEFT_SECONDS - 60)
    assert here.ledger.get(uuid).status is Status.PAUSED
    look(one, time, 120)
    assert here.ledger.get(uuid).status is Status.QUEUED, "that host may be gone for good"


def test_a_task_that_waits_on_this_host_goes_on_when_the_host_is_called_otherwise(place, time):
    here = place()
    uuid = waiting(here)
    here.wiring.db.execute("UPDATE tasks SET hostname = 'another'")
    look(DiskMonitor(here.wiring), time, 60)
    assert here.ledger.get(uuid).status is Status.QUEUED


def test_a_folder_that_is_not_there_is_a_shortage_and_no_crash(place):
    here = place()
    settings = here.settings
    here.row(1)
    assert shortage(settings, probe=True) == ""
    here.close()
    os.rename(settings.base_dir, f"{settings.base_dir}-away")
    assert "cannot be looked at" in shortage(settings)


def test_a_claim_takes_away_what_the_last_attempt_failed_by(place):
    here = place()
    uuid = waiting(here)
    here.wiring.db.execute("UPDATE tasks SET error_code = 'disk', error_message = 'full'")
    here.ledger.request(uuid, "resume")
    here.ledger.claim(uuid, here.wiring.owner, 60)
    row = here.ledger.get(uuid)
    assert (row.error_code, row.error_message) == (None, None)


# --- the folder of one task ---------------------------------------------------------------------------------------


def test_what_a_folder_holds_counts_names_of_one_file_once_and_follows_no_link(tmp_path):
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "a").write_bytes(b"1" * (1 << 20))
    os.link(folder / "a", folder / "b")
    (tmp_path / "elsewhere").write_bytes(b"1" * (4 << 20))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "folder").symlink_to("/usr")
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    *_, use = filetree.measuring(folder)
    assert 1 << 20 <= use.size < 2 << 20


def test_a_folder_that_grows_too_large_ends_the_task_with_that_word(tmp_path, time):
    quota = FolderQuota(tmp_path, 1 << 20)
    assert quota() is None
    (tmp_path / "a").write_bytes(b"1" * (2 << 20))
    assert quota() is None, "it was looked at just now"
    time.move(60)
    outcome = quota()
    assert (outcome.end, outcome.code) == (End.LIMIT, "limit_folder_size")
    assert "`limits.folder_size` is 1M" in outcome.summary
    assert quota() == outcome, "it stays too large until something is removed"
    (tmp_path / "a").unlink()
    assert quota() is None


def test_without_a_limit_nothing_is_looked_at(tmp_path):
    assert FolderQuota(tmp_path / "not there", None)() is None


def test_what_lies_deeper_than_any_path_counts_too(tmp_path):
    make_deep(tmp_path)
    assert FolderQuota(tmp_path, 5000)() is not None
    filetree.remove(tmp_path / "deep")


def test_a_folder_of_too_many_files_ends_the_task_with_that_word(tmp_path, time):
    (tmp_path / "many").mkdir()
    for number in range(20):
        (tmp_path / "many" / str(number)).touch()
    assert FolderQuota(tmp_path, None, 21)() is None
    outcome = FolderQuota(tmp_path, None, 20)()
    assert (outcome.end, outcome.code) == (End.LIMIT, "limit_folder_files")
    assert "`limits.folder_files` is 20; the task's folder holds 21 files and folders" in outcome.summary


class Slow(clock.FakeClock):
    """A clock on which each reading takes a while."""

    def monotonic(self):
        self.move(0.02)
        return super().monotonic()


def test_a_large_folder_is_looked_at_a_slice_at_a_time(tmp_path):
    for number in range(3000):
        (tmp_path / str(number)).touch()
    with clock.use(Slow()) as slow:
        quota = FolderQuota(tmp_path, None, 2999)
        calls = 0
        while (outcome := quota()) is None:
            calls += 1
            assert quota() is None, "the next slice waits"
            slow.move(2)
    assert calls > 2
    assert "at least 3,0" in outcome.summary or "holds 3,000" in outcome.summary
    assert quota.looking is None


def test_a_look_is_one_at_a_time_and_lets_go_of_the_folder(tmp_path):
    for number in range(3000):
        (tmp_path / str(number)).touch()
    with clock.use(Slow()):
        quota = FolderQuota(tmp_path, 1 << 30)
        quota()
        assert quota.looking is not None
        assert open_below(tmp_path) != []
        with quota.lock:
            assert quota() is None
        quota.close()
    assert open_below(tmp_path) == []


def test_a_command_that_moves_its_folders_about_hides_nothing_that_stays(tmp_path):
    """A walk of which a part was moved ended there, and what it had not seen counted as nothing."""
    (tmp_path / "task").mkdir()
    make_deep(tmp_path / "task", 200)
    for number in range(50):
        (tmp_path / "task" / f"z{number}").touch()
    entries = filetree.walk(
        tmp_path / "task", on_error=lambda *_: missed.append(1), order=lambda names, _: sorted(names)
    )
    missed, seen, moved = [], set(), False
    for entry in entries:
        seen.add(entry.name)
        if entry.depth == 150 and not moved:
            moved = True
            os.rename(tmp_path / "task" / "/".join(["deep"] * 50), tmp_path / "elsewhere")
    assert (missed, len(seen & {f"z{number}" for number in range(50)})) == ([1], 50)
    filetree.remove(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("free", "all_of_them", "short"),
    [(500, 10**6, True), (10_001, 10**6, False), (90, 5000, False), (0, 0, False), (0, 5000, True)],
)
def test_a_file_system_that_takes_hardly_any_file_more_is_short(place, monkeypatch, free, all_of_them, short):
    here = place()
    real = os.statvfs

    def statvfs(path):
        fields = list(real("/"))
        fields[5:8] = all_of_them, free, free
        return os.statvfs_result(fields)

    monkeypatch.setattr(disk_space.os, "statvfs", statvfs)
    said = disk_space.shortage(here.settings)
    assert bool(said) is short
    assert not short or f"{free:,} more files are possible" in said
