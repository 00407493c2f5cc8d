"""A memory.db that cannot be used is one error, and the next call works when the fault is gone."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config import Settings
from agent.errors import MemoryUnavailable
from agent.memory import MemoryStore, NewEvent
from agent.memory.database import refuse_network
from agent.store import db


def calls(store):
    """Every way in that reads, and one that writes."""
    yield lambda: store.retrieve("parser", "a")
    yield lambda: store.search_events("parser", "a")
    yield lambda: store.list_memory_records("/")
    yield lambda: store.likely_files("parser", "a")
    yield lambda: store.create_event("a", "s", "one more")


def fill(folder):
    store = MemoryStore(folder, Settings().memory)
    store.create_events([NewEvent("a", f"s{n // 20}", f"the parser said {n} {n * 7919}") for n in range(600)])
    for n in range(60):
        store.create_memory_record("/facts/a/", f"parser fact {n} {n * 104729}", strategy="facts")
    store.close()


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "memory.db").write_bytes(b"certainly not a database" * 100)
    for call in calls(MemoryStore(tmp_path, Settings().memory)):
        with pytest.raises(MemoryUnavailable, match="damaged"):
            call()


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_is_damaged_somewhere_fails_as_one_error_or_not_at_all(tmp_path, seed):
    fill(tmp_path)
    path, chance = tmp_path / "memory.db", random.Random(seed)
    data = bytearray(path.read_bytes())
    for page in chance.sample(range(2, len(data) // 4096), len(data) // 4096 // 3):
        data[page * 4096 : (page + 1) * 4096] = chance.randbytes(4096)
    path.write_bytes(data)
    failed = 0
    for call in calls(MemoryStore(tmp_path, Settings().memory)):
        try:
            call()
        except MemoryUnavailable:
            failed += 1
    assert failed


def test_a_newer_version(tmp_path):
    fill(tmp_path)
    other = db.Database(tmp_path / "memory.db")
    other.execute("INSERT INTO schema_version VALUES (9999, 'later', 'later')")
    other.close()
    for call in calls(MemoryStore(tmp_path, Settings().memory)):
        with pytest.raises(MemoryUnavailable, match="newer version"):
            call()


def test_a_database_of_another_program_is_left_as_it_is(tmp_path):
    other = db.Database(tmp_path / "memory.db")
    other.execute("CREATE TABLE places (url TEXT)")
    other.close()
    for call in calls(MemoryStore(tmp_path, Settings().memory)):
        with pytest.raises(MemoryUnavailable, match=r"another program \(it has places\)"):
            call()
    other = db.Database(tmp_path / "memory.db")
    assert [row["name"] for row in other.execute("SELECT name FROM sqlite_master")] == ["places"]


def test_a_missing_table_names_the_command_that_makes_it_again(tmp_path):
    fill(tmp_path)
    other = db.Database(tmp_path / "memory.db")
    other.execute("DROP TABLE memory_record_files")
    other.execute("DROP TABLE memory_event_turns_data")
    other.close()
    store = MemoryStore(tmp_path, Settings().memory)
    for call in (lambda: store.retrieve("parser", "a"), lambda: store.search_events("parser", "a")):
        with pytest.raises(MemoryUnavailable, match="`memory rebuild`"):
            call()


@pytest.mark.parametrize("change", ["payload = substr(payload, 2)", """payload = '{"text": 1}'"""])
def test_a_damaged_entry_of_the_log_fails_the_rebuild_as_one_error(tmp_path, change):
    fill(tmp_path)
    store = MemoryStore(tmp_path, Settings().memory)
    store._open.database.execute(f"UPDATE memory_log SET {change} WHERE number = 620")
    store._open.database.execute("UPDATE memory_records SET metadata = '{'")
    for call in (store.rebuild, store.export, lambda: store.retrieve("parser", "a")):
        with pytest.raises(MemoryUnavailable):
            call()
    assert store.search_events("parser", "a"), "the tables are as they were"


def test_a_writer_waits_for_another_and_gives_up_and_readers_do_not_wait(tmp_path):
    fill(tmp_path)
    store = MemoryStore(tmp_path, Settings().memory, busy_timeout=0.1)
    assert store.retrieve("parser", "a")
    code = f"""
import sys
sys.path.insert(0, {os.getcwd()!r})
from agent.store import db
other = db.Database(__import__("pathlib").Path({str(tmp_path / "memory.db")!r}))
other.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(MemoryUnavailable, match="busy"):
            store.create_event("a", "s", "waits")
        assert store.retrieve("parser", "a")
        assert store.search_events("parser", "a")
        holder.stdin.close()
    assert store.create_event("a", "s", "goes on")


def test_a_full_disk(tmp_path):
    fill(tmp_path)
    store = MemoryStore(tmp_path, Settings().memory)
    store.retrieve("parser", "a")
    pages = store._open.database.execute("PRAGMA page_count")[0]["page_count"]
    store._open.database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(MemoryUnavailable, match="full"):
        store.create_events([NewEvent("a", "s", f"more {n} {n * 7919}") for n in range(2000)])
    assert store.retrieve("parser", "a")
    store._open.database.execute(f"PRAGMA max_page_count = {pages * 100}")
    assert store.create_event("a", "s", "after it")
    before = store.figures()
    store.rebuild()
    assert store.figures()["events"] == before["events"] == 601


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    for call in calls(MemoryStore(tmp_path / "file" / "contexts", Settings().memory)):
        with pytest.raises(MemoryUnavailable):
            call()


def test_a_connection_of_before_a_fork_is_refused(tmp_path):
    store = MemoryStore(tmp_path, Settings().memory)
    store.create_event("a", "s", "before")
    pid = os.fork()
    if pid == 0:
        try:
            store.search_events("before", "a")
        except MemoryUnavailable:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_removed_file_begins_anew(tmp_path):
    store = MemoryStore(tmp_path, Settings().memory)
    store.create_event("a", "s", "before")
    for path in tmp_path.glob("memory.db*"):
        path.unlink()
    assert store.search_events("before", "a") == []
    assert store.create_event("a", "s", "after") == 1


def test_a_kill_in_the_middle_of_an_import_leaves_whole_batches(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {os.getcwd()!r})
from pathlib import Path
from agent.config import Settings
from agent.memory import MemoryStore, NewEvent
store = MemoryStore(Path({str(tmp_path)!r}), Settings().memory)
number = 0
while True:
    store.create_events([NewEvent("a", "s", f"text {{number}} {{n}}", client_token=f"{{number}} {{n}}") for n in range(50)])
    number += 1
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        for _ in range(6):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    store = MemoryStore(tmp_path, Settings().memory)
    events = store.figures()["events"]
    assert events >= 300
    assert events % 50 == 0
    assert len(store._open.log.entries(limit=10**6)) == events
    assert store.create_event("a", "s", "text 0 0", client_token="0 0") == 1


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "ceph", "fuse.sshfs", "9p"])
def test_a_file_that_several_hosts_may_open_is_refused(tmp_path, kind):
    """A list of mounts as the kernel writes it (proc_pid_mountinfo(5))."""
    (tmp_path / "mountinfo").write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"40 22 0:45 / /srv/shared rw,relatime shared:9 - {kind} store:/export rw,vers=4.2\n"
        "41 40 8:2 / /srv/shared/local rw,relatime - xfs /dev/sdb1 rw\n"
    )
    for place in ("/srv/shared/contexts", "/srv/shared"):
        with pytest.raises(MemoryUnavailable, match=rf"network file system \({kind}\)"):
            refuse_network(Path(place) / "memory.db", tmp_path)
    for place in ("/srv", "/srv/shared2", "/srv/shared/local/contexts", "/"):
        refuse_network(Path(place) / "memory.db", tmp_path)
    refuse_network(Path("/srv/shared/memory.db"), tmp_path / "no list")
