"""What cleanup removes: closed tasks by true times, folders and rows, and never one that runs."""

import sys
from datetime import timedelta

import pytest
from deep_tree import make_deep
from run_home import UUID

from agent import clock, durable_files, filetree
from agent.commands.cleanup import cleanup, replicas
from agent.commands.solve import ask_the_surroundings
from agent.config import load
from agent.context import EffectStore
from agent.daemon.daemon import Daemon
from agent.errors import ConfigError, ReplicaAway
from agent.values import End, Outcome, TaskKey
from agent.wiring.folders import folder_of
from agent.worker.earlier_task import parent_of, read_parent


def ended(here, number, status="completed", days=100.0, parent="completed"):
    """A closed row that ended `days` ago, with a folder; nothing goes on from what is older than 90."""
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=days))):
        claim = here.claim(number)
        here.ledger.finish(claim.uuid, claim.attempt, status)
    folder = here.settings.base_dir / parent / claim.uuid
    folder.mkdir(parents=True)
    (folder / "messages.jsonl").write_text("x" * 100)
    return folder


def left(here):
    return [row.uuid for row in here.ledger.list()]


@pytest.mark.parametrize("status", ["completed", "failed", "stopped"])
def test_every_closed_status_goes_when_it_is_old_enough(place, status):
    here = place()
    old, new = ended(here, 1, status, days=91), ended(here, 2, status, days=29)
    (removed,) = cleanup(here.settings, here.ledger)
    assert (removed.uuid, removed.status, removed.size) == (UUID % 1, status, 100)
    assert not old.exists()
    assert new.exists()
    assert left(here) == [UUID % 2]


def test_times_are_compared_as_times_to_the_second(place):
    here = place()
    ended(here, 1, days=1 + 1 / 86400)
    ended(here, 2, days=1 - 5 / 86400)
    assert [one.uuid for one in cleanup(here.settings, here.ledger, days=1)] == [UUID % 1]


def test_a_dry_run_removes_nothing(place):
    here = place()
    folder = ended(here, 1)
    assert [one.uuid for one in cleanup(here.settings, here.ledger, dry_run=True)] == [UUID % 1]
    assert folder.exists()
    assert left(here) == [UUID % 1]


@pytest.mark.parametrize("status", ["queued", "running", "paused"])
def test_an_open_task_is_never_touched_however_old(place, status):
    here = place()
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=400))):
        uuid = here.row(1) if status == "queued" else here.claim(1).uuid
        if status == "paused":
            here.wiring.db.run("ledger_pause", outcome="asked", uuid=uuid, was="running", attempt=1)
    folder = here.settings.base_dir / "running" / uuid
    folder.mkdir(parents=True)
    assert cleanup(here.settings, here.ledger, days=0) == []
    assert folder.exists()


def test_a_folder_whose_lock_is_held_stays(place):
    here = place()
    folder = ended(here, 1, parent="running")
    lock = durable_files.lock(folder / "lock")
    try:
        assert cleanup(here.settings, here.ledger) == []
        assert folder.exists()
    finally:
        durable_files.unlock(lock)
    assert len(cleanup(here.settings, here.ledger)) == 1
    assert not folder.exists()


def test_what_an_open_task_goes_on_from_stays_until_that_has_ended(place):
    """It reads the summary whenever it begins: on the first day, and after the answer to a question."""
    here = place()
    folder = ended(here, 1)
    child = here.ledger.enqueue(here.key(1), uuid=UUID % 2, parent_uuid=UUID % 1)
    assert cleanup(here.settings, here.ledger) == []
    assert cleanup(here.settings, here.ledger, dry_run=True) == []
    assert folder.exists()
    assert read_parent(here.settings, here.ledger, here.forge, UUID % 1) is not None
    here.ledger.request(child, "stop")
    assert [one.uuid for one in cleanup(here.settings, here.ledger)] == [UUID % 1]
    assert not folder.exists()


def test_what_may_be_gone_on_from_keeps_its_row_and_its_last_words(place):
    """A mention in the sixth week is heard, and the task that it starts knows what was done."""
    here = place()
    folder, words = ended(here, 1, days=40), "The total is rounded late."
    effects = EffectStore(folder)
    effects.done(
        "end", {"status": "completed", "code": "", "message": "", "outcome": Outcome(End.FINISHED, words).to_dict()}
    )
    effects.file.close()
    (folder / "workspace").mkdir()
    (folder / "workspace" / "a.txt").write_text("x" * 50)
    for name in ("metadata.json", "end.json"):
        (folder / name).write_text("{}")
    everything = sorted(path.name for path in folder.iterdir())
    assert [one.size for one in cleanup(here.settings, here.ledger, dry_run=True)] == [150]
    assert sorted(path.name for path in folder.iterdir()) == everything
    (removed,) = cleanup(here.settings, here.ledger)
    assert (removed.uuid, removed.size) == (UUID % 1, 150)
    stays = clock.parse(here.ledger.get(UUID % 1).completed_at) + timedelta(days=90)
    assert removed.until == clock.stamp(stays)
    assert sorted(path.name for path in folder.iterdir()) == ["effects.jsonl", "end.json", "metadata.json"]
    assert cleanup(here.settings, here.ledger) == []
    assert parent_of(here.settings, here.ledger, TaskKey.from_mapping(here.key(1))) == UUID % 1
    assert read_parent(here.settings, here.ledger, here.forge, UUID % 1).summary == words
    with clock.use(clock.FakeClock(clock.now() + timedelta(days=51))):
        (removed,) = cleanup(here.settings, here.ledger)
        assert removed.until == ""
    assert not folder.exists()
    assert left(here) == []


def test_only_the_newest_task_of_an_issue_is_gone_on_from(place):
    here = place()
    folder = ended(here, 1, days=50)
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=40))):
        claim = here.ledger.claim(here.ledger.enqueue(here.key(1), uuid=UUID % 2), "me", 60)
        here.ledger.finish(claim.uuid, claim.attempt, "completed")
    assert [one.uuid for one in cleanup(here.settings, here.ledger)] == [UUID % 1]
    assert not folder.exists()
    assert left(here) == [UUID % 2]


def test_an_age_that_a_person_names_is_that_of_all(place):
    here = place()
    folder = ended(here, 1, days=40)
    assert len(cleanup(here.settings, here.ledger, days=30)) == 1
    assert not folder.exists()
    assert left(here) == []


def test_a_task_that_is_gone_on_from_since_it_was_listed_stays_whole(place):
    here = place()
    folder = ended(here, 1)

    class Then:
        """While cleanup works, a mention starts a task."""

        def __getattr__(self, name):
            return getattr(here.ledger, name)

        def closed_before(self, before):
            found = here.ledger.closed_before(before)
            here.ledger.enqueue(here.key(1), uuid=UUID % 2, parent_uuid=UUID % 1)
            return found

    assert cleanup(here.settings, Then()) == []
    assert (folder / "messages.jsonl").exists()
    assert sorted(left(here)) == [UUID % 1, UUID % 2]


def test_the_tracker_of_a_solved_file_stays_while_a_later_task_lives_in_it(place):
    here = place()
    tracker = here.settings.base_dir.resolve() / "solve" / "one"
    tracker.mkdir(parents=True)
    key = here.key(1) | {"instance": str(tracker)}
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=40))):  # nobody can mention anybody there
        for number in (1, 2):
            claim = here.ledger.claim(here.ledger.enqueue(key, uuid=UUID % number), "me", 60)
            here.ledger.finish(claim.uuid, claim.attempt, "completed")
    here.ledger.enqueue(key, uuid=UUID % 3, parent_uuid=UUID % 2)
    assert [one.uuid for one in cleanup(here.settings, here.ledger)] == [UUID % 1]
    assert tracker.exists()
    here.ledger.request(UUID % 3, "stop")
    assert len(cleanup(here.settings, here.ledger, days=-1)) == 2
    assert not tracker.exists()


def test_a_row_without_a_folder_goes_too(place):
    here = place()
    folder = ended(here, 1)
    (folder / "messages.jsonl").unlink()
    folder.rmdir()
    assert [one.size for one in cleanup(here.settings, here.ledger)] == [0]
    assert left(here) == []


def elsewhere(here, number, days):
    """A task that ended on another host `days` ago, whose folder lies there."""
    filetree.remove(ended(here, number, days=days))
    here.ledger.db.execute("UPDATE tasks SET hostname = 'another-host'")


def test_a_row_whose_folder_lies_on_another_host_stays_for_that_host(place):
    here = place()
    elsewhere(here, 1, days=100)
    elsewhere(here, 2, days=29)
    assert cleanup(here.shared().settings, here.ledger) == []
    assert len(here.ledger.list()) == 2
    here.settings = here.settings.model_copy(
        update={"taskqueue": here.settings.taskqueue.model_copy(update={"ledger": "sqlite"})}
    )
    assert len(cleanup(here.settings, here.ledger)) == 1, "this host was called otherwise then"


def test_rows_and_replicas_of_a_host_that_is_gone_for_good_go_from_another_one(place):
    here = place()
    for number, days in ((1, 130), (2, 95)):
        elsewhere(here, number, days)
    here.shared()
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=66))):
        assert cleanup(here.settings, here.ledger, days=1) == [], "it was heard of 29 days before"
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=64))):
        assert cleanup(here.settings, here.ledger, days=40) == [], "an age that is longer counts for the host too"
    replicas = []
    removed = cleanup(here.settings, here.ledger, replica=replicas.append)
    assert [(one.uuid, one.size) for one in removed] == [(UUID % 1, 0), (UUID % 2, 0)]
    assert replicas == [UUID % 1, UUID % 2]
    assert left(here) == []


def test_a_host_that_a_person_calls_gone_is_not_waited_for(place):
    here = place()
    elsewhere(here, 1, days=100)
    elsewhere(here, 2, days=1)
    here.shared()
    assert cleanup(here.settings, here.ledger, gone=["a-third-one"]) == []
    (removed,) = cleanup(here.settings, here.ledger, gone=["another-host"])
    assert removed.uuid == UUID % 1
    assert left(here) == [UUID % 2], "it is not old enough"


def test_an_open_task_of_a_host_that_is_gone_is_none_of_cleanup(place):
    here = place()
    with clock.use(clock.FakeClock(clock.now() - timedelta(days=400))):
        here.claim(1)
    here.ledger.db.execute("UPDATE tasks SET hostname = 'another-host'")
    assert cleanup(here.shared().settings, here.ledger, days=0, gone=["another-host"]) == []
    assert left(here) == [UUID % 1]


@pytest.mark.parametrize(
    "name",
    ["../../precious", "..", ".", "", "completed", pytest.param(f"{UUID % 1}/../../precious", id="through a task")],
)
def test_a_uuid_that_is_a_path_is_never_one(place, name):
    here = place()
    precious = here.folder / "precious"
    precious.mkdir()
    (here.settings.base_dir / "completed").mkdir(parents=True)
    assert folder_of(here.settings, name) is None
    assert precious.exists()


def test_a_symlink_in_place_of_a_folder_is_not_followed(place):
    here = place()
    folder = ended(here, 1)
    precious = here.folder / "precious"
    folder.rename(precious)
    folder.symlink_to(precious)
    cleanup(here.settings, here.ledger)
    assert (precious / "messages.jsonl").exists()


def test_folders_that_were_made_read_only_go_too(place):
    """Go's module cache is such."""
    here = place()
    folder = ended(here, 1)
    cache = folder / "home" / "pkg"
    cache.mkdir(parents=True)
    (cache / "mod.go").write_text("x")
    cache.chmod(0o555)
    assert len(cleanup(here.settings, here.ledger)) == 1
    assert not folder.exists()


def test_one_that_cannot_be_removed_is_told_and_the_others_go(place):
    """A tree deeper than any path, and a folder in the place of the lock, which cannot be looked at."""
    here = place()
    deep, odd, old = ended(here, 1), ended(here, 2), ended(here, 3)
    (deep / "workspace").mkdir()
    make_deep(deep / "workspace")
    (odd / "lock").mkdir()
    broken = {}
    removed = cleanup(here.settings, here.ledger, failed=lambda name, error: broken.update({name: error}))
    assert sorted((one.uuid, one.size) for one in removed) == [(UUID % 1, 5100), (UUID % 3, 100)]
    assert list(broken) == [UUID % 2]
    assert not deep.exists()
    assert not old.exists()
    assert left(here) == [UUID % 2]


def test_what_is_kept_elsewhere_goes_with_the_task_or_the_task_stays(place):
    here = place()
    ended(here, 1, days=100)
    ended(here, 2, days=100)
    ended(here, 3, days=1)
    asked, broken = [], {}

    def replica(uuid):
        asked.append(uuid)
        if uuid == UUID % 2:
            raise ReplicaAway("it does not answer")

    assert cleanup(here.settings, here.ledger, dry_run=True, replica=replica)
    assert asked == [], "a dry run removes nothing"
    removed = cleanup(here.settings, here.ledger, replica=replica, failed=broken.__setitem__)
    assert [one.uuid for one in removed] == [UUID % 1]
    assert sorted(asked) == [UUID % 1, UUID % 2]
    assert sorted(left(here)) == [UUID % 2, UUID % 3]
    assert "does not answer" in broken[UUID % 2]


def test_without_the_driver_of_the_replica_what_has_none_goes_and_the_rest_is_named(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    here = place()
    ended(here, 1, days=100)
    (ended(here, 2, days=100) / "replica.json").write_text("{}")
    settings = load(here.folder / "config.yaml", environ={"AGENT__CONTEXT_STORAGE__REPLICA": "gs://bucket/tasks"})
    replica, why = replicas(settings)
    assert f"call `{sys.executable} -m pip install fsspec gcsfs`" in why
    broken = {}
    removed = cleanup(settings, here.ledger, replica=replica, failed=broken.__setitem__)
    assert [one.uuid for one in removed] == [UUID % 1]
    assert left(here) == [UUID % 2]
    assert list(broken) == [UUID % 2]
    assert "its replica cannot be removed" in broken[UUID % 2]


@pytest.mark.parametrize("role", ["both", "producer", "worker"])
def test_a_daemon_does_not_start_without_the_driver_of_its_replica(place, monkeypatch, role):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    here = place()
    settings = load(here.folder / "config.yaml", environ={"AGENT__CONTEXT_STORAGE__REPLICA": "gs://bucket/tasks"})
    with pytest.raises(ConfigError, match=r"gs://bucket/tasks needs .*gcsfs"):
        Daemon(settings, here.events, role=role).run(once=True)
    with pytest.raises(ConfigError, match=r"gs://bucket/tasks needs .*gcsfs"):
        ask_the_surroundings(settings)
