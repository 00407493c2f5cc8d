"""What a host does that claims a task whose newest files are elsewhere, and what keeps a replica up to date."""

import shutil
from types import SimpleNamespace

import orjson
import pytest
from llm_servers import call, says

from agent import clock
from agent.config import load
from agent.context import TaskContextManager
from agent.context.stores import file_names
from agent.errors import ForgeError, ReplicaAway
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import Writer, manifests, read_state, take_snapshot, write_state
from agent.values import End, Status
from agent.wiring.folders import make_folder
from agent.wiring.wiring import Wiring
from agent.work import work_tree_snapshot
from agent.worker import replicator, takeover
from agent.worker.handler import TaskHandler
from agent.worker.replicator import Replicator
from agent.worker.takeover import take_over


@pytest.fixture
def begun(place, tmp_path):
    """(place, claim of attempt `attempt`, folder) with a replica in `tmp_path/replica`."""

    def make(attempt=2, address=None, calls=3):
        here = place()
        where = {"AGENT__CONTEXT_STORAGE__REPLICA": str(address or tmp_path / "replica")}
        here.settings = load(here.folder / "config.yaml", environ=where)
        here.wiring = Wiring(here.settings, events=here.events)
        here.issue(1)
        claim = here.claim(1)
        for _ in range(1, attempt):
            here.ledger.release(claim.uuid, claim.attempt)
            claim = here.ledger.claim(claim.uuid, here.wiring.owner, 60)
        here.wiring.db.execute(f"UPDATE tasks SET llm_call_count = {calls}")
        folder = here.settings.base_dir / "running" / claim.uuid
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
        return here, claim, folder

    return make


def messages(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps({"seq": number, "role": "user", "content": "x"}) + b"\n" for number in range(1, count + 1)]
    (folder / "messages.jsonl").write_bytes(b"".join(lines))


def elsewhere(tmp_path, uuid, *, attempt=1, count=3, generation="bb"):
    """Another host's folder of the task, with its replica written."""
    folder = tmp_path / f"host-{generation}"
    messages(folder, count)
    (folder / "metadata.json").write_text(f'{{"uuid": "{uuid}", "of": "{generation}"}}')
    made = {"tree.json": b"{}"}
    place = RemoteFolder(str(tmp_path / "replica"))
    Writer(place, folder, uuid, attempt, generation).write(
        take_snapshot(folder, file_names(), made, {"last_seq": count, "host": "h"})
    )
    return folder


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_host_without_the_files_fetches_them(begun, tmp_path):
    here, claim, folder = begun()
    there = elsewhere(tmp_path, claim.uuid)
    take_over(here.wiring, claim, folder)
    assert (folder / "messages.jsonl").read_bytes() == (there / "messages.jsonl").read_bytes()
    assert names(folder) == {"lock", "messages.jsonl", "metadata.json", "tree.json", "replica.json"}
    generation, attempt = read_state(folder)
    assert (generation != "bb", attempt) == (True, 2)
    (event,) = here.named("replica_fetched")
    assert (event["host"], event["attempt"], event["last_seq"], event["aside"]) == ("h", 1, 3, "")
    assert work_tree_snapshot.is_waiting(folder)


def test_the_host_that_worked_last_asks_nobody(begun, tmp_path):
    here, claim, folder = begun(address="s3://nobody/x?endpoint_url=http://127.0.0.1:1&key=k&secret=s")
    messages(folder, 2)
    write_state(folder, 1)
    take_over(here.wiring, claim, folder)
    assert read_state(folder)[1] == 2


def test_older_files_of_this_host_are_put_aside(begun, tmp_path):
    here, claim, folder = begun(attempt=4)
    messages(folder, 2)
    (folder / "git").mkdir()
    write_state(folder, 1)
    elsewhere(tmp_path, claim.uuid, attempt=3, count=9)
    take_over(here.wiring, claim, folder)
    assert (folder / "messages.jsonl").read_bytes().count(b"\n") == 9
    assert not (folder / "git").exists()
    aside = here.settings.base_dir / "quarantine" / f"{claim.uuid}.4"
    assert names(aside) == {"messages.jsonl", "git"}
    assert here.named("replica_fetched")[0]["aside"] == str(aside)


def test_newer_files_of_this_host_stay(begun, tmp_path):
    """Others claimed the task since, and did nothing that the replica has."""
    here, claim, folder = begun(attempt=4)
    elsewhere(tmp_path, claim.uuid, attempt=1, count=9)
    messages(folder, 12)
    write_state(folder, 2)
    take_over(here.wiring, claim, folder)
    assert (folder / "messages.jsonl").read_bytes().count(b"\n") == 12
    assert here.named("replica_fetched") == []


@pytest.mark.parametrize(("count", "taken"), [(9, True), (4, False)])
def test_files_of_a_disk_that_was_set_back_are_older_than_what_was_written_from_it(begun, tmp_path, count, taken):
    """The snapshot of a virtual machine, say."""
    here, claim, folder = begun(attempt=5)
    messages(folder, 4)
    generation = write_state(folder, 2)
    elsewhere(tmp_path, claim.uuid, attempt=2, count=count, generation=generation)
    take_over(here.wiring, claim, folder)
    assert bool(here.named("replica_fetched")) is taken


def test_for_a_task_that_was_never_begun_nobody_is_asked(begun, tmp_path):
    here, claim, folder = begun(calls=0, address="s3://nobody/x?endpoint_url=http://127.0.0.1:1&key=k&secret=s")
    take_over(here.wiring, claim, folder)
    assert read_state(folder)[1] == 2


@pytest.mark.parametrize(("count", "taken"), [(9, True), (2, False)])
def test_files_from_before_there_was_a_replica_are_compared_by_their_messages(begun, tmp_path, count, taken):
    here, claim, folder = begun(attempt=3)
    messages(folder, 4)
    elsewhere(tmp_path, claim.uuid, attempt=2, count=count)
    take_over(here.wiring, claim, folder)
    assert bool(here.named("replica_fetched")) is taken


def test_a_place_that_is_away_is_waited_for_and_at_last_gone_on_without(begun, monkeypatch):
    here, claim, folder = begun(address="s3://nobody/x?endpoint_url=http://127.0.0.1:1&key=k&secret=the-secret-of-it")
    tried = []

    def away(address):
        tried.append(address)
        raise ReplicaAway("context_storage.replica: s3://nobody/x does not answer as it should")

    monkeypatch.setattr(takeover, "RemoteFolder", away)
    with clock.use(clock.FakeClock()) as fake:
        for _ in range(2):
            with pytest.raises(ReplicaAway):
                take_over(here.wiring, claim, folder)
            fake.move(60)
        assert here.named("replica_unused") == []
        fake.move(takeover.PATIENCE_SECONDS)
        take_over(here.wiring, claim, folder)
    assert len(tried) == 3
    assert "does not answer" in here.named("replica_unused")[0]["why"]
    assert len(here.named("replica_away")) == 2
    assert not (folder / takeover.SINCE).exists()


def test_of_a_broken_newest_turn_the_one_before_is_taken(begun, tmp_path):
    here, claim, folder = begun()
    there = elsewhere(tmp_path, claim.uuid)
    place = RemoteFolder(str(tmp_path / "replica"))
    writer = Writer(place, there, claim.uuid, 1, "bb")
    messages(there, 5)
    writer.write(take_snapshot(there, file_names(), {}, {"last_seq": 5}))
    newest, older = list(manifests(place, claim.uuid))[:2]
    place.remove([max(newest.names(claim.uuid) - older.names(claim.uuid))])
    take_over(here.wiring, claim, folder)
    assert (folder / "messages.jsonl").read_bytes().count(b"\n") == 3


def test_a_replica_with_nothing_whole_is_said_and_the_task_begins_anew(begun, tmp_path):
    here, claim, folder = begun()
    elsewhere(tmp_path, claim.uuid)
    for path in (tmp_path / "replica" / claim.uuid / "bb" / "messages.jsonl").iterdir():
        path.write_bytes(b"other")
    take_over(here.wiring, claim, folder)
    assert "is not what was written" in here.named("replica_unused")[0]["why"]
    assert names(folder) - {".replica.tmp"} == {"lock", "replica.json"}


def test_cut_off_anywhere_the_next_attempt_comes_to_the_same(begun, tmp_path, monkeypatch):
    here, claim, folder = begun(attempt=3)
    there = elsewhere(tmp_path, claim.uuid, attempt=2, count=7)
    original = type(folder).rename
    for stop in range(1, 8):
        for path in list(folder.iterdir()):
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(here.settings.base_dir / "quarantine", ignore_errors=True)
        messages(folder, 2)
        (folder / "tools.jsonl").write_text("")
        write_state(folder, 1)
        left = [stop]

        def rename(path, target, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return original(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(type(folder), "rename", rename)
            try:
                take_over(here.wiring, claim, folder)
            except KeyboardInterrupt:
                pass
        take_over(here.wiring, SimpleNamespace(uuid=claim.uuid, attempt=claim.attempt), folder)
        assert (folder / "messages.jsonl").read_bytes() == (there / "messages.jsonl").read_bytes()
        assert not (folder / "tools.jsonl").exists(), "of the older files nothing stays beside the newer"
        assert read_state(folder)[1] == 3


# --- the thread that writes --------------------------------------------------------------------------------------


@pytest.fixture
def writing(begun, tmp_path, monkeypatch):
    here, claim, _ = begun(attempt=1)
    context = TaskContextManager(here.key(1), claim.uuid, here.settings, attempt=1, database=here.wiring.db)
    monkeypatch.setattr(
        work_tree_snapshot, "save", lambda _workspace, _known: work_tree_snapshot.SavedTree("w", {"tree.json": b"{}"})
    )
    monkeypatch.setattr(replicator, "FIRST_PAUSE", 0.02)
    made = []

    def start(address=tmp_path / "replica"):
        made.append(Replicator(str(address), context, None, here.wiring.events))
        return made[-1]

    yield here, context, start
    for one in made:
        one.close()
    context.close()


def newest(tmp_path, uuid):
    return next(manifests(RemoteFolder(str(tmp_path / "replica")), uuid), None)


def test_each_turn_is_there_after_it(writing, tmp_path):
    here, context, start = writing
    one = start()
    for number in range(1, 4):
        context.get_message_store().add_message("assistant", f"turn {number}")
        one.snapshot()
        assert one.wait(30)
        found = newest(tmp_path, context.uuid)
        assert (found.facts["turns"], found.attempt, found.number) == (number, 1, number)
    assert here.named("replica_away") == []


def test_a_place_that_is_away_stops_nothing_and_is_caught_up(writing, tmp_path):
    here, context, start = writing
    (tmp_path / "replica").write_text("a file where the folder is to be")
    one = start()
    for number in range(1, 4):
        context.get_message_store().add_message("assistant", f"turn {number}")
        one.snapshot()
        one.wait(30)
        assert one.away, "the next turn does not wait for it"
    assert len(here.named("replica_away")) == 1, "an outage is said once"
    (tmp_path / "replica").unlink()
    for _ in range(2000):
        if here.named("replica_caught_up"):
            break
        clock.sleep(0.01)
    assert here.named("replica_caught_up") == [{"uuid": context.uuid, "last_seq": 3}]
    assert newest(tmp_path, context.uuid).facts["turns"] == 3
    assert not one.away


def test_after_the_end_nothing_is_written(writing, tmp_path):
    _, context, start = writing
    one = start()
    context.get_message_store().add_message("assistant", "turn 1")
    one.snapshot()
    assert one.wait(30)
    one.close()
    context.get_message_store().add_message("assistant", "turn 2")
    one.snapshot()
    assert newest(tmp_path, context.uuid).facts["turns"] == 1


def test_what_waits_to_be_published_is_published_by_a_host_that_has_only_the_replica(work, tmp_path):
    """It knows that, and since when: nothing is done anew, and nobody is told so."""
    write = says("openai", "", [call("write_file", {"path": "a.txt", "content": "a"})])
    here, _, task = work(write, says("openai", "", [call("finish", {"title": "Done", "summary": "It is done."})]))
    where = {"AGENT__CONTEXT_STORAGE__REPLICA": str(tmp_path / "replica")}
    here.settings = load(here.folder / "config.yaml", environ=where)
    here.wiring = Wiring(here.settings, events=here.events)
    pulls = here.folder / "tracker" / "pulls"
    pulls.write_text("in the way")  # no pull request can be looked up or opened
    with pytest.raises(ForgeError):
        TaskHandler(here.wiring, attempt=1).handle(task)
    pulls.unlink()

    uuid = str(task.get_uuid())
    shutil.rmtree(here.settings.base_dir / "running" / uuid)
    here.ledger.offer(uuid)
    claim = here.ledger.claim(uuid, here.wiring.owner, 60)
    take_over(here.wiring, claim, make_folder(here.settings, uuid))
    assert TaskHandler(here.wiring, attempt=claim.attempt).handle(task).end is End.FINISHED
    row = here.ledger.get(uuid)
    assert (row.status, row.llm_call_count) == (Status.COMPLETED, 2)
    assert here.named("task_anew") == []
