"""Issues that show that somebody has them, and whose rows are gone."""

import dataclasses
import json
import shutil
import socket
import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from run_home import UUID

from agent.commands.repair_rows import repair
from agent.config import load
from agent.context.stores import file_names
from agent.daemon.supervisor import Supervisor
from agent.forge.markers import marker, with_markers
from agent.intake.enqueue import HELD
from agent.intake.orphaned_issues import OTHERS_SECONDS, enqueue_orphans
from agent.intake.poller import Poller
from agent.intake.restore_rows import restore_rows
from agent.issue import claims
from agent.observe.error_tolerant_loop import ItemLoop
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import Writer, take_snapshot
from agent.values import Public, Status
from agent.wiring.folders import make_folder
from agent.wiring.wiring import Wiring
from agent.worker.takeover import take_over

MINUTES, HOURS = 16, 25


@pytest.fixture
def there(forge_place, place):
    """(a place of a real forge's kind, a ledger beside it)."""
    return forge_place, place()


def compare(place, here, *, surely=False):
    failed = []
    items = ItemLoop(lambda item, why: failed.append((item, why)))
    found = enqueue_orphans(here.settings, here.ledger, place.again(), here.events, items, surely=surely)
    items.finish()
    assert failed == []
    return found


def left(place, here, label="processing", home=None):
    """An issue as a task of this ledger's home leaves it, and its uuid."""
    key, uuid = place.issue(labels=(f"coding agent {label}", "bug")), str(uuid4())
    place.forge.post_comment(
        key, claims.with_claim_markers("Started.", uuid, None, home or claims.home_of(here.settings))
    )
    return key, uuid


@pytest.mark.parametrize("label", ["processing", "paused"])
def test_a_lost_task_of_this_home_is_queued_again_under_its_own_uuid(there, label):
    place, here = there
    key, uuid = left(place, here, label)
    assert compare(place, here, surely=True) == [uuid]
    row = here.ledger.get(uuid)
    assert (row.key, row.status, row.not_before) == (key, Status.QUEUED, None)
    assert row.user
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert len(place.forge.marked_comments(key)) == 1, "its own claim stands"
    assert compare(place, here, surely=True) == [], "once"


def replicated(tmp_path, here, key, uuid, attempt=3):
    """What another host wrote of the task in its attempt `attempt`, three requests in."""
    where = {"AGENT__CONTEXT_STORAGE__REPLICA": str(tmp_path / "replica")}
    here.settings = load(here.folder / "config.yaml", environ=where)
    folder = tmp_path / "elsewhere" / uuid
    folder.mkdir(parents=True)
    said = {"uuid": uuid, "task_key": key.to_dict(), "hostname": "a-lost-host", "user": "alice", "title": "An issue"}
    (folder / "metadata.json").write_text(json.dumps(said))
    usage = {"prompt": 100, "completion": 10, "cached": 0}
    lines = [{"seq": 1, "role": "user", "content": "Please."}]
    lines += [{"seq": seq, "role": "assistant", "content": "x", "usage": usage} for seq in (2, 3, 4)]
    (folder / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    place = RemoteFolder(str(tmp_path / "replica"))
    Writer(place, folder, uuid, attempt, "bb").write(
        take_snapshot(folder, file_names(), {}, {"last_seq": 4, "host": "a-lost-host"})
    )
    return folder


@pytest.mark.parametrize("label", ["processing", "paused"])
def test_a_task_whose_row_and_folder_are_lost_goes_on_from_its_replica(there, label, tmp_path):
    place, here = there
    key, uuid = left(place, here, label)
    folder = replicated(tmp_path, here, key, uuid)
    assert compare(place, here, surely=True) == [uuid]
    row = here.ledger.get(uuid)
    assert (row.status, row.attempt, row.llm_call_count, row.hostname) == (Status.QUEUED, 3, 3, "a-lost-host")
    assert (row.key, row.user, row.title) == (key, "alice", "An issue")
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert [event["known"] for event in here.named("issue_taken_up")] == [True]
    assert compare(place, here, surely=True) == [], "once"
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    assert claim.attempt == 4, "what it writes is newer than all that lies there"
    mine = make_folder(here.settings, uuid)
    wiring = Wiring(here.settings, events=here.events)
    take_over(wiring, claim, mine)
    wiring.close()
    assert (mine / "messages.jsonl").read_bytes() == (folder / "messages.jsonl").read_bytes()


def test_a_replica_that_does_not_answer_is_waited_for_before_a_lost_task_is_begun_anew(there, tmp_path, time):
    place, here = there
    key, uuid = left(place, here)
    replicated(tmp_path, here, key, uuid)
    lost = threading.Event()
    lost.set()
    where = {"AGENT__CONTEXT_STORAGE__REPLICA": "s3://nobody/x?endpoint_url=http://127.0.0.1:1&key=k&secret=s"}
    away = load(here.folder / "config.yaml", environ=where)
    poller = Poller(away, here.ledger, [place.again()], here.events, lost=lost)
    for _ in range(2):
        assert poller.poll(everything=True) == []
        assert here.ledger.get(uuid) is None
        time.move(61)
    (skipped,) = here.named("issue_skipped")
    assert "context_storage.replica" in skipped["why"]
    poller.settings = here.settings
    assert poller.poll(everything=True) == [uuid]
    assert here.ledger.get(uuid).llm_call_count == 3


def test_on_a_shared_ledger_other_hosts_make_their_rows_again_first(there, time):
    place, here = there
    here.shared()
    _, uuid = left(place, here)
    lost = threading.Event()
    lost.set()
    poller = Poller(here.settings, here.ledger, [place.again()], here.events, lost=lost)
    assert poller.poll(everything=True) == []
    time.move(OTHERS_SECONDS - 1)
    assert poller.poll(everything=True) == []
    time.move(2)
    assert poller.poll(everything=True) == [uuid]


def test_a_replica_of_another_issue_is_not_taken(there, tmp_path):
    place, here = there
    key, uuid = left(place, here)
    replicated(tmp_path, here, dataclasses.replace(key, task_id="999"), uuid)
    assert compare(place, here, surely=True) == [uuid]
    assert (here.ledger.get(uuid).key, here.ledger.get(uuid).llm_call_count) == (key, 0)


def test_a_row_made_again_from_a_folder_is_younger_than_what_another_host_wrote_since(there, tmp_path):
    place, here = there
    key, uuid = left(place, here)
    folder = replicated(tmp_path, here, key, uuid, attempt=5)
    here.wiring.settings = here.settings
    mine = make_folder(here.settings, uuid)
    for path in folder.iterdir():
        shutil.copy(path, mine)
    assert restore_rows(here.wiring) == 1
    assert here.ledger.claim(uuid, here.wiring.owner, 60).attempt == 6


def test_nobody_knows_that_the_ledger_is_lost_then_the_issue_must_have_been_quiet(there, time):
    place, here = there
    _, uuid = left(place, here)
    assert compare(place, here) == [], "it may have been taken at this moment"
    time.move(MINUTES * 60)
    assert compare(place, here) == [uuid]


def test_a_task_of_another_home_is_left_to_it_for_a_day_and_for_ever_while_it_waits_for_a_person(there, time):
    place, here = there
    key, foreign = left(place, here, home="0a0b0c0d")
    left(place, here, "paused", home="0a0b0c0d")
    time.move(MINUTES * 60)
    assert compare(place, here, surely=True) == []
    time.move(HOURS * 3600)
    (uuid,) = compare(place, here)
    assert uuid != foreign
    assert here.ledger.get(uuid).key == key
    (claim,) = place.forge.marked_comments(key)
    assert marker(uuid, "progress") in claim.markers, "a daemon that comes back finds that it has lost the issue"


def test_a_task_that_the_ledger_knows_is_left_alone(there, time):
    place, here = there
    open_key, open_uuid = left(place, here)
    here.ledger.enqueue(open_key, uuid=open_uuid)
    time.move(HOURS * 3600)
    untold_key, untold = left(place, here)
    here.ledger.enqueue(untold_key, uuid=untold)
    here.ledger.request(untold, "stop")  # the poller is about to tell it
    time.move(HOURS * 3600)
    assert compare(place, here, surely=True) == []


def lose_access(place, name):
    """Take the right to write in the project from a person."""
    if place.forge.source == "gitlab":
        del place.project["members"][place.server.user(name)["id"]]
    else:
        place.repo.people[name] = "read"


def test_who_asked_for_a_taken_issue_is_looked_up_by_the_rules_of_taken_issues_after_the_list_too(forge_place, time):
    """The author edits the issue after alice has asked for the work, and loses the right to write before the task is
    queued.  A task that works already is not asked again whether the text is the one of the request."""
    place = forge_place
    place.person("alice")
    key = place.issue(labels=(), author="carol")
    place.put_labels(key, "coding agent")
    time.move(60)
    if place.forge.source == "gitlab":
        place.server.describe(place.item(key), "carol", "Fix both.")
    else:
        place.repo.edit(place.repo.issues[int(key.task_id)], "carol", title="Fix both")
    place.forge.move_label(key, "processing")
    time.move(60)
    (task,) = place.again().task_getter().get_left_list()
    lose_access(place, "carol")
    time.move(HOURS * 3600)
    task.confirm()
    assert task.get_user() == "alice"


@pytest.mark.parametrize("label", ["processing", "paused"])
def test_a_label_that_an_older_attempt_wrote_after_the_end_starts_nothing_and_the_end_is_shown_again(
    there, time, label
):
    """The attempt was frozen between its look at the fence and its write, wrote, and was killed before it knew."""
    place, here = there
    key, uuid = left(place, here, label)
    here.ledger.enqueue(key, uuid=uuid)
    here.ledger.finish(uuid, here.ledger.claim(uuid, here.wiring.owner, 60).attempt, "completed")
    place.forge.post_comment(key, with_markers(Public("Done."), marker(uuid, claims.FINAL)))
    until = here.ledger.now() + timedelta(minutes=1)
    assert here.ledger.begin_notification(uuid, until)
    here.ledger.mark_notified(uuid, until)
    time.move(HOURS * 3600)
    assert compare(place, here) == []
    assert here.ledger.latest(key).uuid == uuid
    assert here.ledger.get(uuid).tell_at is not None


def test_a_poller_compares_at_its_start_and_when_rows_were_lost(place):
    here = place()
    path = here.issue(1, label="coding agent processing")

    from threading import Event

    lost = Event()
    poller = Poller(here.settings, here.ledger, here.wiring.forges, here.events, lost=lost, compares=True)
    assert poller.poll(everything=True) == [], "perhaps a daemon beside this one has it"
    lost.set()
    (uuid,) = poller.poll()
    assert here.ledger.get(uuid).key.task_id == "1"
    assert not lost.is_set()
    assert here.named("issue_taken_up")[0]["uuid"] == uuid
    assert "coding agent processing" in path.read_text()


@pytest.mark.parametrize(
    ("held", "lost"), [(False, True), (True, False)], ids=["a task that waits", "a row that may be withdrawn"]
)
def test_rows_that_vanish_under_a_daemon_without_a_folder_are_known_to_be_lost(place, held, lost):
    here = place()
    uuid = here.ledger.enqueue(here.key(1), not_before=here.ledger.now() + HELD if held else None)
    supervisor = Supervisor(here.wiring, starts=False)
    supervisor.dead_rows.requeue()
    assert not supervisor.ground.lost.is_set()
    if held:
        assert here.ledger.withdraw(uuid)
    else:
        here.wiring.db.execute("DROP TABLE tasks")
        here.row(2)  # the poller was quicker
    supervisor.dead_rows.requeue()
    assert supervisor.ground.lost.is_set() is lost
    supervisor.ground.lost.clear()
    supervisor.dead_rows.requeue()
    assert not supervisor.ground.lost.is_set(), "said once"


def test_repair_takes_up_what_has_neither_row_nor_folder(place):
    here = place()
    here.issue(1, label="coding agent paused")
    here.issue(2, label="coding agent done")
    done = repair(here.wiring)
    (uuid,) = done.issues
    assert (here.ledger.get(uuid).task_id, done.rows, done.unasked) == ("1", 0, {})
    assert uuid != UUID % 1


def test_the_home_of_a_ledger_that_cannot_be_read_is_not_replaced(place):
    here = place()
    kept = here.settings.base_dir / claims.HOME_FILE
    kept.parent.mkdir(exist_ok=True)
    kept.symlink_to(kept.name)  # reading it fails for root too
    assert len(claims.home_of(here.settings)) == 8
    assert kept.is_symlink()


def test_the_home_of_a_ledger_outlives_it_and_names_nothing(place):
    here = place()
    home = claims.home_of(here.settings)
    assert home == claims.home_of(here.settings)
    assert len(home) == 8
    shared = here.settings.model_copy(
        update={
            "taskqueue": here.settings.taskqueue.model_copy(
                update={"ledger": "postgresql://one:secret@db.example/makimono"}
            )
        }
    )
    other = here.settings.model_copy(
        update={
            "taskqueue": here.settings.taskqueue.model_copy(
                update={"ledger": "postgresql://two:word@db.example/makimono"}
            )
        }
    )
    assert claims.home_of(shared) == claims.home_of(other) != home


def test_a_host_that_is_renamed_and_a_base_dir_that_is_moved_are_the_same_home(place, monkeypatch):
    here = place()
    assert here.ledger.list() == []
    home = claims.home_of(here.settings)
    monkeypatch.setattr(socket, "gethostname", lambda: "made-anew-7f9c")
    assert claims.home_of(here.settings) == home
    moved = here.settings.base_dir.with_name("moved")
    moved.mkdir()
    (moved / claims.HOME_FILE).write_bytes((here.settings.base_dir / claims.HOME_FILE).read_bytes())
    storage = here.settings.context_storage.model_copy(update={"base_dir": moved})
    assert claims.home_of(here.settings.model_copy(update={"context_storage": storage})) == home
    (here.settings.base_dir / claims.HOME_FILE).write_text("damaged")
    assert claims.home_of(here.settings) != home, "nothing tells it any more"
    monkeypatch.undo()
    (here.settings.base_dir / claims.HOME_FILE).unlink()
    assert claims.home_of(here.settings) == home, "the names do, where base_dir was removed"


def test_the_times_are_such_that_a_living_daemon_is_not_robbed(place):
    assert claims.quiet_of(place().settings) >= timedelta(minutes=15)
